#include "train/background_save.h"

#include <cassert>
#include <chrono>

namespace gau {

void BackgroundSave::begin(const Snapshot& now, bool best) {
  assert(!in_flight());
  now.copy_to(copy_);
  best_ = best;
  writing_ = std::async(std::launch::async, [this] { return store_.write(facts_, copy_); });
}

bool BackgroundSave::done() const {
  return in_flight() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::uint64_t BackgroundSave::publish() {
  assert(in_flight());
  const std::uint64_t digest = writing_.get();
  store_.publish(copy_.state.step, best_);
  return digest;
}

}  // namespace gau
