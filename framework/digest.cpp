// xxh64 by libxxhash.
#include "framework/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace gau {

struct Digest::Impl {
  XXH64_state_t* state = XXH64_createState();
  Impl() {
    if (state == nullptr) throw std::bad_alloc();
    XXH64_reset(state, 0);
  }
  ~Impl() { XXH64_freeState(state); }
};

Digest::Digest() : impl_(std::make_unique<Impl>()) {}
Digest::~Digest() = default;

void Digest::update(const void* data, std::size_t bytes) {
  if (bytes > 0) XXH64_update(impl_->state, data, bytes);
}

std::uint64_t Digest::value() const { return XXH64_digest(impl_->state); }

std::uint64_t xxh64(const void* data, std::size_t bytes) { return XXH64(data, bytes, 0); }

std::string digest_text(std::uint64_t digest) { return fmt::format("{:016x}", digest); }

}  // namespace gau
