// Names, links and removal of checkpoints. A step is a number here, never a text: step-9 is older than step-10.
#include "train/checkpoint_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "framework/atomic_file.h"
#include "framework/error.h"
#include "framework/log.h"

namespace gau {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStepPrefix = "step-";

std::string step_name(std::int64_t step) { return fmt::format("{}{}", kStepPrefix, step); }

/// N of "step-N", or -1 for a name that is not exactly that: such directories are not ours.
std::int64_t step_of(const std::string& name) {
  const std::string digits = name.starts_with(kStepPrefix) ? name.substr(std::strlen(kStepPrefix)) : "";
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  const std::int64_t step = std::stoll(digits);
  return step_name(step) == name ? step : -1;
}

void rename_path(const std::string& from, const std::string& to) {
  // errno is read after the call: the order in which arguments are evaluated is open.
  if (std::rename(from.c_str(), to.c_str()) != 0)
    fail(ExitCode::kIo, "{}: cannot rename {} to it: {}", to, from, std::strerror(errno));
}

void remove_quietly(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

/// What cannot be removed costs space, not the run.
void remove_or_warn(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log::warn("{}: cannot be removed: {}", path, error.message());
}

}  // namespace

CheckpointStore::CheckpointStore(const std::string& run, std::int64_t keep, std::int64_t keep_best)
    : directory_(run + "/checkpoints"), keep_(keep), keep_best_(keep_best) {
  std::error_code error;
  fs::create_directories(directory_, error);
  check(!error, ExitCode::kIo, "{}: cannot be made: {}", directory_, error.message());
}

std::string CheckpointStore::directory_of(std::int64_t step) const { return directory_ + "/" + step_name(step); }

std::string CheckpointStore::temporary_of(std::int64_t step) const {
  return fmt::format("{}/.{}.tmp", directory_, step_name(step));
}

std::vector<std::int64_t> CheckpointStore::steps() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const std::int64_t step = step_of(entry.path().filename().string());
    std::error_code gone;
    if (step >= 0 && entry.symlink_status(gone).type() == fs::file_type::directory) steps.push_back(step);
  }
  check(!error, ExitCode::kIo, "{}: cannot be read: {}", directory_, error.message());
  std::sort(steps.begin(), steps.end());
  return steps;
}

/// The checkpoints up to step `newest` that were validated, smallest loss first, at most `keep_best`; of equal ones the
/// earlier.
std::vector<CheckpointStore::Validated> CheckpointStore::best(std::int64_t newest) const {
  std::vector<Validated> best;
  for (const std::int64_t step : steps()) {
    if (step > newest) continue;
    try {
      const double loss = read_manifest(directory_of(step)).state.validation_loss;
      if (!std::isnan(loss)) best.push_back({loss, step});
    } catch (const Error&) {
      // A checkpoint that cannot be read is no good one; newest() says so when it matters.
    }
  }
  std::stable_sort(best.begin(), best.end(), [](const Validated& a, const Validated& b) { return a.loss < b.loss; });
  best.resize(std::min(best.size(), static_cast<std::size_t>(keep_best_)));
  return best;
}

std::vector<double> CheckpointStore::best_losses(const TrainState& state) const {
  std::vector<double> losses;
  bool seen = state.best_step < 0;
  for (const Validated& good : best(state.step)) {
    losses.push_back(good.loss);
    seen = seen || good.step == state.best_step;
  }
  if (!seen) losses.insert(losses.begin(), state.best_loss);
  losses.resize(std::min(losses.size(), static_cast<std::size_t>(keep_best_)));
  return losses;
}

std::optional<Manifest> CheckpointStore::newest() const {
  const std::vector<std::int64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    try {
      return verify_checkpoint(directory_of(*step));
    } catch (const Error& error) {
      log::warn("checkpoint {} is rejected: {}", directory_of(*step), error.what());
    }
  }
  check(all.empty(), ExitCode::kData, "{}: none of its {} checkpoints is whole; see the warnings above", directory_,
        all.size());
  return std::nullopt;
}

