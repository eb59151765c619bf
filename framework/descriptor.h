// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

namespace gau {

class Descriptor {
 public:
  /// What open() returned; a negative number is none.
  explicit Descriptor(int id) : id_(id) {}
  ~Descriptor() {
    if (id_ >= 0) close(id_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int id() const { return id_; }

 private:
  int id_;
};

}  // namespace gau
