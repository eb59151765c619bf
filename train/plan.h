// Forecast of a training: memory of a rank and time of a step, with the part of each. docs/scaling.md shows what comes of it.
//
// P parameters of w bytes, R ranks, V virtual shards, S = V / R shards a rank (1 when R does not divide V), b sequences of L
// tokens in a micro-step of a shard, M of them masked, T = b · L, a bucket of K elements.
//
// Memory of a rank, bytes
//   parameters P w;  gradients P w;  moments 2 P w, with ZeRO / R;  LAMB's updates P w
//   sums of shards      P w log2 S                                 buffers of the binary tree (gradient_tree.h)
//   packed weights      2 P w'                                     as products read them, forward and backward, when a weight
//                                                                  is used again in the step (S A > 1); none in f64
//   activations         w T ((N - 1) (3H + 6E + 4D) + 4H + 2E + 4D) what backward of N layers keeps; the last one's gate,
//   weighted
//                                                                  sum and output are of masked rows alone
//   logits              2 w M (vocabulary + 3E)                    with their gradients, and those rows
//   validation          w B L (3H + 6E + 4D + 2 · share of masked · vocabulary)   a whole batch B, a layer at a time; blocks
//   that
//                                                                  training has freed are of other sizes
//   exchange            w P (R - 1) / R                            contributions to its own slices, all under way at most
//   snapshot of a save  P w + 2 P w / R                            of rank 0; kept from save to save
//   program             36 MiB, and 8 MiB of MPI with several ranks
//
// Time of a step, seconds: A micro-steps, F operations of a rank's products, C and B its rates of products and of memory
//   products            F / (0.9 C)                                C is the rate of a large square product; those of a step
//                                                                  reach 0.93 (W1) and 0.81 to 0.9 (W2) of it
//   other computation   6 · activations · S A / B                  norms, gates, dropout, what attention does beside products
//   sums of shards      2 P w S / B                                with one shard: nothing
//   optimizer           8 P w / B                                  gradient twice, parameters and moments read and written
//   exchange            X = 2 (R - 1) / R · P w' / bandwidth + ⌈P / K⌉ · 2 · latency + (R - 1) ⌈P / K⌉ · 2 · message
//   hidden of it        min(X', 2/3 (products + other) / (S A))    behind the last backward of the last shard; X' is X without
//                                                                  the embedding, whose gradient is final when all is over
//   control             latency + (R - 1) · message
//   ZeRO                (R - 1) / R · P w / bandwidth + latency    parameters from their owners, not hidden
//
// Of an exchange w' is 2 with wire = "bf16", of packed weights with dtype = "bf16". Bandwidth is that of a rank, in each
// direction; messages from the R - 1 others cost 5 µs each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config.h"

namespace gau {

struct PlanRequest {
  int ranks = 1;
  double bandwidth = 10e9;  ///< bits a second and direction, of a rank
  double latency = 50e-6;   ///< seconds, of a message
  double product_rate = 0;  ///< operations a second of a rank
  double memory_rate = 0;   ///< bytes a second of a rank
};

struct PlanPart {
  std::string name;
  double value = 0;  ///< bytes or seconds
};

struct Plan {
  std::int64_t parameters = 0;
  double tokens = 0;             ///< of a step, over all ranks
  std::vector<PlanPart> memory;  ///< of the rank that needs most; they add up
  std::vector<PlanPart> time;    ///< of a step; they add up
  double exchange_seconds = 0;   ///< all of it
  double hidden_seconds = 0;     ///< of it, behind backward
  double single_seconds = 0;     ///< the same step on one rank

  double memory_bytes() const;
  double step_seconds() const;
  /// Of the exchange, 0 with one rank.
  double hidden_share() const { return exchange_seconds > 0 ? hidden_seconds / exchange_seconds : 0; }
  /// Step on one rank / (ranks · step on all).
  double efficiency(int ranks) const { return single_seconds / (ranks * step_seconds()); }
};

/// Throws Error(kData) without a vocabulary size, Error(kUsage) for rates that are not positive or more ranks than sequences.
Plan make_plan(const Config& config, const PlanRequest& request);

}  // namespace gau