void CheckpointStore::prepare(std::int64_t step) const {
  const std::string temporary = temporary_of(step);
  remove_quietly(temporary);
  if (mkdir(temporary.c_str(), 0777) != 0) fail(ExitCode::kIo, "{}: cannot be made: {}", temporary, std::strerror(errno));
}

std::vector<ManifestFile> CheckpointStore::write(const RunFacts& facts, const Snapshot& snapshot) const {
  return write_checkpoint_files(temporary_of(snapshot.state.step), facts, snapshot);
}

std::uint64_t CheckpointStore::complete(const RunFacts& facts, const Snapshot& snapshot,
                                        const std::vector<ManifestFile>& files) const {
  return write_manifest(temporary_of(snapshot.state.step), facts, snapshot, files);
}

void CheckpointStore::discard(std::int64_t step) const { remove_quietly(temporary_of(step)); }

/// A checkpoint of the same step, which is equal or was rejected, makes room. It is removed after the rename, and under another
/// name, so that a directory that is half removed never looks like a checkpoint.
void CheckpointStore::publish(std::int64_t step, bool best) const {
  const std::string doomed = fmt::format("{}/.{}.old", directory_, step_name(step));
  try {
    remove_quietly(doomed);
    if (fs::exists(fs::symlink_status(directory_of(step)))) rename_path(directory_of(step), doomed);
    rename_path(temporary_of(step), directory_of(step));
    sync_path(directory_);
  } catch (const fs::filesystem_error& error) {
    fail(ExitCode::kIo, "{}: cannot be published: {}", directory_of(step), error.code().message());
  } catch (const Error&) {
    remove_quietly(temporary_of(step));
    throw;
  }
  remove_or_warn(doomed);
  if (best) link("best", step);
  link("latest", step);
  prune(step);
}

void CheckpointStore::link(const std::string& name, std::int64_t step) const {
  const std::string temporary = fmt::format("{}/.{}.tmp", directory_, name);
  unlink(temporary.c_str());
  if (symlink(step_name(step).c_str(), temporary.c_str()) != 0)
    fail(ExitCode::kIo, "{}: cannot be made: {}", temporary, std::strerror(errno));
  rename_path(temporary, directory_ + "/" + name);
  sync_path(directory_);
}

void CheckpointStore::relink(const TrainState& state) const {
  std::error_code error;
  if (fs::is_directory(directory_of(state.best_step), error)) link("best", state.best_step);
  link("latest", state.step);
}

/// Keeps the newest up to `newest`, the best, and what `best` points to. Later steps, left by a run that was taken up again
/// from an earlier one, are replaced as the run comes to them.
void CheckpointStore::prune(std::int64_t newest) const {
  std::vector<std::int64_t> old = steps();
  std::erase_if(old, [&](std::int64_t step) { return step > newest; });
  const auto kept = std::min(old.size(), static_cast<std::size_t>(keep_));
  old.resize(old.size() - kept);
  if (old.empty()) return;
  std::error_code error;
  const std::string linked = fs::read_symlink(directory_ + "/best", error).string();
  std::erase_if(old, [&](std::int64_t step) { return linked == step_name(step); });
  for (const Validated& good : best(newest)) std::erase(old, good.step);
  for (const std::int64_t step : old) {
    const std::string doomed = fmt::format("{}/.{}.old", directory_, step_name(step));
    remove_quietly(doomed);
    // The newest is published already: what is not removed now costs space alone.
    if (std::rename(directory_of(step).c_str(), doomed.c_str()) != 0)
      log::warn("{}: cannot be removed: {}", directory_of(step), std::strerror(errno));
    else
      remove_or_warn(doomed);
  }
}

void CheckpointStore::remove_leftovers() const {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    const std::string stem = entry.path().stem().string();
    const bool temporary = name.ends_with(".tmp") || name.ends_with(".old");
    if (!temporary || !name.starts_with(".")) continue;
    if (stem == ".best" || stem == ".latest" || step_of(stem.substr(1)) >= 0) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) remove_or_warn(leftover.string());
}

}  // namespace gau
