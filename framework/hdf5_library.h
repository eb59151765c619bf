// What the HDF5 reader and writer share: the lock, owned handles, element types, and the reason of a failure. Included by
// framework/hdf5_*.cpp alone, since it brings hdf5.h.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace gau::h5 {

/// Held during every call of libhdf5. It also silences HDF5's own printing, which it keeps by thread, and keeps the library
/// from running clean-up at exit: that crashes after a failed write.
class Session {
 public:
  Session();

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

/// Owns an HDF5 identifier; closes it by `Close`. Use under a Session.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(hid_t id) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) Close(id_);
  }
  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  hid_t release() { return std::exchange(id_, -1); }

 private:
  hid_t id_ = -1;
};

using File = Handle<H5Fclose>;
using Object = Handle<H5Oclose>;
using Group = Handle<H5Gclose>;
using Dataset = Handle<H5Dclose>;
using Space = Handle<H5Sclose>;
using Type = Handle<H5Tclose>;
using Attribute = Handle<H5Aclose>;
using Properties = Handle<H5Pclose>;

/// HDF5's type of a C++ element in memory.
template <class T>
hid_t native_type();

/// Why the last call failed. To be asked before any other call, which would clear it.
struct Failure {
  std::string reason;   ///< the innermost message, or the errno text in it, on one line
  bool locked = false;  ///< the file could not be locked
};
Failure last_failure();

/// What write_strings() puts beside a dataset when a string ends with NUL, which a padded string cannot tell from its padding.
std::string lengths_dataset(const std::string& strings);

}  // namespace gau::h5
