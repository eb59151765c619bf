// Checks of option values with messages that name the bound.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "framework/error.h"

namespace gau::cli {

/// A whole number of at least `smallest`.
inline CLI::Validator at_least(std::int64_t smallest) {
  return {[smallest](std::string& text) {
            std::int64_t value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            return is_number && value >= smallest ? std::string()
                                                  : fmt::format("{} is not a whole number of at least {}", text, smallest);
          },
          "", "at_least"};
}

}  // namespace gau::cli
