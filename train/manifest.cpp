// JSON by nlohmann-json, in the order of writing, so that equal states give equal bytes. The seal is a digest of the compact
// form of everything else in it.
#include "train/manifest.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "framework/digest.h"
#include "framework/error.h"
#include "framework/read_file.h"

namespace gau {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFormat = 3;
constexpr const char* kSeal = "manifest_digest";

std::uint64_t parse_digest(const std::string& text) {
  std::uint64_t digest = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), digest, 16);
  check(text.size() == 16 && result.ec == std::errc() && result.ptr == text.data() + text.size(), ExitCode::kData,
        "'{}' is no digest", text);
  return digest;
}

std::string seal_of(const Json& json) {
  const std::string text = json.dump();
  return digest_text(xxh64(text.data(), text.size()));
}

Json loss_json(double loss) { return std::isfinite(loss) ? Json(loss) : Json(nullptr); }

Json state_json(const TrainState& state) {
  Json json;
  json["step"] = state.step;
  json["cursor"] = state.cursor;
  json["best_loss"] = loss_json(state.best_loss);
  json["best_step"] = state.best_step;
  json["skipped"] = state.skipped;
  json["validation_loss"] = loss_json(state.validation_loss);
  return json;
}

TrainState state_of(const Json& json) {
  TrainState state;
  json.at("step").get_to(state.step);
  json.at("cursor").get_to(state.cursor);
  if (!json.at("best_loss").is_null()) json.at("best_loss").get_to(state.best_loss);
  json.at("best_step").get_to(state.best_step);
  json.at("skipped").get_to(state.skipped);
  if (!json.at("validation_loss").is_null()) json.at("validation_loss").get_to(state.validation_loss);
  return state;
}

Json tensors_json(const FlatParameters& parameters) {
  Json tensors = Json::array();
  for (const Parameter& parameter : parameters.list()) {
    Json shape = Json::array();
    for (int axis = 0; axis < parameter.shape.rank(); ++axis) shape.push_back(parameter.shape[axis]);
    tensors.push_back({{"name", parameter.name}, {"shape", shape}, {"offset", parameter.offset}});
  }
  return tensors;
}

Manifest manifest_of(const Json& json, std::vector<ManifestFile>& files) {
  check(json.at("format") == kFormat, ExitCode::kData, "format {} of checkpoints, known is {}; use the program that wrote it",
        json.at("format").dump(), kFormat);
  Manifest manifest;
  manifest.state = state_of(json.at("state"));
  manifest.digest = parse_digest(json.at("digest"));
  manifest.corpus = parse_digest(json.at("corpus"));
  json.at("updates").get_to(manifest.updates);
  json.at("parameters").get_to(manifest.parameters);
  json.at("parts").get_to(manifest.parts);
  manifest.dtype = parse_dtype(json.at("dtype"));
  json.at("config").get_to(manifest.config);
  for (const Json& file : json.at("files"))
    files.push_back({file.at("name"), file.at("bytes"), parse_digest(file.at("digest")), 0});
  return manifest;
}

}  // namespace

std::string manifest_text(const Manifest& manifest, const std::vector<ManifestFile>& files, const Model& model) {
  Json json;
  json["format"] = kFormat;
  json["state"] = state_json(manifest.state);
  json["digest"] = digest_text(manifest.digest);
  json["corpus"] = digest_text(manifest.corpus);
  json["updates"] = manifest.updates;
  json["parameters"] = manifest.parameters;
  json["parts"] = manifest.parts;
  json["dtype"] = name_of(manifest.dtype);
  json["L_train"] = model.config().attention.train_length;
  json["method"] = fmt::format("{}+{}", model.config().attention.position, model.config().attention.law);
  json["files"] = Json::array();
  for (const ManifestFile& file : files)
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"digest", digest_text(file.digest)}});
  json["tensors"] = tensors_json(model.parameters());
  json["config"] = manifest.config;
  json[kSeal] = seal_of(json);
  return json.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path, std::vector<ManifestFile>& files) {
  try {
    Json json = Json::parse(text);
    const std::string seal = json.at(kSeal);
    json.erase(kSeal);
    check(seal == seal_of(json), ExitCode::kData, "its digest differs from its contents: it was damaged or edited");
    return manifest_of(json, files);
  } catch (const Error& error) {
    fail(ExitCode::kData, "{}: {}", path, error.what());
  } catch (const Json::exception& error) {
    fail(ExitCode::kData, "{}: is no manifest of a checkpoint: {}", path, error.what());
  }
}

std::string optimizer_file_name(std::int64_t part) { return fmt::format("optimizer-{}.h5", part); }

ManifestFile describe_file(const std::string& directory, const std::string& name) {
  const std::string path = directory + "/" + name;
  std::ifstream file = open_file(path, "a file of a checkpoint");
  ManifestFile described;
  described.name = name;
  Digest digest;
  std::vector<char> buffer(1 << 20);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    const auto count = static_cast<std::size_t>(file.gcount());
    digest.update(buffer.data(), count);
    described.bytes += count;
  }
  check(file.eof(), ExitCode::kIo, "{}: cannot be read: {}", path, std::strerror(errno));
  described.digest = digest.value();
  return described;
}

}  // namespace gau
