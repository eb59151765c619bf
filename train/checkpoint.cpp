// Writing, finding, verifying and pruning of checkpoints. Whatever fails or is killed on the way leaves names that begin with a
// dot, which the next save removes.
#include "train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "framework/atomic_file.h"
#include "framework/digest.h"
#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "framework/log.h"
#include "train/manifest.h"

namespace gau {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStepPrefix = "step-";
constexpr const char* kManifest = "manifest.json";

std::string step_name(std::int64_t step) { return fmt::format("{}{}", kStepPrefix, step); }

/// N of "step-N", or -1 for a name that is not exactly that: such directories are not ours.
std::int64_t step_of(const std::string& name) {
  const std::string digits = name.starts_with(kStepPrefix) ? name.substr(std::strlen(kStepPrefix)) : "";
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  const std::int64_t step = std::stoll(digits);
  return step_name(step) == name ? step : -1;
}

/// Elements [begin, end) of the flat buffers that part `part` of `parts` holds.
std::pair<std::int64_t, std::int64_t> part_range(std::int64_t size, std::int64_t part, std::int64_t parts) {
  const std::int64_t width = (size + parts - 1) / parts;
  return {std::min(size, part * width), std::min(size, (part + 1) * width)};
}

template <class T>
void write_moments(h5::Writer& file, const Optimizer& optimizer, std::int64_t begin, std::int64_t end) {
  const auto offset = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end - begin);
  file.write<T>("/first", optimizer.first().span<T>().subspan(offset, count), {end - begin});
  file.write<T>("/second", optimizer.second().span<T>().subspan(offset, count), {end - begin});
}

template <class T>
void read_moments(const h5::Reader& file, std::int64_t begin, std::int64_t end, Tensor first, Tensor second) {
  for (const auto& [name, moment] : {std::pair{"/first", &first}, std::pair{"/second", &second}}) {
    const std::vector<T> values = file.read<T>(name);
    check(static_cast<std::int64_t>(values.size()) == end - begin, ExitCode::kData, "{}: {} has {} elements, must have {}",
          file.path(), name, values.size(), end - begin);
    std::copy(values.begin(), values.end(), moment->template data<T>() + begin);
  }
}

void write_optimizer(const std::string& directory, const Optimizer& optimizer, std::int64_t part, std::int64_t parts) {
  const auto [begin, end] = part_range(optimizer.first().size(), part, parts);
  h5::Writer file(directory + "/" + optimizer_file_name(part));
  if (optimizer.first().dtype() == DType::kF64)
    write_moments<double>(file, optimizer, begin, end);
  else
    write_moments<float>(file, optimizer, begin, end);
  file.attribute("/", "begin", begin);
  file.attribute("/", "end", end);
  file.publish();
}

void read_optimizer(const Manifest& manifest, Optimizer& optimizer) {
  const Tensor first = Tensor::zeros({optimizer.first().size()}, optimizer.first().dtype());
  const Tensor second = Tensor::zeros({optimizer.first().size()}, optimizer.first().dtype());
  for (std::int64_t part = 0; part < manifest.parts; ++part) {
    const auto [begin, end] = part_range(first.size(), part, manifest.parts);
    const h5::Reader file(manifest.directory + "/" + optimizer_file_name(part));
    if (first.dtype() == DType::kF64)
      read_moments<double>(file, begin, end, first, second);
    else
      read_moments<float>(file, begin, end, first, second);
  }
  optimizer.restore(manifest.updates, first, second);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check(file.good(), ExitCode::kIo, "{}: cannot be read: {}", path, std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void rename_path(const std::string& from, const std::string& to) {
  check(std::rename(from.c_str(), to.c_str()) == 0, ExitCode::kIo, "{}: cannot rename {} to it: {}", to, from,
        std::strerror(errno));
}

}  // namespace

std::uint64_t state_digest(const Model& model, const Optimizer& optimizer, const TrainState& state) {
  Digest digest;
  for (const Tensor* tensor : {&model.parameters().values(), &optimizer.first(), &optimizer.second()})
    digest.update(tensor->raw(), tensor->bytes());
  const std::uint64_t numbers[] = {
      static_cast<std::uint64_t>(state.step),        state.cursor,
      std::bit_cast<std::uint64_t>(state.best_loss), static_cast<std::uint64_t>(state.best_step),
      static_cast<std::uint64_t>(state.skipped),     static_cast<std::uint64_t>(optimizer.updates())};
  digest.update(numbers, sizeof numbers);
  return digest.value();
}

Manifest verify_checkpoint(const std::string& directory) {
  const std::string path = directory + "/" + kManifest;
  std::vector<ManifestFile> files;
  Manifest manifest = parse_manifest(read_text(path), path, files);
  manifest.directory = directory;
  for (const ManifestFile& file : files) {
    const ManifestFile found = describe_file(directory, file.name);
    check(found.bytes == file.bytes, ExitCode::kData, "{}/{}: has {} bytes, must have {}", directory, file.name, found.bytes,
          file.bytes);
    check(found.digest == file.digest, ExitCode::kData, "{}/{}: digest {} differs from the manifest's {}: it was damaged",
          directory, file.name, digest_text(found.digest), digest_text(file.digest));
  }
  return manifest;
}

void load_checkpoint(const std::string& directory, Model& model, Optimizer& optimizer, TrainState& state) {
  const Manifest manifest = verify_checkpoint(directory);
  check(manifest.dtype == model.dtype(), ExitCode::kData, "{}: was trained in {}, not in {}", directory,
        name_of(manifest.dtype), name_of(model.dtype()));
  load_parameters(directory + "/model.h5", model);
  read_optimizer(manifest, optimizer);
  state = manifest.state;
  check(state_digest(model, optimizer, state) == manifest.digest, ExitCode::kData,
        "{}: the restored state differs from the saved one", directory);
}

CheckpointStore::CheckpointStore(const std::string& run, std::int64_t keep) : directory_(run + "/checkpoints"), keep_(keep) {
  std::error_code error;
  fs::create_directories(directory_, error);
  check(!error, ExitCode::kIo, "{}: cannot be made: {}", directory_, error.message());
}

std::string CheckpointStore::directory_of(std::int64_t step) const { return directory_ + "/" + step_name(step); }

std::vector<std::int64_t> CheckpointStore::steps() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const std::int64_t step = step_of(entry.path().filename().string());
    if (step >= 0 && entry.is_directory() && !entry.is_symlink()) steps.push_back(step);
  }
  check(!error, ExitCode::kIo, "{}: cannot be read: {}", directory_, error.message());
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::string> CheckpointStore::newest() const {
  const std::vector<std::int64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    try {
      verify_checkpoint(directory_of(*step));
      return directory_of(*step);
    } catch (const Error& error) {
      log::warn("checkpoint {} is rejected: {}", directory_of(*step), error.what());
    }
  }
  check(all.empty(), ExitCode::kData, "{}: none of its {} checkpoints is whole; see the warnings above", directory_,
        all.size());
  return std::nullopt;
}

