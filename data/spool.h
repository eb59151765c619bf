// Spool: input that can be read once (standard input, a pipe) as a file that can be read again.
//
// Preparation reads text twice: for the vocabulary, then for the tokens.
#pragma once

#include <string>

namespace gau {

class Spool {
 public:
  /// Copies all of `path` ("-": standard input) to a temporary file without a name unless it is a regular file already. Throws
  /// Error(kIo) naming the temporary directory when it is full.
  explicit Spool(const std::string& path);
  ~Spool();
  Spool(Spool&& other) noexcept;
  Spool& operator=(Spool&&) = delete;

  /// What to open, any number of times.
  const std::string& path() const { return path_; }
  /// What to call it.
  const std::string& name() const { return name_; }

 private:
  std::string path_;
  std::string name_;
  int id_ = -1;
};

}  // namespace gau
