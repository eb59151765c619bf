// Text to values and back, by std::from_chars and fmt, which know no locale.
//
// The grammar is narrower than those of from_chars, strtod and TOML: what one of file, environment and shell would read
// differently from the others is refused everywhere.
#include "train/config_values.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <span>

namespace gau {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Why `text` is no number, for the mistakes people make.
std::string number_mistake(const std::string& text) {
  if (text.empty()) return "the value is empty";
  const std::string digits = text[0] == '-' || text[0] == '+' ? text.substr(1) : text;
  if (digits == "nan" || digits == "inf" || digits == "NaN" || digits == "Inf" || digits == "infinity")
    return fmt::format("{} is not a finite number", text);
  if (text.find('_') != std::string::npos) return fmt::format("{}: underscores are not taken in numbers", text);
  if (digits.size() > 1 && digits[0] == '0' && std::isalpha(static_cast<unsigned char>(digits[1])) && digits[1] != 'e' &&
      digits[1] != 'E')
    return fmt::format("{}: only decimal numbers are taken", text);
  if (text.find(',') != std::string::npos) return fmt::format("{}: a comma is no decimal point, write 1.5", text);
  if (digits[0] == '.') return fmt::format("{}: a digit must stand before the point, as in 0.5", text);
  const auto point = text.find('.');
  if (point != std::string::npos && (point + 1 == text.size() || !is_digit(text[point + 1])))
    return fmt::format("{}: a digit must follow the point, as in 5.0", text);
  if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1]))
    return fmt::format("{}: a number has no leading zero", text);
  return fmt::format("'{}' is not a number", text);
}

/// Number of digits from `at` on.
std::size_t digits_from(const std::string& text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - at;
}

/// End of the integer part "[+-] digits" without a leading zero; 0 when there is none.
std::size_t integer_part(const std::string& text) {
  const std::size_t start = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const std::size_t digits = digits_from(text, start);
  if (digits == 0 || (digits > 1 && text[start] == '0')) return 0;
  return start + digits;
}

bool is_real(const std::string& text) {
  std::size_t at = integer_part(text);
  if (at == 0) return false;
  if (at < text.size() && text[at] == '.') {
    const std::size_t digits = digits_from(text, at + 1);
    if (digits == 0) return false;
    at += 1 + digits;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    const std::size_t digits = digits_from(text, at);
    if (digits == 0) return false;
    at += digits;
  }
  return at == text.size();
}

/// from_chars takes no leading plus sign.
const char* without_plus(const std::string& text) { return text.data() + (text[0] == '+' ? 1 : 0); }

/// The elements of "a, b, c" or "[a, b, c]".
std::vector<std::string> split_list(const std::string& text) {
  std::string inner = trimmed(text);
  if (inner.size() >= 2 && inner.front() == '[' && inner.back() == ']') inner = trimmed(inner.substr(1, inner.size() - 2));
  check(!inner.empty(), ExitCode::kData, "the list is empty");
  std::vector<std::string> elements;
  std::size_t start = 0;
  while (true) {
    const auto comma = inner.find(',', start);
    elements.push_back(trimmed(inner.substr(start, comma == std::string::npos ? comma : comma - start)));
    if (comma == std::string::npos) return elements;
    start = comma + 1;
  }
}

template <class T>
std::string join(const T& values) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : ", ") + print_value(value);
  return "[" + text + "]";
}

constexpr std::array kMaskingNames{"auto", "random", "corpus"};
constexpr std::array kOptimizerNames{"adamw", "lamb"};
constexpr std::array kScheduleNames{"linear", "cosine", "piecewise", "constant"};
constexpr std::array kReduceNames{"tree", "rank"};

/// The enumerator whose name is `text`; `names` are in the order of the enumeration.
template <class E>
void parse_name(const std::string& text, std::span<const char* const> names, E& value) {
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) {
      value = static_cast<E>(i);
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(names[i]);
  }
  fail(ExitCode::kData, "'{}' is not known; known: {}", text, known);
}

template <class E, std::size_t N>
std::string name_in(E value, const std::array<const char*, N>& names) {
  return names[static_cast<std::size_t>(value)];
}

}  // namespace

void parse_value(const std::string& text, bool& value) {
  check(text == "true" || text == "false", ExitCode::kData, "'{}' is neither true nor false", text);
  value = text == "true";
}

