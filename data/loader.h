// Loader: batches of a split as pure functions of a position; Prefetcher: the next ones made in a thread of their own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/batch.h"
#include "data/corpus.h"
#include "data/masking.h"
#include "data/sampler.h"

namespace gau {

enum class LabelMode {
  kAuto,     ///< the corpus's own labels where it has them, else masking
  kMasking,  ///< tokens are chosen and masked
  kCorpus,   ///< the corpus's own labels; its tokens hold the masks already
};

struct LoaderOptions {
  std::int64_t length = 64;
  double mask_prob = 0.15;
  bool whole_word = false;
  std::uint64_t seed = 0;
  bool fixed_masks = false;  ///< validation: order of the documents, φ = 0, the same masks at every call
  LabelMode label_mode = LabelMode::kAuto;
  /// When set: a sequence is two chunks of its document (PoSE), this many tokens (at least 1) of its window and the rest from a
  /// random later place, uniform among those where the document goes on for long enough. Called with the epoch and the position
  /// of the sequence, from the prefetching thread too; must be pure.
  std::function<std::int64_t(std::uint64_t epoch, std::uint64_t position)> first_chunk = {};
};

class Loader {
 public:
  /// `corpus` must outlive the loader. Throws Error(kData) for a split without tokens, a length below 1, a mask_prob outside
  /// (0, 1].
  Loader(const Corpus& corpus, Split split, const LoaderOptions& options);

  /// Sequences of an epoch.
  std::int64_t windows() const { return sampler_.windows(); }
  const LoaderOptions& options() const { return options_; }
  /// Sequences at positions first_position, …, first_position + count - 1, shorter ones padded. With fixed_masks, positions end
  /// at windows(). Pure and thread-safe.
  MaskedBatch batch(std::uint64_t first_position, std::int64_t count) const;

  /// The stretches of a document that make the sequence at a position: its window, or two chunks of no more tokens together.
  std::vector<Window> stretches(std::uint64_t position) const;

 private:
  struct Sequences;
  void append(const Window& window, Sequences& out) const;

  const Corpus& corpus_;
  LoaderOptions options_;
  Sampler sampler_;
  Masker masker_;
  bool corpus_labels_;
};

/// A stretch of positions, one batch.
struct BatchSpan {
  std::uint64_t first_position = 0;
  std::int64_t count = 0;
};

/// Makes the batches of a sequence of spans ahead of time, in order, in one thread (without OpenMP). An error while making a
/// batch is thrown by the next() that would have returned it.
class Prefetcher {
 public:
  /// `sequence` is called from the thread, once for each batch; nullopt ends it. `loader` must outlive the prefetcher.
  Prefetcher(const Loader& loader, std::function<std::optional<BatchSpan>()> sequence, std::size_t depth = 2);
  /// Stops the thread; batches not taken are dropped.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next batch; nullopt after the last.
  std::optional<MaskedBatch> next();

 private:
  void work();

  const Loader& loader_;
  std::function<std::optional<BatchSpan>()> sequence_;
  std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<MaskedBatch> ready_;
  std::exception_ptr error_;
  bool finished_ = false;
  bool stopping_ = false;
  std::thread thread_;  ///< last, so that all it uses is there when it starts
};

}  // namespace gau
