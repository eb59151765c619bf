// Writing, verifying and loading of one checkpoint.
#include "train/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "framework/atomic_file.h"
#include "framework/digest.h"
#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "train/manifest.h"

namespace gau {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kModel = "model.h5";

/// Elements [begin, end) of the flat buffers that part `part` of `parts` holds.
std::pair<std::int64_t, std::int64_t> part_range(std::int64_t size, std::int64_t part, std::int64_t parts) {
  const std::int64_t width = (size + parts - 1) / parts;
  return {std::min(size, part * width), std::min(size, (part + 1) * width)};
}

template <class T>
void write_moments(h5::Writer& file, const Snapshot& snapshot, std::int64_t begin, std::int64_t end) {
  const auto offset = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end - begin);
  file.write<T>("/first", snapshot.first.span<T>().subspan(offset, count), {end - begin});
  file.write<T>("/second", snapshot.second.span<T>().subspan(offset, count), {end - begin});
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

void write_optimizer(const std::string& directory, const Snapshot& snapshot, std::int64_t part, std::int64_t parts) {
  const auto [begin, end] = part_range(snapshot.first.size(), part, parts);
  h5::Writer file(directory + "/" + optimizer_file_name(part));
  if (snapshot.first.dtype() == DType::kF64)
    write_moments<double>(file, snapshot, begin, end);
  else
    write_moments<float>(file, snapshot, begin, end);
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

void copy_tensor(const Tensor& from, Tensor& to) {
  const bool fits = to.defined() && to.dtype() == from.dtype() && to.shape() == from.shape();
  if (!fits) to = Tensor::empty(from.shape(), from.dtype());
  std::memcpy(to.raw(), from.raw(), from.bytes());
}

Manifest read_manifest(const std::string& directory, std::vector<ManifestFile>& files) {
  const std::string path = directory + "/" + kManifest;
  Manifest manifest = parse_manifest(read_text(path), path, files);
  manifest.directory = directory;
  return manifest;
}

}  // namespace

Snapshot Snapshot::of(const Model& model, const Optimizer& optimizer, const TrainState& state) {
  return {model.parameters().values(), optimizer.first(), optimizer.second(), optimizer.updates(), state};
}

void Snapshot::copy_to(Snapshot& buffer) const {
  copy_tensor(values, buffer.values);
  copy_tensor(first, buffer.first);
  copy_tensor(second, buffer.second);
  buffer.updates = updates;
  buffer.state = state;
}

std::uint64_t Snapshot::digest() const {
  Digest digest;
  for (const Tensor* tensor : {&values, &first, &second}) digest.update(tensor->raw(), tensor->bytes());
  const std::uint64_t numbers[] = {static_cast<std::uint64_t>(state.step),        state.cursor,
                                   std::bit_cast<std::uint64_t>(state.best_loss), static_cast<std::uint64_t>(state.best_step),
                                   static_cast<std::uint64_t>(state.skipped),     static_cast<std::uint64_t>(updates)};
  digest.update(numbers, sizeof numbers);
  return digest.value();
}

std::uint64_t write_checkpoint(const std::string& directory, const RunFacts& facts, const Snapshot& snapshot) {
  Manifest manifest;
  manifest.state = snapshot.state;
  manifest.digest = snapshot.digest();
  manifest.corpus = facts.corpus;
  manifest.updates = snapshot.updates;
  manifest.parameters = snapshot.values.size();
  manifest.parts = facts.config.train.shards;
  manifest.dtype = snapshot.values.dtype();
  manifest.config = config_values(facts.config, true);
  if (mkdir(directory.c_str(), 0777) != 0) fail(ExitCode::kIo, "{}: cannot be made: {}", directory, std::strerror(errno));
  std::vector<ManifestFile> files;
  save_model(directory + "/" + kModel, facts.model, snapshot.values, facts.text);
  files.push_back(describe_file(directory, kModel));
  for (std::int64_t part = 0; part < manifest.parts; ++part) {
    write_optimizer(directory, snapshot, part, manifest.parts);
    files.push_back(describe_file(directory, optimizer_file_name(part)));
  }
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
  read_optimizer(verified, optimizer);
  state = verified.state;
  check(Snapshot::of(model, optimizer, state).digest() == verified.digest, ExitCode::kData,
        "{}: the restored state differs from the saved one", directory);
}

}  // namespace gau