void parse_value(const std::string& text, std::int64_t& value) {
  if (integer_part(text) != text.size() || text.empty()) {
    if (is_real(text)) fail(ExitCode::kData, "{}: a whole number is wanted, without point or exponent", text);
    fail(ExitCode::kData, "{}", number_mistake(text));
  }
  const auto result = std::from_chars(without_plus(text), text.data() + text.size(), value);
  check(result.ec == std::errc(), ExitCode::kData, "{} does not fit into 64 bits", text);
}

void parse_value(const std::string& text, double& value) {
  if (!is_real(text)) fail(ExitCode::kData, "{}", number_mistake(text));
  const auto result = std::from_chars(without_plus(text), text.data() + text.size(), value);
  check(result.ec == std::errc(), ExitCode::kData, "{} is too large or too small for a double", text);
}

void parse_value(const std::string& text, std::string& value) { value = text; }

void parse_value(const std::string& text, std::array<double, 2>& value) {
  const auto elements = split_list(text);
  check(elements.size() == 2, ExitCode::kData, "'{}' has {} values, two are wanted", text, elements.size());
  for (std::size_t i = 0; i < 2; ++i) parse_value(elements[i], value[i]);
}

void parse_value(const std::string& text, std::vector<std::int64_t>& value) {
  value.clear();
  for (const auto& element : split_list(text)) parse_value(element, value.emplace_back());
}

void parse_value(const std::string& text, SchedulePoints& value) {
  value.clear();
  for (const auto& element : split_list(text)) {
    const auto colon = element.find(':');
    check(colon != std::string::npos, ExitCode::kData, "'{}': a point is step:factor, as in 0:1,10000:0.5", element);
    auto& [step, factor] = value.emplace_back();
    parse_value(trimmed(element.substr(0, colon)), step);
    parse_value(trimmed(element.substr(colon + 1)), factor);
    check(step >= 0, ExitCode::kData, "'{}': a step is at least 0", element);
    check(factor >= 1e-12 && factor <= 1e12, ExitCode::kData, "'{}': a factor lies in [1e-12, 1e12]", element);
    check(value.size() < 2 || step > value[value.size() - 2].first, ExitCode::kData, "'{}': steps must ascend", text);
  }
}

void parse_value(const std::string& text, AttentionKind& value) { value = parse_attention_kind(text); }
void parse_value(const std::string& text, InitGamma& value) { value = parse_init_gamma(text); }
void parse_value(const std::string& text, DType& value) { value = parse_dtype(text); }
void parse_value(const std::string& text, LabelMode& value) { parse_name(text, kMaskingNames, value); }
void parse_value(const std::string& text, OptimizerKind& value) { parse_name(text, kOptimizerNames, value); }
void parse_value(const std::string& text, ScheduleKind& value) { parse_name(text, kScheduleNames, value); }
void parse_value(const std::string& text, ReduceOrder& value) { parse_name(text, kReduceNames, value); }
void parse_value(const std::string& text, SequenceExchange& value) { parse_name(text, kSequenceExchangeNames, value); }

std::string print_value(bool value) { return value ? "true" : "false"; }
std::string print_value(std::int64_t value) { return fmt::format("{}", value); }
std::string print_value(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}
std::string print_value(const std::string& value) { return value; }
std::string print_value(const std::array<double, 2>& value) { return join(value); }
std::string print_value(const std::vector<std::int64_t>& value) { return join(value); }
std::string print_value(const SchedulePoints& value) {
  std::string text;
  for (const auto& [step, factor] : value) text += fmt::format("{}{}:{}", text.empty() ? "" : ",", step, print_value(factor));
  return text;
}
std::string print_value(AttentionKind value) { return name_of(value); }
std::string print_value(InitGamma value) { return name_of(value); }
std::string print_value(DType value) { return name_of(value); }
std::string print_value(LabelMode value) { return name_in(value, kMaskingNames); }
std::string print_value(OptimizerKind value) { return name_in(value, kOptimizerNames); }
std::string print_value(ScheduleKind value) { return name_in(value, kScheduleNames); }
std::string print_value(ReduceOrder value) { return name_in(value, kReduceNames); }
std::string print_value(SequenceExchange value) { return name_in(value, kSequenceExchangeNames); }

}  // namespace gau
