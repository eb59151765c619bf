// One line of a JSON Lines file.
#pragma once

#include <string>
#include <string_view>

namespace gau {

struct JsonRecord {
  std::string text;     ///< the field's string
  std::string reason;   ///< empty when all is well; else what is wrong, the same words for every line of its kind
  std::string message;  ///< what is wrong in this line, and what to do
};

JsonRecord parse_json_record(std::string_view line, const std::string& field);

}  // namespace gau
