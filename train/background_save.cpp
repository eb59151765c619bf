// What ranks tell each other about a save is JSON: the files that each has written, or why it could not; then the digest, or
// why not. No text from outside is in it but that of errors.
#include "train/background_save.h"

#include <cassert>
#include <chrono>
#include <nlohmann/json.hpp>

namespace gau {
namespace {

using Json = nlohmann::json;

Json error_json(const std::exception& error) { return {{"error", error.what()}}; }

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json file_json(const ManifestFile& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"digest", file.digest}, {"state", file.state}};
}

}  // namespace

void BackgroundSave::begin(const Snapshot& now, bool best) {
  assert(!in_flight());
  now.copy_to(copy_);
  start(best);
}

void BackgroundSave::begin_without_copy(const Snapshot& now, bool best) {
  assert(!in_flight());
  copy_ = now;
  start(best);
}

void BackgroundSave::start(bool best) {
  best_ = best;
  std::string error;
  if (ranks_.rank() == 0) {
    try {
      store_.prepare(copy_.state.step);
    } catch (const std::exception& failure) {
      error = failure.what();
    }
  }
  error = ranks_.broadcast_text({MessageKind::kSave, copy_.state.step}, 0, error);
  writing_ = std::async(std::launch::async, [this, error] {
    check(error.empty(), ExitCode::kIo, "{}", error);
    return store_.write(facts_, copy_);
  });
}

bool BackgroundSave::done() const {
  return in_flight() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::string BackgroundSave::written() {
  try {
    Json files = Json::array();
    for (const ManifestFile& file : writing_.get()) files.push_back(file_json(file));
    return text_of(files);
  } catch (const std::exception& error) {
    return text_of(error_json(error));
  }
}

std::uint64_t BackgroundSave::publish_files(const std::vector<std::string>& written) const {
  std::vector<ManifestFile> files;
  for (std::size_t rank = 0; rank < written.size(); ++rank) {
    const Json json = Json::parse(written[rank]);
    if (json.is_object()) {
      const std::string who = ranks_.size() > 1 ? ranks_.describe(static_cast<int>(rank)) + ": " : "";
      fail(ExitCode::kIo, "{}{}", who, json.at("error").get<std::string>());
    }
    for (const Json& file : json) files.push_back({file.at("name"), file.at("bytes"), file.at("digest"), file.at("state")});
  }
  const std::uint64_t digest = store_.complete(facts_, copy_, files);
  store_.publish(copy_.state.step, best_);
  return digest;
}

std::uint64_t BackgroundSave::publish() {
  assert(in_flight());
  const MessageLabel label{MessageKind::kSave, copy_.state.step};
  const std::vector<std::string> all = ranks_.all_gather_text(label, written());
  Json verdict;
  if (ranks_.rank() == 0) {
    try {
      verdict["digest"] = publish_files(all);
    } catch (const std::exception& error) {
      store_.discard(copy_.state.step);
      verdict = error_json(error);
    }
  }
  verdict = Json::parse(ranks_.broadcast_text(label, 0, text_of(verdict)));
  if (verdict.contains("error")) fail(ExitCode::kIo, "{}", verdict["error"].get<std::string>());
  return verdict.at("digest").get<std::uint64_t>();
}

}  // namespace gau