std::uint64_t CheckpointStore::save(const Model& model, const Optimizer& optimizer, const TrainState& state,
                                    const Config& config, const Tokenization& text, bool best) const {
  remove_leftovers();
  const std::string temporary = fmt::format("{}/.{}.tmp", directory_, step_name(state.step));
  Manifest manifest{temporary,
                    state,
                    state_digest(model, optimizer, state),
                    optimizer.updates(),
                    model.parameters().size(),
                    config.train.shards,
                    model.dtype(),
                    config_values(config, true)};
  try {
    check(fs::create_directory(temporary), ExitCode::kIo, "{}: is there already", temporary);
    std::vector<ManifestFile> files;
    save_model(temporary + "/model.h5", model, text);
    files.push_back(describe_file(temporary, "model.h5"));
    for (std::int64_t part = 0; part < manifest.parts; ++part) {
      write_optimizer(temporary, optimizer, part, manifest.parts);
      files.push_back(describe_file(temporary, optimizer_file_name(part)));
    }
    write_file(temporary + "/" + kManifest, manifest_text(manifest, files, model));
    sync_path(temporary);
    publish(temporary, state.step);
  } catch (const fs::filesystem_error& error) {
    remove_leftovers();
    fail(ExitCode::kIo, "{}: cannot save a checkpoint: {}", temporary, error.code().message());
  } catch (...) {
    remove_leftovers();
    throw;
  }
  if (best) link("best", state.step);
  link("latest", state.step);
  prune(state.step);
  return manifest.digest;
}

/// Moves the finished directory to its name. One of the same step, which is equal or was rejected, makes room first.
void CheckpointStore::publish(const std::string& temporary, std::int64_t step) const {
  if (fs::exists(directory_of(step))) remove(step);
  rename_path(temporary, directory_of(step));
  sync_path(directory_);
}

void CheckpointStore::link(const std::string& name, std::int64_t step) const {
  const std::string temporary = fmt::format("{}/.{}.tmp", directory_, name);
  check(symlink(step_name(step).c_str(), temporary.c_str()) == 0, ExitCode::kIo, "{}: cannot be made: {}", temporary,
        std::strerror(errno));
  rename_path(temporary, directory_ + "/" + name);
  sync_path(directory_);
}

/// Keeps the newest up to `newest`, and what the links point to. Later steps, left by a run that was taken up again from an
/// earlier one, are replaced as the run comes to them.
void CheckpointStore::prune(std::int64_t newest) const {
  std::vector<std::int64_t> old = steps();
  std::erase_if(old, [&](std::int64_t step) { return step > newest; });
  const auto kept = std::min(old.size(), static_cast<std::size_t>(keep_));
  old.resize(old.size() - kept);
  for (const std::int64_t step : old) {
    std::error_code error;
    const bool linked = fs::read_symlink(directory_ + "/best", error) == step_name(step);
    if (!linked) remove(step);
  }
}

/// Renames first, so that a directory that is half removed never looks like a checkpoint.
void CheckpointStore::remove(std::int64_t step) const {
  const std::string doomed = fmt::format("{}/.{}.old", directory_, step_name(step));
  rename_path(directory_of(step), doomed);
  std::error_code error;
  fs::remove_all(doomed, error);
  check(!error, ExitCode::kIo, "{}: cannot be removed: {}", doomed, error.message());
}

/// What killed or failed writers left under our temporary names.
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
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover, error);
}

}  // namespace gau
