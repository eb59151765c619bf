// Sums the ranks' gradients, bucket by bucket, while backward goes on.
//
// Each rank owns a slice of every bucket: it receives the slice from all ranks, adds in a fixed order and sends the sum back.
// For ranks a power of two that hold equal parts of the step's virtual shards the order is the rest of their binary tree
// (gradient_tree.h), so the bits are those of one rank; else the order of ranks. Neither the size of a bucket nor the time at
// which something arrives plays a part. A bucket starts as soon as its gradients are final, buckets start and are summed in
// order, and messages advance in progress(), called after every op of backward and between the parts of long ones.
//
// With a bf16 wire both ways are rounded, sums are f32 at the owner, and the owner too goes on with the rounded sum, so that
// all ranks keep equal parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/communicator.h"
#include "framework/tensor.h"
#include "train/bucket_plan.h"
#include "train/config.h"

namespace gau {

class GradientExchange {
 public:
  /// With `sharing` above 1 so many neighbours hold parts of the same shards' gradients: sums run over the groups first, so
  /// that their order does not depend on how many groups there are. `gradients` is the flat buffer; `wire` its type, or bf16
  /// for an f32 one. The communicator must outlive this.
  GradientExchange(Communicator& ranks, Tensor gradients, const BucketPlan& plan, ReduceOrder order, DType wire,
                   int sharing = 1);
  ~GradientExchange();

  /// A step's exchange begins: no gradient is final.
  void begin(std::int64_t step);
  /// These elements are final. Each is told once a step.
  void ready(Range elements);
  /// Starts what can start and advances the rest. Does nothing when it is called out of itself, from its loops.
  void progress();
  /// All elements are final: waits until the buffer holds the sums. Throws as Communicator::wait.
  void finish();

 private:
  struct Bucket;
  class Wait;
  using Transfers = std::vector<std::unique_ptr<Transfer>>;
  Bucket& bucket(std::int64_t index);
  Tensor part(Range elements) const { return gradients_.segment(elements.begin, {elements.size()}); }
  MessageLabel label(MessageKind kind, std::int64_t bucket) const { return {kind, step_, bucket}; }
  void advance();
  void start(std::int64_t index);
  void add_parts(std::int64_t index);
  void send_sum(std::int64_t index);
  void expect_parts(std::int64_t index);
  void expect_sum(int peer);
  void release(std::int64_t index);
  /// The first message that keeps the oldest bucket from being through; null where there is none.
  Transfer* awaited();

  Communicator& ranks_;
  Tensor gradients_;
  BucketPlan plan_;
  ReduceOrder order_;
  DType wire_;
  int sharing_;
  std::int64_t step_ = 0;
  std::vector<Bucket> buckets_;
  bool advancing_ = false;    ///< progress() is at work
  std::int64_t started_ = 0;  ///< buckets started, in order
  std::int64_t summed_ = 0;   ///< of them, those whose own slice is summed
  std::int64_t taken_ = 0;    ///< of them, those whose other slices have arrived
};

/// Every rank gets from each other one the slices of `flat` that it owns: what each has computed for itself alone becomes
/// everybody's.
void share_slices(Communicator& ranks, Tensor flat, const BucketPlan& plan, const MessageLabel& label);

/// The other way: every rank gets, of a buffer whose slices lie with their owners, the elements that it wants.
/// `own`: this rank's slices, bucket after bucket; `wanted` by rank.
Tensor collect_slices(Communicator& ranks, const Tensor& own, const BucketPlan& plan, const std::vector<Range>& wanted,
                      std::int64_t step);

}  // namespace gau
