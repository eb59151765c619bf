// Seal: bytes 0-7 magic, 8-15 version, 16-23 size of the file, 24-31 xxh64 of bytes 4096 to the end, all little-endian; zeros
// to 4095.
//
// Every byte of the file is covered: the block's own bytes have one right value each, all others are in the digest.
#include "framework/hdf5_seal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include "framework/descriptor.h"
#include "framework/digest.h"
#include "framework/error.h"

namespace gau::h5 {
namespace {

static_assert(std::endian::native == std::endian::little, "the seal is written in the order of the machine");

constexpr std::array<char, 8> kMagic = {'\x89', 'G', 'A', 'U', '\r', '\n', '\x1a', '\n'};
constexpr std::array<char, 8> kSignature = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
constexpr std::uint64_t kVersion = 1;

using Block = std::array<char, kUserBlock>;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint64_t version = kVersion;
  std::uint64_t size = 0;
  std::uint64_t digest = 0;
};

/// Opening a pipe without O_NONBLOCK would wait for its other end.
int open_at_once(const std::string& file, int flags) { return open(file.c_str(), flags | O_CLOEXEC | O_NONBLOCK); }

[[noreturn]] void fail_errno(const std::string& path, const char* what) {
  fail(ExitCode::kIo, "{}: {}: {}", path, what, std::strerror(errno));
}

/// Up to `bytes` bytes from `offset`; fewer only at the end of the file.
std::size_t read_at(int file, char* out, std::size_t bytes, std::uint64_t offset, const std::string& path) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(file, out + done, bytes - done, static_cast<off_t>(offset + done));
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(path, "cannot be read");
    done += static_cast<std::size_t>(got);
  }
  return done;
}

std::uint64_t size_of_file(int file, const std::string& path) {
  struct stat status {};
  if (fstat(file, &status) != 0) fail_errno(path, "cannot be read");
  check(S_ISREG(status.st_mode), ExitCode::kIo, "{}: cannot be read: not a regular file", path);
  return static_cast<std::uint64_t>(status.st_size);
}

std::uint64_t digest_behind_block(int file, const std::string& path) {
  Digest digest;
  std::vector<char> buffer(std::size_t{1} << 20);
  for (std::uint64_t offset = kUserBlock;;) {
    const std::size_t got = read_at(file, buffer.data(), buffer.size(), offset, path);
    digest.update(buffer.data(), got);
    offset += got;
    if (got < buffer.size()) return digest.value();
  }
}

Block block_of(const Header& header) {
  Block block{};
  std::memcpy(block.data(), &header, sizeof header);
  return block;
}

}  // namespace

Seal check_seal(const std::string& path) {
  const Descriptor file(open_at_once(path, O_RDONLY));
  if (file.id() < 0) fail_errno(path, "cannot be opened");
  const std::uint64_t size = size_of_file(file.id(), path);
  Block block{};
  const std::size_t got = read_at(file.id(), block.data(), block.size(), 0, path);
  if (got >= kSignature.size() && std::memcmp(block.data(), kSignature.data(), kSignature.size()) == 0) return {};
  check(got >= kMagic.size() && std::memcmp(block.data(), kMagic.data(), kMagic.size()) == 0, ExitCode::kData,
        "{}: not an HDF5 file, or its beginning is damaged; make it again or take another copy", path);
  Header header;
  std::memcpy(&header, block.data(), sizeof header);
  check(got == block.size() && header.size == size, ExitCode::kData,
        "{}: cut short or grown: {} bytes, {} when it was written; make it again or take another copy", path, size,
        got < sizeof header ? 0 : header.size);
  check(header.version == kVersion, ExitCode::kData, "{}: sealed by version {} of the format, known is {}; use a newer program",
        path, header.version, kVersion);
  const std::uint64_t digest = digest_behind_block(file.id(), path);
  Header expected;
  expected.size = size;
  expected.digest = digest;
  check(block == block_of(expected), ExitCode::kData,
        "{}: damaged: its digest differs ({}, {} when it was written); make it again or take another copy", path,
        digest_text(digest), digest_text(header.digest));
  return {true, digest};
}

std::uint64_t write_seal(const std::string& file_name, const std::string& path) {
  const Descriptor file(open_at_once(file_name, O_RDWR));
  if (file.id() < 0) fail_errno(path, "cannot be sealed");
  Header header;
  header.size = size_of_file(file.id(), path);
  header.digest = digest_behind_block(file.id(), path);
  const Block block = block_of(header);
  if (pwrite(file.id(), block.data(), block.size(), 0) != static_cast<ssize_t>(block.size()))
    fail_errno(path, "cannot be sealed");
  return header.digest;
}

}  // namespace gau::h5
