#include "framework/kernel_timer.h"

namespace gau {

namespace {
thread_local KernelProfile* current = nullptr;
}

KernelProfile::KernelProfile() { current = this; }
KernelProfile::~KernelProfile() { current = nullptr; }

KernelTimer::KernelTimer(const char* name) : profile_(current), name_(name) {
  if (profile_) begin_ = std::chrono::steady_clock::now();
}

KernelTimer::~KernelTimer() {
  if (!profile_) return;
  profile_->times_[name_] += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

}  // namespace gau
