// Files and directories that are there whole or not at all: written under a temporary name in the same directory, synced,
// renamed.
#pragma once

#include <string>
#include <string_view>

namespace gau {

/// A file being made under a temporary name beside `path`. Unless publish() is reached, nothing remains of it and `path` is as
/// it was before. Temporaries of writers on this machine that were killed are removed when the same path is written again.
class TemporaryFile {
 public:
  /// Makes the empty temporary file. Throws Error(kIo) with path and errno text, also when `path` is a directory or a device.
  explicit TemporaryFile(const std::string& path);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  /// Where to write.
  const std::string& name() const { return name_; }
  /// Where it will be: `path` with symbolic links followed.
  const std::string& target() const { return target_; }
  /// Syncs the file, renames it over target(), syncs the directory. Throws Error(kIo) with path and errno text.
  void publish();

 private:
  std::string target_;
  std::string name_;
  bool published_ = false;
};

/// A directory being made under a temporary name beside `path`, as TemporaryFile for a file. What is written into it must be
/// synced by its writer (write_file and TemporaryFile do).
class TemporaryDirectory {
 public:
  /// Makes the empty temporary directory. Throws Error(kIo) with path and errno text, also when `path` is no directory.
  explicit TemporaryDirectory(const std::string& path);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  /// Where to write.
  const std::string& name() const { return name_; }
  /// Gives it its name. An empty directory of that name makes room; one with contents is swapped for it and then removed when
  /// `replace` is set, and an error otherwise. Throws Error(kIo) with path and errno text.
  void publish(bool replace);

 private:
  std::string target_;
  std::string name_;
};

/// Writes all of `bytes` to `path`, or throws Error(kIo) and leaves `path` as it was.
void write_file(const std::string& path, std::string_view bytes);

/// Flushes a file or a directory to the disk. Throws Error(kIo) with path and errno text.
void sync_path(const std::string& path);

}  // namespace gau
