// xxh64: the digest that seals files and names the state of a run.
//
// Not cryptographic: it finds damage, not malice. It runs at memory speed, so whole files can be checked at every opening.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gau {

/// xxh64 with seed 0 of data that comes in pieces; the result does not depend on how it is cut.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void update(const void* data, std::size_t bytes);
  /// The digest of all bytes so far; more may follow.
  std::uint64_t value() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// xxh64 with seed 0 of one piece.
std::uint64_t xxh64(const void* data, std::size_t bytes);

/// Sixteen lower-case hexadecimal digits, the form in which digests are printed and stored as text.
std::string digest_text(std::uint64_t digest);

}  // namespace gau
