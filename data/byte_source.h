// ByteSource: the bytes of a file, unpacked when it is gzip or zstd (told by its first bytes, not by its name).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace gau {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Up to `size` bytes; 0 only at the end. Throws Error(kIo) when reading fails, Error(kData) when packed data is damaged or
  /// cut short.
  virtual std::size_t read(char* out, std::size_t size) = 0;
  /// Bytes taken from the file so far, packed as they are there.
  virtual std::int64_t consumed() const = 0;

  /// `name` is what errors call the file.
  static std::unique_ptr<ByteSource> open(const std::string& path, const std::string& name);
};

}  // namespace gau
