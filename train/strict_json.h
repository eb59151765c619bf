// JSON of files that others may have damaged or made up.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gau {

using StrictJson = nlohmann::ordered_json;

/// Parses an object. Throws Error(kData) naming `where` for text that is no JSON object, not UTF-8, deeper than `most_depth`
/// levels, or that has a key twice in one object (readers differ in which of them counts).
StrictJson parse_strict_json(std::string_view text, int most_depth, const std::string& where);

/// A name out of such a file, fit for a line of text: in quotes, escaped, cut when it is long.
std::string shown(std::string_view name);

}  // namespace gau
