// Vocabulary: rows, look-up by text, specials by name.
#include "data/vocabulary.h"

#include <sstream>
#include <utility>

#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "framework/log.h"
#include "framework/read_file.h"

namespace gau {
namespace {

constexpr std::int64_t kWarnedDuplicates = 10;

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream in(read_file(path, "a vocabulary"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

bool looks_like_hdf5(const std::string& path) {
  std::ifstream in = open_file(path, "a vocabulary");
  return in.get() == 0x89;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens, const SpecialNames& names, const std::string& where)
    : tokens_(std::move(tokens)) {
  std::int64_t duplicates = 0;
  for (std::size_t row = 0; row < tokens_.size(); ++row) {
    const auto [known, is_new] = ids_.emplace(tokens_[row], static_cast<std::int32_t>(row));
    if (is_new || ++duplicates > kWarnedDuplicates) continue;
    log::warn("{}: token \"{}\" is on rows {} and {} (lines {} and {}); the first is used", where, tokens_[row], known->second,
              row, known->second + 1, row + 1);
  }
  if (duplicates > kWarnedDuplicates) log::warn("{}: {} rows repeat a token of an earlier row", where, duplicates);

  std::string missing;
  const auto require = [&](const std::string& name) {
    const std::int32_t id = find(name);
    if (id < 0) missing += (missing.empty() ? "" : ", ") + name;
    return id;
  };
  special_.pad = require(names.pad);
  special_.unk = require(names.unk);
  special_.cls = require(names.cls);
  special_.sep = require(names.sep);
  special_.mask = require(names.mask);
  check(missing.empty(), ExitCode::kData,
        "{}: the vocabulary of {} rows has no {}; add a row for each, or say which tokens stand for them (--mask-token and its "
        "like)",
        where, size(), missing);
}

Vocabulary Vocabulary::made(const std::vector<std::string>& tokens, const SpecialNames& names) {
  std::vector<std::string> rows = {names.pad, names.unk, names.cls, names.sep, names.mask};
  rows.insert(rows.end(), tokens.begin(), tokens.end());
  return Vocabulary(std::move(rows), names, "vocabulary");
}

Vocabulary Vocabulary::from_file(const std::string& path, const SpecialNames& names) {
  if (looks_like_hdf5(path)) return Vocabulary(h5::Reader(path).read_strings("/vocab"), names, path);
  return Vocabulary(lines_of(path), names, path);
}

std::int32_t Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? -1 : found->second;
}

std::array<std::string, 5> Vocabulary::special_texts() const {
  std::array<std::string, 5> texts;
  const auto ids = special_.all();
  for (std::size_t i = 0; i < texts.size(); ++i) texts[i] = token(ids[i]);
  return texts;
}

}  // namespace gau
