// safetensors files: eight bytes with the size of a JSON header (little-endian), the header, the data.
//
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …, "__metadata__": {"format": "pt"}}
//
// Offsets count from the first byte behind the header. The format has no digest, so reading is strict: a file is taken only
// when its header describes every byte of it exactly once. Whatever the bytes, reading ends in tensors or in one Error.
// Format: the description in the repository of the safetensors library.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace gau::safetensors {

/// Headers beyond this are refused before they are read: a model of 4096 layers needs 3 MB.
constexpr std::uint64_t kMostHeaderBytes = 16 << 20;
/// Dimensions of a tensor beyond this are refused.
constexpr std::size_t kMostRank = 8;

/// The element types that a model can have.
enum class Type { kF32, kBF16, kF16 };

/// "f32", "bf16", "f16"; anything else throws Error(kUsage).
Type parse_type(const std::string& name);
const char* name_of(Type type);
std::size_t size_of(Type type);

/// A tensor, as the header states it.
struct Entry {
  std::string name;
  std::string dtype;  ///< as in the file: "F32", "I64", …
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< byte of the file
  std::uint64_t end = 0;

  std::int64_t elements() const;
};

/// A file open for reading, its header checked.
class Reader {
 public:
  /// Throws Error(kData) naming the file, and the tensor, for: anything but a regular file; a header that is cut, too large, no
  /// valid JSON, deeper than it can be, or has a key twice; an unknown element type; a shape that is not of whole numbers or
  /// whose size differs from its offsets; bytes described twice, not at all, or not there. Throws Error(kIo) when the file
  /// cannot be read.
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }
  /// In the order of their data.
  const std::vector<Entry>& entries() const { return entries_; }
  /// The tensor of that name, or nullptr.
  const Entry* find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The elements of a tensor of F32, BF16 or F16, widened exactly. Throws Error(kData) for any other type.
  std::vector<float> read(const Entry& entry) const;

 private:
  void read_header();
  void read_at(void* out, std::uint64_t bytes, std::uint64_t offset) const;

  std::string path_;
  int file_ = -1;
  std::uint64_t bytes_ = 0;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> index_;  ///< into entries_, by name
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written; `values` is called when its turn comes, and may give a view that lives until the next call.
struct Source {
  std::string name;
  std::vector<std::int64_t> shape;
  std::function<std::span<const float>()> values;
};

/// What rounding to a narrower type did.
struct Rounding {
  std::int64_t elements = 0;
  std::int64_t changed = 0;  ///< elements that did not keep their value
  std::int64_t zeroed = 0;   ///< of them, those that became 0
};

/// Writes tensors in the order given, whole or not at all, rounded to nearest even. Equal tensors give equal bytes. Throws
/// Error(kData) naming tensor and element for a value beyond the type's largest, Error(kIo) with path and errno text.
Rounding write(const std::string& path, const std::vector<Source>& tensors, Type type);

}  // namespace gau::safetensors
