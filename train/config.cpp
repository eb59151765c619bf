// Reading and writing of configurations.
//
// File, environment and --set become one kind of list, assignments of texts, applied in that order. Numbers in the file are
// taken as they are written there, not as the TOML library reads them, so that one grammar holds everywhere.
#include "train/config.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "framework/log.h"
#include "framework/read_file.h"
#include "layers/method.h"
#include "train/config_file.h"
#include "train/config_keys.h"
#include "train/config_values.h"
#include "train/schedule.h"
#include "train/skip_option.h"

namespace gau {
namespace {

constexpr const char* kPrefix = "GAU_";
constexpr double kLargestSize = 1 << 30;  // limits from here on only guard against overflow and are left out of the help

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

std::string variable_of(const ConfigKey& key) { return kPrefix + upper(std::string(key.table) + "_" + key.name); }

/// A variable that starts like a table's, or is near a key's name, is taken for a misspelt key; others are not ours to judge.
void warn_of_unknown_variable(const std::string& variable) {
  std::vector<std::string> known;
  for (const auto& key : config_keys()) known.push_back(variable_of(key));
  const std::string near = nearest_name(variable, known);
  bool ours = !near.empty();
  for (const auto& table : config_tables()) ours = ours || variable.starts_with(kPrefix + upper(table) + "_");
  if (!ours) return;
  log::warn("{} in the environment is no key of the configuration and has no effect{}", variable,
            near.empty() ? "" : ": did you mean " + near + "?");
}

std::vector<Assignment> environment_assignments(const Environment& environment) {
  std::vector<Assignment> assignments;
  for (const auto& [variable, value] : environment) {
    const auto key = std::find_if(config_keys().begin(), config_keys().end(),
                                  [&](const ConfigKey& candidate) { return variable_of(candidate) == variable; });
    if (key == config_keys().end())
      warn_of_unknown_variable(variable);
    else
      assignments.push_back({key->table, key->name, value, ValueKind::kUntyped, "environment " + variable});
  }
  return assignments;
}

std::vector<Assignment> setting_assignments(const std::vector<std::string>& settings) {
  std::vector<Assignment> assignments;
  for (const auto& setting : settings) {
    const auto equals = setting.find('=');
    const auto dot = setting.find('.');
    check(equals != std::string::npos && dot < equals, ExitCode::kUsage, "--set {}: write table.key=value, as in optim.lr=1e-3",
          setting);
    assignments.push_back({setting.substr(0, dot), setting.substr(dot + 1, equals - dot - 1), setting.substr(equals + 1),
                           ValueKind::kUntyped, "--set"});
  }
  return assignments;
}

void check_range(const ConfigRange& range, double value, const std::string& text) {
  check(range.contains(value), ExitCode::kData, "{} is out of range, must be {}", text, range.str());
}

void check_value(const ConfigRange& range, const ConfigField& field) {
  if (const auto* integer = std::get_if<std::int64_t*>(&field))
    check_range(range, static_cast<double>(**integer), print_value(**integer));
  if (const auto* real = std::get_if<double*>(&field)) check_range(range, **real, print_value(**real));
  if (const auto* pair = std::get_if<std::array<double, 2>*>(&field))
    for (const double value : **pair) check_range(range, value, print_value(value));
  if (const auto* list = std::get_if<std::vector<std::int64_t>*>(&field))
    for (const std::int64_t value : **list) check_range(range, static_cast<double>(value), print_value(value));
}

/// Runs of before sequences could be shared say `sequence_parallel = false`: the default.
bool is_former_default(const Assignment& assignment) {
  return assignment.table == "train" && assignment.name == "sequence_parallel" && assignment.kind == ValueKind::kBoolean &&
         assignment.text == "false";
}

/// Applies assignments in order; `given` collects the names of all keys that were set.
void apply(Config& config, const std::vector<Assignment>& assignments, ExitCode code, std::set<std::string>& given) {
  for (const auto& assignment : assignments) {
    const ConfigKey* key = find_config_key(assignment.table, assignment.name);
    if (key == nullptr) fail(code, "{}: {}", assignment.place, unknown_key_message(assignment.table, assignment.name));
    if (is_former_default(assignment)) continue;
    try {
      const ConfigField field = key->field(config);
      check_kind(assignment.kind, field);
      std::visit([&](auto* value) { parse_value(assignment.text, *value); }, field);
      check_value(key->range, field);
    } catch (const Error& error) {
      fail(code, "{}: {}: {}", assignment.place, key->full_name(), error.what());
    }
    given.insert(key->full_name());
  }
}

/// Values that follow from others.
void complete(Config& config, const std::set<std::string>& given) {
  config.model.attention.train_length = config.data.length;
  if (config.optim.name == OptimizerKind::kLamb && !given.contains("optim.eps")) config.optim.eps = 1e-6;
}

bool is_valid(const Config& config) {
  try {
    config.validate();
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + "\"";
}

}  // namespace

std::int64_t OptimConfig::warmup_steps() const { return warmup_in_steps(warmup, steps); }

void Config::validate() const {
  ModelConfig sized = model;
  if (sized.vocab_size == 0) sized.vocab_size = 16;
  sized.validate();
  parse_law(model.attention.law);
  parse_position(model.attention.position);
  try {
    parse_methods(eval.methods, sized);
  } catch (const Error& error) {
    fail(ExitCode::kData, "[eval] methods: {}", error.what());
  }
  check(optim.warmup < static_cast<double>(optim.steps), ExitCode::kData,
        "[optim] warmup = {} leaves nothing of steps = {}: warmup must be smaller", optim.warmup, optim.steps);
  check(optim.warmup < 1 || optim.warmup == std::floor(optim.warmup), ExitCode::kData,
        "[optim] warmup = {}: from 1 on it counts steps and must be whole", optim.warmup);
  check(model.attention.scale_warmup == 0 || !model.attention.learn_scale, ExitCode::kData,
        "[attention] scale_warmup = {} and learn_scale = true exclude each other", model.attention.scale_warmup);
  check(std::has_single_bit(static_cast<std::uint64_t>(train.shards)), ExitCode::kData,
        "[train] shards = {} must be a power of two", train.shards);
  check(
      train.wire == DType::kF32 || (train.wire == DType::kBF16 && train.dtype != DType::kF64), ExitCode::kData,
      "[train] wire = \"{}\" does not suit dtype = \"{}\": f32 sends gradients as they are, bf16 rounds those of f32 and bf16",
      name_of(train.wire), name_of(train.dtype));
  check(parse_skip(train.skip).known, ExitCode::kData,
        "[train] skip = \"{}\": say \"off\", \"exact\", or a tolerance between 0 and 1 in quotes", train.skip);
  check(train.device == "cpu", ExitCode::kData, "[train] device = \"{}\" is not in this build; known: cpu", train.device);
}

Environment gau_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (text.starts_with(kPrefix) && equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

Config parse_config(const std::string& text, const std::string& name, const std::vector<std::string>& settings,
                    const Environment& environment) {
  Config config;
  std::set<std::string> given;
  apply(config, toml_assignments(text, name), ExitCode::kData, given);
  Config of_file = config;
  complete(of_file, given);
  apply(config, environment_assignments(environment), ExitCode::kUsage, given);
  apply(config, setting_assignments(settings), ExitCode::kUsage, given);
  complete(config, given);
  try {
    config.validate();
  } catch (const Error& error) {
    // A file that is right by itself was made wrong by the environment or the command line.
    if (is_valid(of_file)) fail(ExitCode::kUsage, "--set or environment: {}", error.what());
    fail(ExitCode::kData, "{}: {}", name, error.what());
  }
  return config;
}

Config load_config(const std::string& path, const std::vector<std::string>& settings, const Environment& environment) {
  if (path.empty()) return parse_config("", "defaults", settings, environment);
  const std::string text = read_file(path, "a configuration", kMostTextBytes, FileSource::kFileOrStream);
  return parse_config(text, path, settings, environment);
}

std::string to_toml(const Config& config) {
  std::string text, table;
  for (const auto& key : config_keys()) {
    if (table != key.table) {
      text += fmt::format("{}[{}]\n", table.empty() ? "" : "\n", key.table);
      table = key.table;
    }
    const ConfigField field = key.field(const_cast<Config&>(config));
    const std::string value = key.text(config);
    text += fmt::format("{} = {}\n", key.name, kind_of(field) == ValueKind::kString ? quoted(value) : value);
  }
  return text;
}

std::map<std::string, std::string> config_values(const Config& config, bool portable) {
  std::map<std::string, std::string> values;
  for (const auto& key : config_keys())
    if (key.portable || !portable) values[key.full_name()] = key.text(config);
  return values;
}

std::vector<std::string> config_differences(const std::map<std::string, std::string>& before, const Config& now) {
  std::vector<std::string> differences;
  const auto values = config_values(now, false);
  for (const auto& [name, old] : before) {
    const auto found = values.find(name);
    if (found == values.end())
      differences.push_back(fmt::format("{}: {} -> no longer known", name, old));
    else if (found->second != old)
      differences.push_back(fmt::format("{}: {} -> {}", name, old, found->second));
  }
  return differences;
}

std::string config_help() {
  const Config defaults;
  std::string text =
      "Keys of CONFIG.toml (defaults < file < environment GAU_TABLE_KEY < --set table.key=value).\n"
      "Numbers are decimal, with point or exponent: 2, 0.5, 1e-4.\n";
  std::string table;
  for (const auto& key : config_keys()) {
    if (table != key.table) text += fmt::format("\n[{}]\n", table = key.table);
    const std::string range = key.range.high >= kLargestSize ? "" : key.range.str();
    text +=
        fmt::format("  {:<18} {:<18} {}{}\n", key.name, key.text(defaults), key.help, range.empty() ? "" : " (" + range + ")");
  }
  return text;
}

}  // namespace gau
