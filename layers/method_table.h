// The table of methods: their names, the values that each takes, and within which bounds. The grammar of a term is here too;
// what a method means is the planner's business.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/error.h"
#include "layers/method.h"

namespace gau {

/// A value that a term may carry: a number within bounds (whole where said), or one of some words.
struct ValueSpec {
  std::string name;
  bool whole = false;
  double least = 0;
  double most = 0;
  std::vector<std::string> words = {};  ///< not empty: a word, not a number
};

struct PositionSpec {
  std::string name;
  PositionKind kind;
  std::vector<ValueSpec> values;
};

struct LawSpec {
  std::string name;
  LawKind kind;
  std::vector<ValueSpec> values;
};

const std::vector<PositionSpec>& position_specs();
const std::vector<LawSpec>& law_specs();
const char* name_of(PositionKind kind);
const char* name_of(LawKind kind);

/// Where a text came from: the beginning of every message about it, and its exit code.
struct TextOrigin {
  ExitCode code = ExitCode::kUsage;
  std::string what;
};

/// name[:key=value[;key=value]…], the name with '-' for '_', lower case kept as written.
struct RawTerm {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;
};
RawTerm split_term(std::string_view text, const TextOrigin& origin);

/// The values of a term checked against its specification.
struct TermValues {
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> words;
};
TermValues read_values(const RawTerm& term, const std::vector<ValueSpec>& specs, const TextOrigin& origin);

/// The message of an unknown name: the nearest known one when there is one, and all of them.
[[noreturn]] void fail_unknown(const TextOrigin& origin, std::string_view kind, std::string_view name,
                               const std::vector<std::string>& known);

/// Warns once in a process about each message.
void warn_once(const std::string& message);

}  // namespace gau
