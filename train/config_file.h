// TOML text as a list of assignments, with the place of each.
#pragma once

#include <string>
#include <vector>

#include "train/config_keys.h"

namespace gau {

/// What a value was written as. Environment and command line write plain text, which any key may parse.
enum class ValueKind { kUntyped, kBoolean, kNumber, kString, kList };

struct Assignment {
  std::string table;
  std::string name;
  std::string text;
  ValueKind kind = ValueKind::kUntyped;
  std::string place;  ///< "config.toml:12"
};

/// Every key of the text, in order of table and key. Numbers keep the spelling of the file. Throws Error(kData) with
/// "name:line:" for what is no TOML (a key given twice included), keys outside of tables, and values that no key takes.
std::vector<Assignment> toml_assignments(const std::string& text, const std::string& name);

/// What a field is written as in TOML.
ValueKind kind_of(const ConfigField& field);

/// Throws Error(kData) unless a value written as `kind` suits the field: 1e-4 in quotes is text, not a number.
void check_kind(ValueKind kind, const ConfigField& field);

}  // namespace gau
