#include "train/run_checkpoints.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <tuple>

#include "framework/error.h"
#include "framework/log.h"

namespace gau {

std::optional<Manifest> RunCheckpoints::open(bool resume) {
  if (is_first_) open_store();
  // Found and verified by the first rank.
  std::optional<Manifest> found;
  if (resume && is_first_) found = store_->newest();
  const std::string directory = ranks_.broadcast_text({MessageKind::kStart}, 0, found ? found->directory : "");
  if (!is_first_ && !directory.empty()) found = read_manifest(directory);
  if (!is_first_) open_store();
  saver_.emplace(*store_, facts_, ranks_);
  return found;
}

// The first rank makes directories, and is done with it when the others come here.
void RunCheckpoints::open_store() {
  const TrainConfig& train = facts_.config.train;
  check(is_first_ || std::filesystem::is_directory(train.output), ExitCode::kIo,
        "{}: the run directory that {} made is not here; all ranks need the same file system", train.output,
        ranks_.describe(0));
  store_.emplace(train.output, train.keep, train.keep_best);
  if (is_first_) store_->remove_leftovers();
}

void RunCheckpoints::resumed(const Manifest& checkpoint, const TrainState& state) {
  if (is_first_) store_->relink(state);
  digest_ = checkpoint.digest;
  saved_step_ = state.step;
  best_losses_ = store_->best_losses(state);
}

bool RunCheckpoints::due_by_clock() const {
  const double minutes = facts_.config.train.save_minutes;
  return is_first_ && minutes > 0 && std::chrono::duration<double>(Clock::now() - last_save_).count() >= 60 * minutes;
}

bool RunCheckpoints::enters_best(double loss) {
  if (std::isnan(loss)) return false;
  const std::int64_t most = facts_.config.train.keep_best;
  const auto place = std::upper_bound(best_losses_.begin(), best_losses_.end(), loss);
  const bool enters = place - best_losses_.begin() < most;
  best_losses_.insert(place, loss);
  best_losses_.resize(std::min(best_losses_.size(), static_cast<std::size_t>(most)));
  return enters;
}

bool RunCheckpoints::is_best(const TrainState& state) const {
  return !trainer_.has_validation() || state.best_step == state.step;
}

// What this rank writes of the state: the moments in the optimizer files of its part of the shards, the first one parameters.
Snapshot RunCheckpoints::now(const TrainState& state) {
  if (ranks_.size() == 1) return Snapshot::of(trainer_.model(), trainer_.optimizer(), state);
  const std::int64_t size = trainer_.parameters(), parts = facts_.config.train.shards;
  std::vector<Range> wanted;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const Range files = part_of(parts, rank, ranks_.size());
    wanted.push_back({part_range(size, files.begin, parts).begin, part_range(size, files.end, parts).begin});
  }
  Snapshot snapshot;
  if (is_first_) snapshot.values = trainer_.model().parameters().values();
  std::tie(snapshot.first, snapshot.second) = trainer_.moments(wanted);
  snapshot.moments = wanted[static_cast<std::size_t>(ranks_.rank())];
  snapshot.parts = part_of(parts, ranks_.rank(), ranks_.size());
  snapshot.updates = trainer_.optimizer().updates();
  snapshot.state = state;
  return snapshot;
}

void RunCheckpoints::begin(const TrainState& state, Progress& progress) {
  if (saver_->in_flight() && !waited_) {
    progress.pause();
    log::info("step {}: waiting for the save of step {}; saves are slower than they are due", state.step, saver_->step());
    waited_ = true;
  }
  publish(progress);
  saver_->begin(now(state), is_best(state));
  last_save_ = Clock::now();
}

void RunCheckpoints::publish(Progress& progress) {
  if (!saver_->in_flight()) return;
  const std::int64_t step = saver_->step();
  try {
    digest_ = saver_->publish();
    saved_step_ = step;
  } catch (const std::exception& error) {
    if (!is_first_) return;
    progress.pause();
    log::warn("the checkpoint of step {} could not be saved, the run goes on: {}", step, error.what());
  }
}

// Needs no copy, since nothing changes any more.
void RunCheckpoints::save_last(const TrainState& state) {
  if (saved_step_ == state.step) return;
  saver_->begin_without_copy(now(state), is_best(state));
  digest_ = saver_->publish();
}

}  // namespace gau
