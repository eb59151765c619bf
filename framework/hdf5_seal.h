// The seal in the HDF5 user block: magic, version, file size and digest of everything behind the block; the rest of it is zero.
// Internal to framework/hdf5_*.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace gau::h5 {

constexpr std::uint64_t kUserBlock = 4096;

struct Seal {
  bool sealed = false;
  std::uint64_t digest = 0;
};

/// Reads the whole file when it has a seal. Throws Error(kIo) when it cannot be read, Error(kData) when it is neither sealed
/// nor an HDF5 file from byte 0 on, or when size, digest or the block itself are not what they were.
Seal check_seal(const std::string& path);

/// Writes the seal into the (still zero) user block of `file` and returns the digest. `path` is the name that errors give.
std::uint64_t write_seal(const std::string& file, const std::string& path);

}  // namespace gau::h5
