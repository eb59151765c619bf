// The table itself, and how its entries are found and suggested.
#include "train/config_keys.h"

#include "layers/method.h"
#include "train/config_values.h"

namespace gau {
namespace {

constexpr double kSmallest = 1e-20;  // of quantities above 0 that are multiplied together later
constexpr ConfigRange kAny{};
constexpr ConfigRange kCount{0, 9e15};
constexpr ConfigRange kPositive{1, 9e15};
constexpr ConfigRange kSize{1, 1 << 30};
constexpr ConfigRange kRate{0, 1, true};
constexpr ConfigRange kAboveZero{kSmallest, 1e20};

/// Names that other programs use, for suggestions only.
constexpr std::pair<const char*, const char*> kAliases[] = {
    {"learning_rate", "optim.lr"},
    {"batch_size", "data.batch"},
    {"num_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"hidden_size", "model.hidden"},
    {"intermediate_size", "model.intermediate"},
    {"sequence_length", "data.length"},
    {"max_length", "data.length"},
    {"max_steps", "optim.steps"},
    {"warmup_steps", "optim.warmup"},
    {"warmup_ratio", "optim.warmup"},
    {"max_grad_norm", "optim.clip"},
    {"gradient_accumulation_steps", "optim.accumulate"},
    {"optimizer", "optim.name"},
    {"mlm_probability", "data.mask_prob"},
    {"cos_scale", "attention.scale"},
    {"output_dir", "train.output"},
};

#define GAU_FIELD(member) [](Config& c) -> ConfigField { return &c.member; }

std::vector<ConfigKey> make_keys() {
  return {
      {"model", "layers", GAU_FIELD(model.layers), kSize, true, "number of gated attention units"},
      {"model", "hidden", GAU_FIELD(model.hidden), kSize, true, "width H of the residual stream"},
      {"model", "intermediate", GAU_FIELD(model.intermediate), kSize, true, "width E of gate and values"},
      {"model", "key_size", GAU_FIELD(model.key_size), kSize, true, "width D of queries and keys, even"},
      {"model", "vocab_size", GAU_FIELD(model.vocab_size), {0, 1 << 30}, true, "vocabulary size; 0: that of the corpus"},
      {"model", "tied", GAU_FIELD(model.tied), kAny, true, "the output projection is the token embedding"},
      {"model", "dropout", GAU_FIELD(model.dropout), kRate, true, "dropout of embeddings, layers and head"},
      {"model", "attention_dropout", GAU_FIELD(model.attention_dropout), kRate, true, "dropout of attention weights"},
      {"model", "norm_eps", GAU_FIELD(model.norm_eps), {kSmallest, 1}, true, "added to the mean square in RMS norm"},

      {"attention", "kind", GAU_FIELD(model.attention.kind), kAny, true, "dot, cosine or keynorm"},
      {"attention", "scale", GAU_FIELD(model.attention.scale), kAboveZero, true, "s of cosine attention"},
      {"attention", "learn_scale", GAU_FIELD(model.attention.learn_scale), kAny, true, "s is learned, one a layer"},
      {"attention",
       "scale_warmup",
       GAU_FIELD(model.attention.scale_warmup),
       {0, 9e15},
       true,
       "steps (below 1: fraction of all) over which s grows from 4"},
      {"attention", "law", GAU_FIELD(model.attention.law), kAny, true,
       "temperature law, such as default, none, softmax_plus, ssmax"},
      {"attention", "position", GAU_FIELD(model.attention.position), kAny, true, "position method, such as rope, alibi"},
      {"attention", "window", GAU_FIELD(model.attention.window), kCount, true, "largest distance attended to; 0: no limit"},
      {"attention", "init_gamma", GAU_FIELD(model.attention.init_gamma), kAny, true, "default, ones, sign or normal"},
      {"attention", "mask_diagonal", GAU_FIELD(model.attention.mask_diagonal), kAny, true, "a token does not see itself"},

      {"data", "corpus", GAU_FIELD(data.corpus), kAny, false, "path of corpus.h5"},
      {"data", "length", GAU_FIELD(data.length), kSize, true, "tokens of a training sequence"},
      {"data", "batch", GAU_FIELD(data.batch), kSize, true, "sequences of a micro-step, over all ranks"},
      {"data", "mask_prob", GAU_FIELD(data.mask_prob), {1e-6, 1}, true, "share of tokens to mask"},
      {"data", "whole_word", GAU_FIELD(data.whole_word), kAny, true, "mask whole words"},
      {"data", "masking", GAU_FIELD(data.masking), kAny, true,
       "random, corpus (its own labels), auto (these where it has any)"},

      {"optim", "name", GAU_FIELD(optim.name), kAny, true, "adamw or lamb"},
      {"optim", "lr", GAU_FIELD(optim.lr), kAboveZero, true, "peak learning rate"},
      {"optim", "weight_decay", GAU_FIELD(optim.weight_decay), {0, 1e6}, true, "decoupled, on every parameter"},
      {"optim", "betas", GAU_FIELD(optim.betas), kRate, true, "decay of the first and second moment"},
      {"optim",
       "eps",
       GAU_FIELD(optim.eps),
       {kSmallest, 1},
       true,
       "added to the root of the second moment; lamb: 1e-6 unless set"},
      {"optim", "schedule", GAU_FIELD(optim.schedule), kAny, true, "linear, cosine, piecewise or constant"},
      {"optim", "points", GAU_FIELD(optim.points), kAny, true, "of piecewise: step:factor,step:factor,... in optimizer steps"},
      {"optim", "warmup", GAU_FIELD(optim.warmup), {0, 9e15}, true, "steps (below 1: fraction of all) of rising learning rate"},
      {"optim", "clip", GAU_FIELD(optim.clip), {0, 1e20}, true, "largest gradient norm; 0: no clipping"},
      {"optim", "accumulate", GAU_FIELD(optim.accumulate), kSize, true, "micro-steps of an optimizer step"},
      {"optim", "steps", GAU_FIELD(optim.steps), kPositive, true, "optimizer steps"},

      {"train", "seed", GAU_FIELD(train.seed), {0, 9e18}, true, "of weights, order, masks and dropout"},
      {"train", "dtype", GAU_FIELD(train.dtype), kAny, true, "f32, bf16 (products alone) or f64"},
      {"train", "device", GAU_FIELD(train.device), kAny, false, "cpu"},
      {"train", "threads", GAU_FIELD(train.threads), {0, 4096}, false, "threads; 0: one a core"},
      {"train", "eval_every", GAU_FIELD(train.eval_every), kPositive, true,
       "steps between validations; one more follows the last step"},
      {"train", "save_every", GAU_FIELD(train.save_every), kPositive, false,
       "steps between checkpoints, besides the best and the last"},
      {"train",
       "save_minutes",
       GAU_FIELD(train.save_minutes),
       {0, 1e6},
       false,
       "a checkpoint too when the last is that many minutes old; 0: never"},
      {"train", "keep", GAU_FIELD(train.keep), kPositive, false, "newest checkpoints to keep, besides the best"},
      {"train", "keep_best", GAU_FIELD(train.keep_best), kPositive, false,
       "checkpoints of the smallest validation loss to make and keep"},
      {"train", "log_every", GAU_FIELD(train.log_every), kPositive, false, "steps between lines of progress"},
      {"train", "log_entropy", GAU_FIELD(train.log_entropy), kAny, false,
       "log the entropy of each layer's attention at validations"},
      {"train", "output", GAU_FIELD(train.output), kAny, false, "run directory"},
      {"train", "reduce", GAU_FIELD(train.reduce), kAny, true, "order of sums over shards: tree or rank"},
      {"train", "shards", GAU_FIELD(train.shards), {1, 1024}, true, "virtual shards of a step, a power of two"},
      {"train", "bucket", GAU_FIELD(train.bucket), kSize, false, "gradient elements that ranks exchange at a time"},
      {"train", "wire", GAU_FIELD(train.wire), kAny, true, "gradients between ranks: f32 (as they are) or bf16"},
      {"train", "timeout", GAU_FIELD(train.timeout), {0, 1e6}, false, "seconds that a rank waits for another; 0: for ever"},
      {"train", "zero", GAU_FIELD(train.zero), kAny, false, "each rank holds its part of the optimizer state"},
      {"train", "sequence_parallel", GAU_FIELD(train.sequence_parallel), {1, 1024}, false, "ranks that share each sequence"},
      {"train", "sequence_exchange", GAU_FIELD(train.sequence_exchange), kAny, false,
       "keys of shared sequences: gather (the bits of one rank) or ring (less memory)"},
      {"train", "skip", GAU_FIELD(train.skip), kAny, true,
       "keys that attention leaves out: off, exact (what sums cannot notice) or a tolerance"},

      {"eval", "lengths", GAU_FIELD(eval.lengths), {2, 1 << 30}, false, "context lengths"},
      {"eval", "methods", GAU_FIELD(eval.methods), kAny, false, "methods, separated by commas"},
      {"eval", "targets", GAU_FIELD(eval.targets), kCount, false, "largest number of scored tokens; 0: all"},
  };
}

#undef GAU_FIELD

std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::string ConfigRange::str() const {
  const bool has_low = low > kAny.low, has_high = high < kAny.high;
  if (!has_low && !has_high) return "";
  if (high >= 9e15 && !below_high) return fmt::format("at least {}", low);
  return fmt::format("in [{}, {}{}", low, high, below_high ? ')' : ']');
}

std::string ConfigKey::text(const Config& config) const {
  // The accessor serves reading and writing; nothing is written here.
  return std::visit([](auto* value) { return print_value(*value); }, field(const_cast<Config&>(config)));
}

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

std::vector<std::string> config_tables() {
  std::vector<std::string> tables;
  for (const auto& key : config_keys())
    if (tables.empty() || tables.back() != key.table) tables.emplace_back(key.table);
  return tables;
}

const ConfigKey* find_config_key(const std::string& table, const std::string& name) {
  for (const auto& key : config_keys())
    if (table == key.table && name == key.name) return &key;
  return nullptr;
}

std::string unknown_key_message(const std::string& table, const std::string& name) {
  std::vector<std::string> in_table, aliases;
  const ConfigKey* elsewhere = nullptr;
  for (const auto& key : config_keys()) {
    if (table == key.table) in_table.emplace_back(key.name);
    if (name == key.name) elsewhere = &key;
  }
  if (in_table.empty()) {
    const std::string near = nearest_name(table, config_tables());
    return fmt::format("unknown table [{}]: {}", table,
                       near.empty() ? "known are " + quoted_list(config_tables()) : "did you mean [" + near + "]?");
  }
  const std::string start = fmt::format("unknown key '{}' in [{}]: ", name, table);
  if (elsewhere != nullptr) return start + fmt::format("it belongs to [{}]", elsewhere->table);
  if (const auto near = nearest_name(name, in_table); !near.empty()) return start + fmt::format("did you mean '{}'?", near);
  for (const auto& alias : kAliases) aliases.emplace_back(alias.first);
  const std::string near_alias = nearest_name(name, aliases);
  for (const auto& [alias, key] : kAliases)
    if (near_alias == alias) return start + fmt::format("did you mean '{}'?", key);
  return start + "known are " + quoted_list(in_table);
}

}  // namespace gau
