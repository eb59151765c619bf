// Messages for people, all on standard error, so that standard output carries results alone.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace gau::log {

/// Hides info() lines; warnings are always shown.
void set_quiet(bool quiet);
bool quiet();

/// Warnings name their origin, "rank 1 (node7): ", where several processes write to one terminal. Empty: none.
void set_origin(const std::string& origin);

/// Also appends every line to this file ("" stops that). Throws Error(kIo) when it cannot be opened.
void set_file(const std::string& path);

void info_line(const std::string& line);
void warn_line(const std::string& line);

template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  info_line(fmt::format(format, std::forward<Args>(args)...));
}

/// Prefixed with "gau: warning: ".
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  warn_line(fmt::format(format, std::forward<Args>(args)...));
}

/// True when standard error is a terminal and NO_COLOR is not set.
bool interactive();

}  // namespace gau::log
