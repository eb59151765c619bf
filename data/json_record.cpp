// JSON Lines by nlohmann-json, with each way to fail told apart.
#include "data/json_record.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace gau {
namespace {

using nlohmann::json;

constexpr std::size_t kShownFields = 8;

JsonRecord bad(std::string reason, std::string message) { return {"", std::move(reason), std::move(message)}; }

std::string fields_of(const json& object) {
  std::string names;
  std::size_t shown = 0;
  for (const auto& item : object.items()) {
    if (shown++ == kShownFields) return names + ", …";
    names += (names.empty() ? "" : ", ") + item.key();
  }
  return names;
}

std::string missing_field(const json& object, const std::string& field) {
  if (object.empty()) return fmt::format("no field \"{}\" (the object is empty); mend the line", field);
  // The advice names a field that would work: the first that holds text.
  std::string advice = object.begin().key();
  for (const auto& item : object.items()) {
    if (item.value().is_string()) {
      advice = item.key();
      break;
    }
  }
  return fmt::format("no field \"{}\" (has: {}); use --field {}", field, fields_of(object), advice);
}

}  // namespace

JsonRecord parse_json_record(std::string_view line, const std::string& field) {
  const std::string_view trimmed = line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
  if (trimmed.starts_with('[')) {
    return bad("JSON array", "a JSON array, not JSON Lines (an object a line); convert it: jq -c '.[]'");
  }
  const json value = json::parse(line, nullptr, false);
  if (value.is_discarded()) {
    const char* hint =
        trimmed.starts_with('{') ? "; an object spread over lines? convert it: jq -c ." : "; use --format lines for plain text";
    return bad("not JSON", fmt::format("not JSON{}", hint));
  }
  if (!value.is_object())
    return bad("not an object", fmt::format("a JSON {}, not an object; mend the line", value.type_name()));
  const auto found = value.find(field);
  if (found == value.end()) return bad("no field", missing_field(value, field));
  if (!found->is_string()) {
    return bad(fmt::format("field is {}", found->type_name()),
               fmt::format("field \"{}\" is {}, not a string; mend the line", field, found->type_name()));
  }
  return {found->get<std::string>(), "", ""};
}

}  // namespace gau
