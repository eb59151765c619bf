// How a flat buffer is cut for exchange: into buckets, from its end to its start, since backward finishes the last layers
// first; and each bucket into one slice for each rank, its owner.
//
// Elements are added one by one, so no cut changes a bit.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gau {

/// Elements [begin, end) of a flat buffer.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Part `index` of `count` of [0, size): contiguous, sizes differ by at most one.
inline Range part_of(std::int64_t size, std::int64_t index, std::int64_t count) {
  return {index * size / count, (index + 1) * size / count};
}

class BucketPlan {
 public:
  /// `bucket` elements at least 1; the last bucket may be smaller.
  BucketPlan(std::int64_t size, std::int64_t bucket, int ranks) : size_(size), bucket_(bucket), ranks_(ranks) {}

  std::int64_t size() const { return size_; }
  int ranks() const { return ranks_; }
  std::int64_t buckets() const { return (size_ + bucket_ - 1) / bucket_; }
  /// Bucket 0 ends the buffer.
  Range bucket(std::int64_t index) const {
    return {std::max<std::int64_t>(0, size_ - (index + 1) * bucket_), size_ - index * bucket_};
  }
  /// What `rank` owns of a bucket; may be empty.
  Range slice(std::int64_t index, int rank) const {
    const Range all = bucket(index), part = part_of(all.size(), rank, ranks_);
    return {all.begin + part.begin, all.begin + part.end};
  }

 private:
  std::int64_t size_;
  std::int64_t bucket_;
  int ranks_;
};

}  // namespace gau
