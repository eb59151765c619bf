// No progress lines while a test runs that is not about them.
#pragma once

#include "framework/log.h"

namespace gau {

struct Quiet {
  Quiet() { log::set_quiet(true); }
  ~Quiet() { log::set_quiet(false); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

}  // namespace gau
