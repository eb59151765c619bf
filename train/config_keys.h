// The table of configuration keys: the one place that says what a key is called, where it lives, what it may be and what it
// means.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "train/config.h"

namespace gau {

/// Where a key's value lives in a Config; its type chooses the parser.
using ConfigField = std::variant<bool*, std::int64_t*, double*, std::string*, std::array<double, 2>*,
                                 std::vector<std::int64_t>*, SchedulePoints*, AttentionKind*, InitGamma*, DType*, LabelMode*,
                                 OptimizerKind*, ScheduleKind*, ReduceOrder*, SequenceExchange*>;

/// The interval a number, or each element of a list of numbers, must lie in.
struct ConfigRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool below_high = false;  ///< high itself is not allowed

  bool contains(double value) const { return value >= low && (below_high ? value < high : value <= high); }
  /// "at least 1", "in [0, 1)", or "" when every number passes.
  std::string str() const;
};

struct ConfigKey {
  const char* table;
  const char* name;
  ConfigField (*field)(Config&);
  ConfigRange range;
  bool portable;  ///< decides the result of a run (kept in checkpoints); false: paths, threads, intervals of reports
  const char* help;

  std::string full_name() const { return std::string(table) + "." + name; }
  std::string text(const Config& config) const;  ///< print_value of the field
};

const std::vector<ConfigKey>& config_keys();
std::vector<std::string> config_tables();

/// The key, or nullptr.
const ConfigKey* find_config_key(const std::string& table, const std::string& name);

/// "unknown key 'lrr' in [optim]: did you mean 'lr'?" for a table and key that find_config_key does not know.
std::string unknown_key_message(const std::string& table, const std::string& name);

}  // namespace gau
