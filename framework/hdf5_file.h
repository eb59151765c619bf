// HDF5 files, and the seal that makes ours safe to open.
//
// Files written here begin with a 4096-byte HDF5 user block that holds the file's size and an xxh64 digest of everything after
// the block. It is checked before libhdf5 sees the file, since libhdf5 crashes, loops or loads wrong values on damaged ones;
// h5py and h5dump read such files as any other. Files of others (HDF5 signature at byte 0) open as they are.
// A file is written under a temporary name, sealed, synced and renamed: it is there whole or not at all.
// libhdf5 is not thread-safe: every call here holds one process-wide lock. Times are not stored: equal contents, equal bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gau::h5 {

enum class Kind { kInteger, kReal, kString, kOther };

struct DatasetInfo {
  std::vector<std::int64_t> shape;
  Kind kind = Kind::kOther;
  std::size_t element_bytes = 0;
  std::int64_t size() const;  ///< product of shape
};

/// A file open for reading. Every failure throws Error naming the file (and the object): kData for contents (missing object, wrong kind or
/// rank, damage: "FILE: digest differs …"), kIo for the machine (cannot open, locked: names HDF5_USE_FILE_LOCKING).
class Reader {
 public:
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;

  const std::string& path() const;
  bool sealed() const;           ///< written by us, digest verified
  std::uint64_t digest() const;  ///< of the contents; 0 when not sealed
  bool has(const std::string& object) const;
  /// Names of the members of a group, sorted; "/" is the root.
  std::vector<std::string> list(const std::string& group) const;
  DatasetInfo info(const std::string& dataset) const;

  /// All elements, converted by HDF5 between widths and signs of one kind (integer or real; values that do not fit throw).
  /// T: std::int32_t, std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, float, double.
  template <class T>
  std::vector<T> read(const std::string& dataset) const;
  /// `count` elements from element `first` of a one-dimensional dataset.
  template <class T>
  std::vector<T> read_range(const std::string& dataset, std::int64_t first, std::int64_t count) const;
  /// A one-dimensional dataset of strings (fixed or variable length), byte-exact: embedded NUL and trailing spaces survive.
  std::vector<std::string> read_strings(const std::string& dataset) const;

  bool has_attribute(const std::string& object, const std::string& name) const;
  std::string string_attribute(const std::string& object, const std::string& name) const;
  std::int64_t int_attribute(const std::string& object, const std::string& name) const;
  double real_attribute(const std::string& object, const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct WriteOptions {
  bool compress = false;  ///< 64K-element chunks, shuffle, gzip 1, Fletcher32 (one-dimensional datasets)
};

/// A file being written under a temporary name in the same directory. Without publish() nothing remains.
class Writer {
 public:
  explicit Writer(const std::string& path);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Missing groups on the way are made. T as in Reader::read.
  template <class T>
  void write(const std::string& dataset, std::span<const T> values, const std::vector<std::int64_t>& shape,
             const WriteOptions& options = {});
  void write_strings(const std::string& dataset, const std::vector<std::string>& values);
  /// A one-dimensional dataset that grows by append(): for data that is larger than memory.
  template <class T>
  void create_growing(const std::string& dataset, const WriteOptions& options = {.compress = true});
  template <class T>
  void append(const std::string& dataset, std::span<const T> values);

  void attribute(const std::string& object, const std::string& name, const std::string& value);
  void attribute(const std::string& object, const std::string& name, std::int64_t value);
  void attribute(const std::string& object, const std::string& name, double value);

  /// Closes, seals, syncs, renames over `path`, syncs the directory. Returns the digest. Throws Error(kIo) with path and errno
  /// text; `path` is then as it was before.
  std::uint64_t publish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gau::h5
