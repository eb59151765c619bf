// Parsing of methods: entries, lists, and single terms of a configuration.
#include "layers/method.h"

#include <algorithm>
#include <cctype>

#include "layers/method_table.h"

namespace gau {
namespace {

std::optional<double> find_number(const std::map<std::string, double>& numbers, const std::string& name) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? std::nullopt : std::optional<double>(found->second);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    // The sign of an exponent, as in 1e+3, separates nothing: no name begins with a digit.
    const bool exponent = separator == '+' && i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0;
    if (i == text.size() || (text[i] == separator && !exponent)) {
      parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  return parts;
}

const PositionSpec* find_position(const std::string& name) {
  for (const PositionSpec& spec : position_specs()) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

const LawSpec* find_law(const std::string& name) {
  for (const LawSpec& spec : law_specs()) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

template <class Spec>
std::vector<std::string> names_of(const std::vector<Spec>& specs) {
  std::vector<std::string> names;
  for (const Spec& spec : specs) names.push_back(spec.name);
  return names;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names = names_of(position_specs());
  for (const std::string& name : names_of(law_specs())) names.push_back(name);
  names.push_back("cosscale");
  return names;
}

PositionTerm read_position(const RawTerm& raw, const PositionSpec& spec, const TextOrigin& origin) {
  TermValues values = read_values(raw, spec.values, origin);
  PositionTerm term{spec.kind, std::move(values.numbers), std::move(values.words)};
  check(!term.number("m") || !(term.number("left") || term.number("right")), origin.code,
        "{}: m gives both sides one slope; left and right cannot be given beside it", origin.what);
  return term;
}

LawTerm read_law(const RawTerm& raw, const LawSpec& spec, const TextOrigin& origin) {
  TermValues values = read_values(raw, spec.values, origin);
  return {spec.kind, std::move(values.numbers), std::move(values.words)};
}

double read_cosine_scale(const RawTerm& raw, const TextOrigin& origin) {
  static const std::vector<ValueSpec> specs = {{"s", false, 1e-6, 1e6}};
  const TermValues values = read_values(raw, specs, origin);
  check(values.numbers.contains("s"), origin.code, "{}: cosscale needs its scale: cosscale:s=64", origin.what);
  return values.numbers.at("s");
}

void add_term(Method& method, std::string_view text, const TextOrigin& origin) {
  const RawTerm raw = split_term(text, origin);
  if (const PositionSpec* position = find_position(raw.name)) {
    check(!method.position, origin.code, "{}: two position terms, {} and {}; give one", origin.what,
          method.position ? name_of(method.position->kind) : "", raw.name);
    method.position = read_position(raw, *position, origin);
  } else if (const LawSpec* law = find_law(raw.name)) {
    check(!method.law, origin.code, "{}: two laws, {} and {}; give one", origin.what,
          method.law ? name_of(method.law->kind) : "", raw.name);
    method.law = read_law(raw, *law, origin);
  } else if (raw.name == "cosscale") {
    check(!method.cosine_scale, origin.code, "{}: cosscale is given twice", origin.what);
    method.cosine_scale = read_cosine_scale(raw, origin);
  } else {
    fail_unknown(origin, "method", raw.name, all_names());
  }
}

bool takes_rope_methods(const ModelConfig& model) {
  switch (parse_position(model.attention.position).kind) {
    case PositionKind::kNope:
    case PositionKind::kAlibi:
    case PositionKind::kHwfa:
    case PositionKind::kHwfa2:
      return false;
    default:
      return true;
  }
}

// Candidates of "all"; those that the model cannot take are dropped by the caller.
std::vector<std::string> all_entries(const ModelConfig& model) {
  const std::string& own = model.attention.position;
  std::vector<std::string> positions = {own};
  if (takes_rope_methods(model)) {
    for (const char* name : {"rope", "pi", "ntk", "rerope", "leaky-rerope", "lm-infinite", "streaming", "window"}) {
      if (name != own) positions.push_back(name);
    }
  }
  std::vector<std::string> entries;
  for (const std::string& position : positions) {
    entries.push_back(position);
    if (model_law(model).kind != LawKind::kNone) entries.push_back(position + "+none");
    for (const char* law : {"infoscale", "logn"}) entries.push_back(position + "+" + law);
    if (!model.attention.calibration.empty()) entries.push_back(position + "+calibrated");
  }
  if (takes_rope_methods(model)) entries.push_back(model_law(model).kind == LawKind::kNone ? "yarn" : "yarn+none");
  return entries;
}

std::vector<Method> all_methods(const ModelConfig& model) {
  std::vector<Method> methods;
  for (const std::string& entry : all_entries(model)) {
    const Method method = parse_method(entry);
    try {
      resolve(method, model);
    } catch (const Error&) {
      continue;
    }
    methods.push_back(method);
  }
  return methods;
}

// Optimal string alignment: insertions, deletions, replacements and exchanges of neighbours, ignoring case.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = cost[i - 1][j - 1] + (lower(a[i - 1]) == lower(b[j - 1]) ? 0U : 1U);
      cost[i][j] = std::min({replaced, cost[i - 1][j] + 1, cost[i][j - 1] + 1});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::optional<double> PositionTerm::number(const std::string& name) const { return find_number(numbers, name); }
std::optional<double> LawTerm::number(const std::string& name) const { return find_number(numbers, name); }

Method parse_method(std::string_view entry) {
  const TextOrigin origin{ExitCode::kUsage, fmt::format("--methods '{}'", entry)};
  Method method;
  method.name = std::string(trimmed(entry));
  for (const std::string_view term : split(method.name, '+')) add_term(method, term, origin);
  check(!(method.position && method.position->kind == PositionKind::kYarn && method.law && method.law->kind != LawKind::kNone),
        origin.code, "{}: yarn brings its own temperature and cannot be joined with another law", origin.what);
  return method;
}

std::vector<Method> parse_methods(std::string_view list, const ModelConfig& model) {
  std::vector<Method> methods;
  for (const std::string_view entry : split(list, ',')) {
    if (entry == "all") {
      for (Method& method : all_methods(model)) methods.push_back(std::move(method));
      continue;
    }
    check(!entry.empty(), ExitCode::kUsage, "--methods '{}': an empty entry; entries are separated by single commas", list);
    methods.push_back(parse_method(entry));
    resolve(methods.back(), model);
  }
  return methods;
}

PositionTerm parse_position(std::string_view term) {
  const TextOrigin origin{ExitCode::kData, fmt::format("[attention] position = \"{}\"", term)};
  const RawTerm raw = split_term(term, origin);
  check(find_law(raw.name) == nullptr, origin.code, "{}: {} is a law; write it as [attention] law", origin.what, raw.name);
  const PositionSpec* spec = find_position(raw.name);
  if (spec == nullptr) fail_unknown(origin, "position", raw.name, names_of(position_specs()));
  return read_position(raw, *spec, origin);
}

LawTerm parse_law(std::string_view term) {
  if (term == "default") return {};
  const TextOrigin origin{ExitCode::kData, fmt::format("[attention] law = \"{}\"", term)};
  const RawTerm raw = split_term(term, origin);
  check(find_position(raw.name) == nullptr, origin.code, "{}: {} is a position; write it as [attention] position", origin.what,
        raw.name);
  const LawSpec* spec = find_law(raw.name);
  if (spec == nullptr) fail_unknown(origin, "law", raw.name, names_of(law_specs()));
  return read_law(raw, *spec, origin);
}

LawTerm model_law(const ModelConfig& model) {
  LawTerm law = parse_law(model.attention.law);
  if (model.attention.law != "default") return law;
  const PositionKind position = parse_position(model.attention.position).kind;
  if (position == PositionKind::kHwfa || position == PositionKind::kHwfa2) law.kind = LawKind::kLogN;
  return law;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < least && distance < std::max(name.size(), candidate.size())) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace gau
