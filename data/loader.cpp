// Loader and its prefetching thread.
#include "data/loader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "framework/random.h"

namespace gau {
namespace {

/// Row lists are padded to a multiple of this: each new size costs the matrix library a new kernel.
constexpr std::int64_t kRowBlock = 32;
/// The stream of Site::kPositions that chooses where second chunks begin; the positions of tokens are drawn from stream 0.
constexpr std::uint32_t kLaterText = 1;

MaskOptions mask_options(const LoaderOptions& options) { return {options.mask_prob, options.whole_word, options.seed}; }

bool use_corpus_labels(const Corpus& corpus, LabelMode mode) {
  check(mode != LabelMode::kCorpus || corpus.has_labels(), ExitCode::kData,
        "{}: has no labels of its own; mask its tokens instead", corpus.path());
  return mode == LabelMode::kCorpus || (mode == LabelMode::kAuto && corpus.has_labels());
}

std::int64_t padded_rows(std::size_t rows) {
  const auto count = static_cast<std::int64_t>(rows);
  return std::max((count + kRowBlock - 1) / kRowBlock, std::int64_t{1}) * kRowBlock;
}

}  // namespace

Loader::Loader(const Corpus& corpus, Split split, const LoaderOptions& options)
    : corpus_(corpus),
      options_(options),
      sampler_(corpus, split, options.length, options.seed, !options.fixed_masks),
      masker_(corpus.tokenizer(), mask_options(options)),
      corpus_labels_(use_corpus_labels(corpus, options.label_mode)) {
  check(windows() > 0, ExitCode::kData, "{}: the {} split has no tokens; prepare the corpus with more text or other fractions",
        corpus.path(), name_of(split));
}

std::vector<Window> Loader::stretches(std::uint64_t position) const {
  const Window window = sampler_.at(position);
  if (!options_.first_chunk) return {window};
  const auto epoch = static_cast<std::uint64_t>(window.epoch);
  const std::int64_t cut = window.begin + options_.first_chunk(epoch, position);
  if (cut >= window.end) return {window};
  const RandomKey key{options_.seed, epoch, Site::kPositions, kLaterText};
  const auto places = static_cast<std::uint64_t>(corpus_.document_length(window.document) - window.end + 1);
  const auto gap = static_cast<std::int64_t>(
      key.below(places, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), 0));
  return {{window.document, window.begin, cut, window.epoch}, {window.document, cut + gap, window.end + gap, window.epoch}};
}

/// The sequences of a batch while they are put together.
struct Loader::Sequences {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> key_mask;
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> labels;
  std::int64_t end = 0;  ///< flat position where the next token goes
};

void Loader::append(const Window& window, Sequences& out) const {
  std::vector<std::int32_t> tokens = corpus_.tokens(window.document, window.begin, window.end - window.begin);
  const auto predict = [&](std::size_t i, std::int32_t label) {
    out.rows.push_back(static_cast<std::int32_t>(out.end) + static_cast<std::int32_t>(i));
    out.labels.push_back(label);
  };
  if (corpus_labels_) {
    const auto given = corpus_.labels(window.document, window.begin, window.end - window.begin);
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i] >= 0) predict(i, given[i]);
    }
  } else {
    const std::vector<std::int32_t> original = tokens;
    for (const std::int32_t i : masker_.mask(window, tokens))
      predict(static_cast<std::size_t>(i), original[static_cast<std::size_t>(i)]);
  }
  std::copy(tokens.begin(), tokens.end(), out.ids.begin() + out.end);
  std::fill_n(out.key_mask.begin() + out.end, tokens.size(), 1);
  out.end += static_cast<std::int64_t>(tokens.size());
}

MaskedBatch Loader::batch(std::uint64_t first_position, std::int64_t count) const {
  check(count >= 1, ExitCode::kData, "a batch of {} sequences was asked for", count);
  const auto end = first_position + static_cast<std::uint64_t>(count);
  check(!options_.fixed_masks || end <= static_cast<std::uint64_t>(windows()), ExitCode::kData,
        "{}: positions {} to {} were asked for; there are {} sequences", corpus_.path(), first_position, end, windows());
  const std::int64_t length = options_.length;
  Sequences all;
  all.ids.assign(static_cast<std::size_t>(count * length), corpus_.special().pad);
  all.key_mask.assign(all.ids.size(), 0);
  MaskedBatch batch;
  batch.first_position = first_position;
  for (std::int64_t b = 0; b < count; ++b) {
    const std::vector<Window> windows = stretches(first_position + static_cast<std::uint64_t>(b));
    if (b == 0) batch.epoch = windows.front().epoch;
    all.end = b * length;
    for (const Window& window : windows) append(window, all);
    batch.tokens += all.end - b * length;
  }
  batch.masked = static_cast<std::int64_t>(all.rows.size());
  const std::int64_t padded = padded_rows(all.rows.size());
  all.rows.resize(static_cast<std::size_t>(padded), -1);
  all.labels.resize(static_cast<std::size_t>(padded), -1);
  batch.ids = Tensor::from(all.ids, {count, length});
  if (batch.tokens < count * length) batch.key_mask = Tensor::from(all.key_mask, {count, length});
  batch.rows = Tensor::from(all.rows, {padded});
  batch.labels = Tensor::from(all.labels, {padded});
  return batch;
}

Prefetcher::Prefetcher(const Loader& loader, std::function<std::optional<BatchSpan>()> sequence, std::size_t depth)
    : loader_(loader), sequence_(std::move(sequence)), depth_(std::max<std::size_t>(depth, 1)), thread_([this] { work(); }) {}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<MaskedBatch> Prefetcher::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || finished_; });
  if (ready_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return std::nullopt;
  }
  MaskedBatch batch = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return batch;
}

void Prefetcher::work() {
  std::exception_ptr error;
  try {
    while (const std::optional<BatchSpan> span = sequence_()) {
      MaskedBatch batch = loader_.batch(span->first_position, span->count);
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ready_.size() < depth_ || stopping_; });
      if (stopping_) break;
      ready_.push_back(std::move(batch));
      lock.unlock();
      changed_.notify_all();
    }
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    error_ = error;
    finished_ = true;
  }
  changed_.notify_all();
}

}  // namespace gau
