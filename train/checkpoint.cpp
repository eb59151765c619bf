// Writing, verifying and loading of one checkpoint.
#include "train/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "framework/atomic_file.h"
#include "framework/digest.h"
#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "framework/read_file.h"
#include "train/manifest.h"

namespace gau {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kModel = "model.h5";

/// The moments of `elements`, which the snapshot has.
std::pair<Tensor, Tensor> moments_of(const Snapshot& snapshot, Range elements) {
  const std::int64_t at = elements.begin - snapshot.moments.begin;
  return {snapshot.first.segment(at, {elements.size()}), snapshot.second.segment(at, {elements.size()})};
}

std::uint64_t digest_of(const Tensor& values) { return xxh64(values.raw(), values.bytes()); }

std::uint64_t digest_of(const Snapshot& snapshot, Range elements) {
  const auto [first, second] = moments_of(snapshot, elements);
  Digest digest;
  digest.update(first.raw(), first.bytes());
  digest.update(second.raw(), second.bytes());
  return digest.value();
}

/// `pieces`: digests of the parameters, then of each part of the moments.
std::uint64_t digest_of(const std::vector<std::uint64_t>& pieces, const TrainState& state, std::int64_t updates) {
  Digest digest;
  digest.update(pieces.data(), pieces.size() * sizeof(std::uint64_t));
  const std::uint64_t numbers[] = {static_cast<std::uint64_t>(state.step),        state.cursor,
                                   std::bit_cast<std::uint64_t>(state.best_loss), static_cast<std::uint64_t>(state.best_step),
                                   static_cast<std::uint64_t>(state.skipped),     static_cast<std::uint64_t>(updates)};
  digest.update(numbers, sizeof numbers);
  return digest.value();
}

template <class T>
void write_moments(h5::Writer& file, const Snapshot& snapshot, Range elements) {
  const auto [first, second] = moments_of(snapshot, elements);
  file.write<T>("/first", first.template span<T>(), {elements.size()});
  file.write<T>("/second", second.template span<T>(), {elements.size()});
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

void write_optimizer(const std::string& directory, const Snapshot& snapshot, std::int64_t part, Range elements) {
  h5::Writer file(directory + "/" + optimizer_file_name(part));
  if (snapshot.first.dtype() == DType::kF64)
    write_moments<double>(file, snapshot, elements);
  else
    write_moments<float>(file, snapshot, elements);
  file.attribute("/", "begin", elements.begin);
  file.attribute("/", "end", elements.end);
  file.publish();
}

/// All moments of a checkpoint.
Snapshot read_optimizer(const Manifest& manifest, std::int64_t size) {
  Snapshot snapshot;
  snapshot.first = Tensor::zeros({size}, manifest.dtype);
  snapshot.second = Tensor::zeros({size}, manifest.dtype);
  snapshot.moments = {0, size};
  snapshot.updates = manifest.updates;
  for (std::int64_t part = 0; part < manifest.parts; ++part) {
    const auto [begin, end] = part_range(size, part, manifest.parts);
    const h5::Reader file(manifest.directory + "/" + optimizer_file_name(part));
    if (manifest.dtype == DType::kF64)
      read_moments<double>(file, begin, end, snapshot.first, snapshot.second);
    else
      read_moments<float>(file, begin, end, snapshot.first, snapshot.second);
  }
  return snapshot;
}

void copy_tensor(const Tensor& from, Tensor& to) {
  const bool fits = to.defined() && to.dtype() == from.dtype() && to.shape() == from.shape();
  if (!fits) to = Tensor::empty(from.shape(), from.dtype());
  std::memcpy(to.raw(), from.raw(), from.bytes());
}

Manifest read_manifest(const std::string& directory, std::vector<ManifestFile>& files) {
  const std::string path = directory + "/" + kManifest;
  Manifest manifest = parse_manifest(read_file(path, "a manifest"), path, files);
  manifest.directory = directory;
  return manifest;
}

}  // namespace

Range part_range(std::int64_t size, std::int64_t part, std::int64_t parts) {
  const std::int64_t width = (size + parts - 1) / parts;
  return {std::min(size, part * width), std::min(size, (part + 1) * width)};
}

Snapshot Snapshot::of(const Model& model, const Optimizer& optimizer, const TrainState& state) {
  const Tensor& values = model.parameters().values();
  check(optimizer.first().size() == values.size(), ExitCode::kData, "snapshot: {} of {} moments are here",
        optimizer.first().size(), values.size());
  return {values,
          optimizer.first(),
          optimizer.second(),
          {0, values.size()},
          {0, std::numeric_limits<std::int64_t>::max()},
          optimizer.updates(),
          state};
}

void Snapshot::copy_to(Snapshot& buffer) const {
  if (values.defined()) copy_tensor(values, buffer.values);
  copy_tensor(first, buffer.first);
  copy_tensor(second, buffer.second);
  buffer.moments = moments;
  buffer.parts = parts;
  buffer.updates = updates;
  buffer.state = state;
}

std::uint64_t Snapshot::digest(std::int64_t files) const {
  std::vector<std::uint64_t> pieces{digest_of(values)};
  for (std::int64_t part = 0; part < files; ++part) pieces.push_back(digest_of(*this, part_range(moments.end, part, files)));
  return digest_of(pieces, state, updates);
}

std::vector<ManifestFile> write_checkpoint_files(const std::string& directory, const RunFacts& facts,
                                                 const Snapshot& snapshot) {
  std::vector<ManifestFile> files;
  if (snapshot.values.defined()) {
    save_model(directory + "/" + kModel, facts.model, snapshot.values, facts.text);
    files.push_back(describe_file(directory, kModel));
    files.back().state = digest_of(snapshot.values);
  }
  const std::int64_t parts = facts.config.train.shards, size = facts.model.parameters().size();
  for (std::int64_t part = 0; part < parts; ++part) {
    const Range elements = part_range(size, part, parts);
    if (part < snapshot.parts.begin || part >= snapshot.parts.end) continue;
    write_optimizer(directory, snapshot, part, elements);
    files.push_back(describe_file(directory, optimizer_file_name(part)));
    files.back().state = digest_of(snapshot, elements);
  }
  return files;
}

std::uint64_t write_manifest(const std::string& directory, const RunFacts& facts, const Snapshot& snapshot,
                             const std::vector<ManifestFile>& files) {
  std::vector<std::uint64_t> pieces;
  for (const ManifestFile& file : files) pieces.push_back(file.state);
  Manifest manifest;
  manifest.state = snapshot.state;
  manifest.digest = digest_of(pieces, snapshot.state, snapshot.updates);
  manifest.corpus = facts.corpus;
  manifest.updates = snapshot.updates;
  manifest.parameters = facts.model.parameters().size();
  manifest.parts = facts.config.train.shards;
  manifest.dtype = facts.model.dtype();
  manifest.config = config_values(facts.config, true);
  check(std::ssize(files) == manifest.parts + 1, ExitCode::kIo, "{}: {} files were written, {} make a checkpoint", directory,
        files.size(), manifest.parts + 1);
  write_file(directory + "/" + kManifest, manifest_text(manifest, files, facts.model));
  sync_path(directory);
  return manifest.digest;
}

Manifest read_manifest(const std::string& directory) {
  std::vector<ManifestFile> files;
  return read_manifest(directory, files);
}

Manifest verify_checkpoint(const std::string& directory) {
  std::vector<ManifestFile> files;
  Manifest manifest = read_manifest(directory, files);
  for (const ManifestFile& file : files) {
    const ManifestFile found = describe_file(directory, file.name);
    check(found.bytes == file.bytes, ExitCode::kData, "{}/{}: has {} bytes, must have {}", directory, file.name, found.bytes,
          file.bytes);
    check(found.digest == file.digest, ExitCode::kData, "{}/{}: digest {} differs from the manifest's {}: it was damaged",
          directory, file.name, digest_text(found.digest), digest_text(file.digest));
  }
  return manifest;
}

void load_checkpoint(const Manifest& verified, Model& model, Optimizer& optimizer, TrainState& state) {
  const std::string& directory = verified.directory;
  check(verified.dtype == model.dtype(), ExitCode::kData, "{}: was trained in {}, not in {}", directory,
        name_of(verified.dtype), name_of(model.dtype()));
  load_parameters(directory + "/" + kModel, model);
  Snapshot snapshot = read_optimizer(verified, model.parameters().size());
  snapshot.values = model.parameters().values();
  snapshot.state = verified.state;
  check(snapshot.digest(verified.parts) == verified.digest, ExitCode::kData,
        "{}: the restored state differs from the saved one", directory);
  optimizer.restore(verified.updates, snapshot.first, snapshot.second);
  state = verified.state;
}

}  // namespace gau
