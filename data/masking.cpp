// Masking: one draw of 128 bits decides whether a unit (token or word) is chosen and what becomes of it; the random token of
// each position comes from that position's own draw.
#include "data/masking.h"

#include <algorithm>

#include "framework/error.h"
#include "framework/random.h"

namespace gau {
namespace {

enum class Action { kNone, kMask, kRandom, kKeep };

std::array<std::uint32_t, 4> draw_at(const RandomKey& key, const Window& window, std::int64_t position) {
  const auto document = static_cast<std::uint64_t>(window.document);
  const auto place = static_cast<std::uint64_t>(position);
  // The high halves share a word: 65536 times 2^32 documents or positions is beyond any corpus.
  return key.draw(static_cast<std::uint32_t>(document), static_cast<std::uint32_t>(place),
                  static_cast<std::uint32_t>((document >> 32) << 16 | (place >> 32)));
}

double as_fraction(std::uint32_t bits) { return static_cast<double>(bits) * 0x1p-32; }

Action action_of(const std::array<std::uint32_t, 4>& bits, double probability) {
  if (as_fraction(bits[0]) >= probability) return Action::kNone;
  const double choice = as_fraction(bits[1]);
  if (choice < 0.8) return Action::kMask;
  return choice < 0.9 ? Action::kRandom : Action::kKeep;
}

bool joins(WordPart before, WordPart part) {
  return part == WordPart::kPiece || (part == WordPart::kLetter && before == WordPart::kLetter);
}

}  // namespace

Masker::Masker(const Tokenizer& tokenizer, const MaskOptions& options)
    : options_(options),
      special_(tokenizer.vocabulary().special()),
      vocab_size_(tokenizer.vocabulary().size()),
      word_parts_(tokenizer.word_parts()) {
  check(options.probability > 0 && options.probability <= 1, ExitCode::kData,
        "[data] mask_prob = {}: must be above 0 and at most 1; with no masked token there is nothing to learn",
        options.probability);
  const auto all = special_.all();
  special_rows_.assign(all.begin(), all.end());
  std::sort(special_rows_.begin(), special_rows_.end());
  special_rows_.erase(std::unique(special_rows_.begin(), special_rows_.end()), special_rows_.end());
}

std::int32_t Masker::random_token(std::uint32_t bits) const {
  const auto ordinary = static_cast<std::uint64_t>(vocab_size_) - special_rows_.size();
  auto id = static_cast<std::int32_t>((bits * ordinary) >> 32);
  for (const std::int32_t row : special_rows_) {
    if (row <= id) ++id;
  }
  return id;
}

std::vector<std::int32_t> Masker::mask(const Window& window, std::span<std::int32_t> ids) const {
  const RandomKey key{options_.seed, static_cast<std::uint64_t>(window.epoch), Site::kMask, 0};
  std::vector<std::int32_t> chosen;
  Action action = Action::kNone;
  WordPart before = WordPart::kAlone;
  std::size_t word_begin = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int32_t id = ids[i];
    if (special_.contains(id)) {
      // A special token ends a word: what follows begins one.
      word_begin = i + 1;
      before = WordPart::kAlone;
      continue;
    }
    const WordPart part = word_parts_[static_cast<std::size_t>(id)];
    const auto bits = draw_at(key, window, window.begin + static_cast<std::int64_t>(i));
    const bool continues = options_.whole_word && i > word_begin && joins(before, part) &&
                           static_cast<std::int64_t>(i - word_begin) < kLongestWord;
    if (!continues) {
      word_begin = i;
      action = action_of(bits, options_.probability);
    }
    // A piece does not change what it is joined to: letters go on after an accent, a sign does not begin to join letters.
    if (!continues || part != WordPart::kPiece) before = part;
    if (action == Action::kNone) continue;
    chosen.push_back(static_cast<std::int32_t>(i));
    if (action == Action::kMask) ids[i] = special_.mask;
    if (action == Action::kRandom) ids[i] = random_token(bits[2]);
  }
  return chosen;
}

}  // namespace gau
