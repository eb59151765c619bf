// nlohmann-json parses without recursion and checks UTF-8; its callback sees depth and keys on the way, so that neither a deep
// nor a doubled document is ever built.
#include "train/strict_json.h"

#include <set>
#include <vector>

#include "framework/error.h"

namespace gau {

StrictJson parse_strict_json(std::string_view text, int most_depth, const std::string& where) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, StrictJson::parse_event_t event, StrictJson& value) {
    using Event = StrictJson::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      check(depth < most_depth, ExitCode::kData, "{}: JSON deeper than {} levels", where, most_depth);
      if (event == Event::object_start) keys.emplace_back();
    } else if (event == Event::object_end) {
      keys.pop_back();
    } else if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      check(keys.back().insert(key).second, ExitCode::kData, "{}: the key {} is there twice", where, shown(key));
    }
    return true;
  };
  try {
    StrictJson json = StrictJson::parse(text.begin(), text.end(), watch);
    check(json.is_object(), ExitCode::kData, "{}: is JSON, but no object", where);
    return json;
  } catch (const StrictJson::parse_error& error) {
    fail(ExitCode::kData, "{}: is not valid JSON: at byte {}", where, error.byte);
  } catch (const StrictJson::exception& error) {
    fail(ExitCode::kData, "{}: is not valid JSON: {}", where, error.what());
  }
}

std::string shown(std::string_view name) {
  constexpr std::size_t kMost = 100;
  const std::string head(name.substr(0, kMost));
  return StrictJson(head).dump(-1, ' ', true, StrictJson::error_handler_t::replace) + (name.size() > kMost ? "…" : "");
}

}  // namespace gau
