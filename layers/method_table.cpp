// Names, values and bounds of all methods, and the grammar of one term.
#include "layers/method_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>
#include <set>

#include "framework/log.h"

namespace gau {
namespace {

// Lengths and counts above this are typing errors, and would not fit index arithmetic.
constexpr double kMostLength = 1e9;

ValueSpec whole(const char* name, double least) { return {name, true, least, kMostLength}; }
ValueSpec real(const char* name, double least, double most = 1e9) { return {name, false, least, most}; }
ValueSpec flag(const char* name) { return {name, true, 0, 1}; }
ValueSpec word(const char* name, std::vector<std::string> words) { return {name, false, 0, 0, std::move(words)}; }

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Decimal with an optional exponent, in the C locale. from_chars knows "inf", "nan" and nothing of hexadecimal here.
double read_number(const std::string& text, const ValueSpec& spec, const TextOrigin& origin) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  check(error == std::errc() && stop == end && std::isfinite(value), origin.code, "{}: {}={} is not a decimal number",
        origin.what, spec.name, text);
  check(!spec.whole || value == std::floor(value), origin.code, "{}: {}={} must be a whole number", origin.what, spec.name,
        text);
  check(value >= spec.least && value <= spec.most, origin.code, "{}: {}={} must be between {} and {}", origin.what, spec.name,
        text, spec.least, spec.most);
  return value;
}

}  // namespace

const std::vector<PositionSpec>& position_specs() {
  static const std::vector<PositionSpec> specs = {
      {"rope", PositionKind::kRope, {}},
      {"nope", PositionKind::kNope, {}},
      {"pi", PositionKind::kPi, {real("factor", 1)}},
      {"ntk", PositionKind::kNtk, {real("factor", 1)}},
      {"yarn", PositionKind::kYarn, {whole("train", 1), real("factor", 1), real("beta_fast", 1e-6), real("beta_slow", 1e-6)}},
      {"rerope", PositionKind::kRerope, {whole("w", 1), real("clamp", 0)}},
      {"leaky-rerope", PositionKind::kLeakyRerope, {whole("w", 1), real("k", 1)}},
      {"alibi", PositionKind::kAlibi, {real("m", 0), real("left", 0), real("right", 0)}},
      {"window", PositionKind::kWindow, {whole("w", 1)}},
      {"streaming",
       PositionKind::kStreaming,
       {whole("window", 1), whole("sinks", 0), whole("rows", 0), word("positions", {"reindexed", "absolute"})}},
      {"lm-infinite", PositionKind::kLmInfinite, {whole("window", 1), whole("sinks", 0), whole("rows", 0), whole("clamp", 0)}},
      {"hwfa", PositionKind::kHwfa, {whole("w", 1)}},
      {"hwfa2", PositionKind::kHwfa2, {whole("w", 1), whole("rerope", 1)}},
      {"pose", PositionKind::kPose, {whole("target", 1)}},
      {"random", PositionKind::kRandom, {whole("target", 1)}},
  };
  return specs;
}

const std::vector<LawSpec>& law_specs() {
  static const std::vector<ValueSpec> by_length = {whole("train", 1), flag("clip"), word("count", {"visible", "valid"})};
  static const std::vector<LawSpec> specs = {
      {"none", LawKind::kNone, {}},
      {"softmax-plus", LawKind::kSoftmaxPlus, {real("base", 1.000001)}},
      {"infoscale", LawKind::kInfoScale, by_length},
      {"logn", LawKind::kLogN, by_length},
      {"ssmax", LawKind::kSsmax, {}},
      {"calibrated", LawKind::kCalibrated, {}},
      {"scale-invariant", LawKind::kScaleInvariant, {real("tau", 1e-6)}},
  };
  return specs;
}

const char* name_of(PositionKind kind) {
  for (const PositionSpec& spec : position_specs()) {
    if (spec.kind == kind) return spec.name.c_str();
  }
  return "?";
}

const char* name_of(LawKind kind) {
  for (const LawSpec& spec : law_specs()) {
    if (spec.kind == kind) return spec.name.c_str();
  }
  return "?";
}

RawTerm split_term(std::string_view text, const TextOrigin& origin) {
  RawTerm term;
  const std::size_t colon = text.find(':');
  term.name = text.substr(0, colon);
  std::replace(term.name.begin(), term.name.end(), '_', '-');
  check(!term.name.empty(), origin.code, "{}: a name is missing; entries look like rope, rerope:w=32+logn", origin.what);
  if (colon == std::string_view::npos) return term;
  std::string_view rest = text.substr(colon + 1);
  for (bool more = true; more;) {
    const std::size_t semicolon = rest.find(';');
    const std::string_view value = rest.substr(0, semicolon);
    const std::size_t equals = value.find('=');
    check(equals != std::string_view::npos && equals > 0 && equals + 1 < value.size(), origin.code,
          "{}: '{}' after '{}:' is not name=value (values are separated by ';')", origin.what, value, term.name);
    term.values.emplace_back(value.substr(0, equals), value.substr(equals + 1));
    more = semicolon != std::string_view::npos;
    if (more) rest = rest.substr(semicolon + 1);
  }
  return term;
}

TermValues read_values(const RawTerm& term, const std::vector<ValueSpec>& specs, const TextOrigin& origin) {
  TermValues values;
  std::vector<std::string> known;
  for (const ValueSpec& spec : specs) known.push_back(spec.name);
  for (const auto& [name, text] : term.values) {
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const ValueSpec& s) { return s.name == name; });
    check(!specs.empty(), origin.code, "{}: {} takes no values", origin.what, term.name);
    if (spec == specs.end()) fail_unknown(origin, "value of " + term.name, name, known);
    check(!values.numbers.contains(name) && !values.words.contains(name), origin.code, "{}: {} is given twice", origin.what,
          name);
    if (spec->words.empty()) {
      values.numbers[name] = read_number(text, *spec, origin);
    } else {
      if (std::find(spec->words.begin(), spec->words.end(), text) == spec->words.end()) {
        fail_unknown(origin, name, text, spec->words);
      }
      values.words[name] = text;
    }
  }
  return values;
}

void fail_unknown(const TextOrigin& origin, std::string_view kind, std::string_view name,
                  const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(name, known);
  const std::string hint = nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest);
  fail(origin.code, "{}: unknown {} '{}'; {}known: {}", origin.what, kind, name, hint, join(known));
}

void warn_once(const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  if (seen.insert(message).second) log::warn("{}", message);
}

}  // namespace gau
