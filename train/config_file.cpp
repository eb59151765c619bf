// TOML files by toml++, which finds the structure; the spelling of numbers is read from the text itself, since the library
// takes forms (1_000, 0x10, nan) that the environment and the command line do not.
#include "train/config_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <string_view>
#include <type_traits>

namespace gau {
namespace {

const char* name_of(ValueKind kind) {
  switch (kind) {
    case ValueKind::kBoolean:
      return "true or false";
    case ValueKind::kNumber:
      return "a number";
    case ValueKind::kString:
      return "text in quotes";
    case ValueKind::kList:
      return "a list of numbers";
    case ValueKind::kUntyped:
      break;
  }
  return "a value";
}

/// The text cut into lines, and what it is called.
class Source {
 public:
  Source(const std::string& text, const std::string& name) : name_(name) {
    std::string_view rest = text;
    while (!rest.empty()) {
      const auto end = rest.find('\n');
      lines_.push_back(rest.substr(0, end));
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    }
  }

  std::string place(const toml::source_region& region) const { return fmt::format("{}:{}", name_, region.begin.line); }

  /// The number that starts at a position: toml++ counts lines and columns from 1, columns in code points.
  std::string number_at(const toml::source_position& position) const {
    const std::string_view line = lines_.at(position.line - 1);
    std::size_t at = 0;
    for (std::size_t column = 1; column < position.column; ++column) {
      ++at;
      while (at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) ++at;
    }
    const auto end = line.find_first_of(" \t\r,]}#", at);
    return std::string(line.substr(at, end == std::string_view::npos ? end : end - at));
  }

 private:
  std::string name_;
  std::vector<std::string_view> lines_;
};

Assignment scalar(const Source& source, const std::string& table, const std::string& name, const toml::node& node) {
  Assignment assignment{table, name, "", ValueKind::kString, source.place(node.source())};
  if (node.is_boolean()) {
    assignment.kind = ValueKind::kBoolean;
    assignment.text = *node.value<bool>() ? "true" : "false";
  } else if (node.is_number()) {
    assignment.kind = ValueKind::kNumber;
    assignment.text = source.number_at(node.source().begin);
  } else if (node.is_string()) {
    assignment.text = node.as_string()->get();
  } else {
    fail(ExitCode::kData, "{}: {}.{}: a date, time or table is no value of a key", assignment.place, table, name);
  }
  return assignment;
}

Assignment assignment_of(const Source& source, const std::string& table, const std::string& name, const toml::node& node) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return scalar(source, table, name, node);
  Assignment assignment{table, name, "", ValueKind::kList, source.place(node.source())};
  for (const auto& element : *list) {
    const Assignment one = scalar(source, table, name, element);
    check(one.kind == ValueKind::kNumber, ExitCode::kData, "{}: {}.{}: a list holds numbers, without quotes", one.place, table,
          name);
    assignment.text += (assignment.text.empty() ? "" : ", ") + one.text;
  }
  return assignment;
}

}  // namespace

std::vector<Assignment> toml_assignments(const std::string& text, const std::string& name) {
  const Source source(text, name);
  toml::table root;
  try {
    root = toml::parse(std::string_view(text), std::string_view(name));
  } catch (const toml::parse_error& error) {
    std::string reason(error.description());
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    fail(ExitCode::kData, "{}:{}: {}", name, error.source().begin.line, reason);
  }
  std::vector<Assignment> assignments;
  for (const auto& [table_key, node] : root) {
    const std::string table(table_key.str());
    const toml::table* keys = node.as_table();
    if (keys == nullptr)
      fail(ExitCode::kData, "{}: '{}' stands outside of a table; write it below its [table]", source.place(table_key.source()),
           table);
    const auto tables = config_tables();
    if (std::find(tables.begin(), tables.end(), table) == tables.end())
      fail(ExitCode::kData, "{}: {}", source.place(table_key.source()), unknown_key_message(table, ""));
    for (const auto& [key, value] : *keys) {
      const std::string key_name(key.str());
      if (find_config_key(table, key_name) == nullptr)
        fail(ExitCode::kData, "{}: {}", source.place(key.source()), unknown_key_message(table, key_name));
      assignments.push_back(assignment_of(source, table, key_name, value));
    }
  }
  return assignments;
}

ValueKind kind_of(const ConfigField& field) {
  return std::visit(
      [](auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>) return ValueKind::kBoolean;
        if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>) return ValueKind::kNumber;
        if constexpr (std::is_same_v<T, std::array<double, 2>> || std::is_same_v<T, std::vector<std::int64_t>>)
          return ValueKind::kList;
        return ValueKind::kString;
      },
      field);
}

void check_kind(ValueKind kind, const ConfigField& field) {
  const ValueKind wanted = kind_of(field);
  check(kind == ValueKind::kUntyped || kind == wanted, ExitCode::kData, "{} is wanted, not {}", name_of(wanted), name_of(kind));
}

}  // namespace gau
