// Every thing is read by the code that reads it in earnest: what verifies is what loads.
#include "train/verify.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "data/corpus.h"
#include "framework/digest.h"
#include "framework/hdf5_file.h"
#include "framework/read_file.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/exchange.h"
#include "train/file_kind.h"
#include "train/model_io.h"
#include "train/safetensors.h"

namespace gau {
namespace {

namespace fs = std::filesystem;

/// Runs a check; its text is what is well, its error what is not.
Finding finding(const std::string& path, const std::string& kind, const std::function<std::string()>& check_it) {
  try {
    return {path, kind, ExitCode::kDone, check_it()};
  } catch (const Error& error) {
    return {path, kind, error.code() == ExitCode::kIo ? ExitCode::kIo : ExitCode::kData, error.what()};
  } catch (const fs::filesystem_error& error) {
    return {path, kind, ExitCode::kIo, fmt::format("{}: cannot be read: {}", path, error.code().message())};
  }
}

std::string check_corpus(const std::string& path) {
  constexpr std::int64_t kPiece = 1 << 20;
  const Corpus corpus(path);
  for (std::int64_t document = 0; document < corpus.documents(); ++document) {
    const std::int64_t length = corpus.document_length(document);
    for (std::int64_t first = 0; first < length; first += kPiece) {
      const std::int64_t count = std::min(kPiece, length - first);
      corpus.tokens(document, first, count);
      if (corpus.has_labels()) corpus.labels(document, first, count);
    }
  }
  return fmt::format("{} documents, {} tokens, digest {}", corpus.documents(), corpus.tokens(), digest_text(corpus.digest()));
}

std::string seal_of(const h5::Reader& file) {
  return file.sealed() ? "digest " + digest_text(file.digest()) : "no digest: it was not written here";
}

std::string check_model(const std::string& path) {
  const h5::Reader file(path);
  const LoadedModel loaded = load_model(path);
  return fmt::format("{} parameters, {}", loaded.model.parameters().size(), seal_of(file));
}

/// Returns how many parameters the part holds moments of.
std::int64_t check_moments(const h5::Reader& file) {
  const std::int64_t count = file.int_attribute("/", "end") - file.int_attribute("/", "begin");
  for (const char* name : {"/first", "/second"}) {
    const std::vector<double> values = file.read<double>(name);
    check(static_cast<std::int64_t>(values.size()) == count, ExitCode::kData, "{}: {} has {} elements, must have {}",
          file.path(), name, values.size(), count);
    check(std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); }), ExitCode::kData,
          "{}: {} holds a value that is not finite", file.path(), name);
  }
  return count;
}

std::string check_optimizer(const std::string& path) {
  const h5::Reader file(path);
  return fmt::format("moments of {} parameters, {}", check_moments(file), seal_of(file));
}

/// What lies in a checkpoint without being part of it.
std::string strangers_in(const std::string& directory, std::int64_t parts) {
  std::string text;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    bool known = name == "manifest.json" || name == "model.h5";
    for (std::int64_t part = 0; part < parts && !known; ++part) known = name == fmt::format("optimizer-{}.h5", part);
    if (!known) text += (text.empty() ? "; not part of it: " : ", ") + name;
  }
  return text;
}

std::string check_checkpoint(const std::string& directory) {
  for (const auto& entry : fs::directory_iterator(directory))
    check(entry.is_regular_file(), ExitCode::kData, "{}: is no regular file", entry.path().string());
  const Manifest manifest = verify_checkpoint(directory);
  const std::int64_t parameters = load_model(directory + "/model.h5", manifest.dtype).model.parameters().size();
  check(parameters == manifest.parameters, ExitCode::kData, "{}: model.h5 has {} parameters, the manifest {}", directory,
        parameters, manifest.parameters);
  std::int64_t moments = 0;
  for (std::int64_t part = 0; part < manifest.parts; ++part)
    moments += check_moments(h5::Reader(fmt::format("{}/optimizer-{}.h5", directory, part)));
  check(moments == parameters, ExitCode::kData, "{}: the optimizer files hold moments of {} parameters of {}", directory,
        moments, parameters);
  return fmt::format("step {}, {} parameters, digest {}{}", manifest.state.step, parameters, digest_text(manifest.digest),
                     strangers_in(directory, manifest.parts));
}

std::string check_link(const fs::path& link) {
  check(fs::is_symlink(link), ExitCode::kData, "{}: is no symbolic link", link.string());
  const fs::path target = fs::read_symlink(link);
  check(fs::is_directory(link), ExitCode::kData, "{}: points to {}, which is not there", link.string(), target.string());
  return "points to " + target.string();
}

std::string check_config(const std::string& path) {
  check(fs::is_regular_file(path), ExitCode::kData, "{}: is no regular file", path);
  load_config(path, {}, {});
  return "readable";
}

std::string check_metrics(const std::string& path) {
  std::ifstream file = open_file(path, "metrics");
  std::int64_t count = 0;
  for (std::string line; std::getline(file, line); ++count)
    check(nlohmann::json::accept(line), ExitCode::kData, "{}:{}: is not valid JSON", path, count + 1);
  check(file.eof(), ExitCode::kIo, "{}: cannot be read: {}", path, std::strerror(errno));
  return fmt::format("{} lines", count);
}

bool is_step(const std::string& name) {
  return name.starts_with("step-") && name.size() > 5 && name.find_first_not_of("0123456789", 5) == std::string::npos;
}

Finding check_member(const fs::path& path) {
  const std::string name = path.filename().string(), text = path.string();
  if (name == "latest" || name == "best") return finding(text, "link", [&] { return check_link(path); });
  if (is_step(name)) return finding(text, "checkpoint", [&] { return check_checkpoint(text); });
  if (name.starts_with(".") && (name.ends_with(".tmp") || name.ends_with(".old")))
    return {text, "leftover", ExitCode::kDone, "left by a save that was interrupted; the next one removes it"};
  return {text, "other", ExitCode::kDone, "no part of the run"};
}

/// Steps by number, everything else by name.
bool before(const fs::path& a, const fs::path& b) {
  const std::string left = a.filename().string(), right = b.filename().string();
  const bool steps = is_step(left) && is_step(right);
  return steps && left.size() != right.size() ? left.size() < right.size() : left < right;
}

std::vector<Finding> check_run(const fs::path& run) {
  std::vector<Finding> findings;
  const std::string config = (run / "config.toml").string(), metrics = (run / "metrics.jsonl").string();
  if (fs::exists(config)) findings.push_back(finding(config, "config", [&] { return check_config(config); }));
  if (fs::exists(metrics)) findings.push_back(finding(metrics, "metrics", [&] { return check_metrics(metrics); }));
  std::vector<fs::path> members;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) members.push_back(entry.path());
  std::sort(members.begin(), members.end(), before);
  for (const fs::path& member : members) findings.push_back(check_member(member));
  if (members.empty()) findings.push_back({(run / "checkpoints").string(), "run", ExitCode::kDone, "no checkpoint yet"});
  return findings;
}

std::string check_exchange(const std::string& path) {
  const ExchangeImport read = import_model(path);
  std::string text = fmt::format("{} parameters of {}", read.loaded.model.parameters().size(), fmt::join(read.dtypes, ", "));
  for (const std::string& note : read.notes) text += "; " + note;
  return text;
}

std::string check_safetensors(const std::string& path) {
  const safetensors::Reader file(path);
  return fmt::format("{} tensors in {} bytes; the format has no digest", file.entries().size(), file.bytes());
}

std::vector<Finding> verify_kind(const std::string& path, FileKind kind) {
  const auto one = [&](const std::function<std::string()>& check_it) {
    return std::vector<Finding>{finding(path, name_of(kind), check_it)};
  };
  switch (kind) {
    case FileKind::kCorpus:
      return one([&] { return check_corpus(path); });
    case FileKind::kModel:
      return one([&] { return check_model(path); });
    case FileKind::kModelFolder:
      return one([&] { return check_model(path + "/model.h5"); });
    case FileKind::kOptimizer:
      return one([&] { return check_optimizer(path); });
    case FileKind::kHdf5:
      return one([&] { return seal_of(h5::Reader(path)); });
    case FileKind::kSafetensors:
      return one([&] { return check_safetensors(path); });
    case FileKind::kCheckpoint:
      return one([&] { return check_checkpoint(path); });
    case FileKind::kExchange:
      return one([&] { return check_exchange(path); });
    case FileKind::kRun:
      return check_run(path);
    case FileKind::kConfig:
      break;
  }
  return one([&] { return check_config(path); });
}

}  // namespace

std::vector<Finding> verify(const std::string& path) {
  try {
    return verify_kind(path, kind_of(path));
  } catch (const Error& error) {
    return {{path, "unknown", error.code(), error.what()}};
  } catch (const fs::filesystem_error& error) {
    return {{path, "unknown", ExitCode::kIo, fmt::format("{}: cannot be read: {}", path, error.code().message())}};
  }
}

}  // namespace gau
