#include "train/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "framework/error.h"
#include "train/bucket_plan.h"
#include "train/precision.h"
#include "train/step_operations.h"

namespace gau {
namespace {

constexpr double kProgramBytes = 36.0 * (1 << 20);
constexpr double kMpiBytes = 8.0 * (1 << 20);
constexpr double kMessageSeconds = 5e-6;
constexpr double kBackwardShare = 2.0 / 3;
constexpr double kProductShare = 0.9;
constexpr double kActivationPasses = 6;
constexpr double kSumPasses = 2;

// The sizes of the formulas in the header, of the rank with most work.
struct Sizes {
  double parameters, embedding, width, ranks, local_shards, micro_steps;
  double tokens;  // T: of a shard's micro-step
  double masked;  // M
};

Sizes sizes_of(const Config& config, int ranks) {
  const ModelConfig& model = config.model;
  const auto shards = static_cast<std::uint64_t>(config.train.shards);
  const bool tree = config.train.reduce == ReduceOrder::kTree && ranks <= config.train.shards &&
                    std::has_single_bit(static_cast<unsigned>(ranks));
  const std::int64_t parts = tree ? static_cast<std::int64_t>(shards) : ranks;
  Sizes s{};
  s.parameters = static_cast<double>(model.parameter_count());
  s.embedding = static_cast<double>(model.vocab_size * model.hidden);
  s.width = static_cast<double>(size_of(storage_type(config.train.dtype)));
  s.ranks = ranks;
  s.local_shards = static_cast<double>(parts / ranks);
  s.micro_steps = static_cast<double>(config.optim.accumulate);
  s.tokens = static_cast<double>((config.data.batch + parts - 1) / parts * config.data.length);
  s.masked = s.tokens * config.data.mask_prob;
  return s;
}

double activation_bytes(const ModelConfig& model, const Sizes& s) {
  const auto h = static_cast<double>(model.hidden), e = static_cast<double>(model.intermediate),
             d = static_cast<double>(model.key_size), layers = static_cast<double>(model.layers);
  return s.width * s.tokens * ((layers - 1) * (3 * h + 6 * e + 4 * d) + 4 * h + 2 * e + 4 * d);
}

// A whole batch on one rank, a layer at a time.
double validation_bytes(const Config& config, const Sizes& s) {
  const ModelConfig& model = config.model;
  const auto h = static_cast<double>(model.hidden), e = static_cast<double>(model.intermediate),
             d = static_cast<double>(model.key_size), tokens = static_cast<double>(config.data.batch * config.data.length);
  return s.width * tokens * (3 * h + 6 * e + 4 * d + 2 * config.data.mask_prob * static_cast<double>(model.vocab_size));
}

// For forward and for backward.
double packed_bytes(const Config& config, const Sizes& s) {
  if (config.train.dtype == DType::kF64 || s.local_shards * s.micro_steps <= 1) return 0;
  return 2 * s.parameters * static_cast<double>(size_of(config.train.dtype));
}

std::vector<PlanPart> memory_parts(const Config& config, const Sizes& s) {
  const double flat = s.parameters * s.width, others = (s.ranks - 1) / s.ranks;
  const bool lamb = config.optim.name == OptimizerKind::kLamb;
  const double logits = 2 * s.width * s.masked * static_cast<double>(config.model.vocab_size + 3 * config.model.intermediate);
  return {{"parameters", flat},
          {"gradients", flat},
          {"moments", 2 * flat / (config.train.zero ? s.ranks : 1) + (lamb ? flat : 0)},
          {"sums of shards", flat * std::log2(s.local_shards)},
          {"packed weights", packed_bytes(config, s)},
          {"activations", activation_bytes(config.model, s)},
          {"logits", logits},
          {"validation", validation_bytes(config, s)},
          {"exchange", flat * others},
          {"snapshot of a save", flat + 2 * flat / s.ranks},
          {"program", kProgramBytes + (s.ranks > 1 ? kMpiBytes : 0)}};
}

struct Exchange {
  double whole = 0, hidden = 0, after = 0;
};

Exchange exchange_of(const Config& config, const PlanRequest& request, const Sizes& s, double backward_window) {
  if (request.ranks == 1) return {};
  const double peers = s.ranks - 1, seconds_a_byte = 8 / request.bandwidth;
  const double wire = config.train.wire == DType::kBF16 ? 2 : s.width;
  const double buckets = std::ceil(s.parameters / static_cast<double>(config.train.bucket));
  const auto sent = [&](double elements) { return 2 * peers / s.ranks * elements * wire * seconds_a_byte; };
  const double messages = 2 * buckets * (request.latency + peers * kMessageSeconds);
  Exchange exchange;
  exchange.whole = sent(s.parameters) + messages;
  exchange.hidden = std::min(exchange.whole - sent(s.embedding), backward_window);
  exchange.after = request.latency + peers * kMessageSeconds;
  if (config.train.zero) exchange.after += peers / s.ranks * s.parameters * s.width * seconds_a_byte + request.latency;
  return exchange;
}

Plan plan_of(const Config& config, const PlanRequest& request) {
  const Sizes s = sizes_of(config, request.ranks);
  const double flat = s.parameters * s.width, rounds = s.local_shards * s.micro_steps;
  const double products =
      rounds * step_operations(config.model, s.tokens, config.data.length, s.masked) / (kProductShare * request.product_rate);
  const double other = kActivationPasses * activation_bytes(config.model, s) * rounds / request.memory_rate;
  const double sums = s.local_shards > 1 ? kSumPasses * flat * s.local_shards / request.memory_rate : 0;
  const Exchange exchange = exchange_of(config, request, s, kBackwardShare * (products + other) / rounds);
  Plan plan;
  plan.parameters = config.model.parameter_count();
  plan.tokens = static_cast<double>(config.data.batch * config.data.length * config.optim.accumulate);
  plan.memory = memory_parts(config, s);
  plan.time = {{"products", products},
               {"other computation", other},
               {"sums of shards", sums},
               {"optimizer", 8 * flat / request.memory_rate},
               {"exchange, not hidden", exchange.whole - exchange.hidden},
               {config.train.zero ? "control, parameters" : "control", exchange.after}};
  plan.exchange_seconds = exchange.whole;
  plan.hidden_seconds = exchange.hidden;
  return plan;
}

double sum(const std::vector<PlanPart>& parts) {
  double all = 0;
  for (const PlanPart& part : parts) all += part.value;
  return all;
}

}  // namespace

double Plan::memory_bytes() const { return sum(memory); }
double Plan::step_seconds() const { return sum(time); }

Plan make_plan(const Config& config, const PlanRequest& request) {
  check(config.model.vocab_size > 0, ExitCode::kData,
        "[model] vocab_size is not known: set it, or [data] corpus to a corpus that is here");
  check(request.ranks >= 1 && request.ranks <= config.data.batch, ExitCode::kUsage,
        "{} ranks, but [data] batch = {}: a rank needs a sequence at least", request.ranks, config.data.batch);
  check(request.bandwidth > 0 && request.latency >= 0 && request.product_rate > 0 && request.memory_rate > 0, ExitCode::kUsage,
        "bandwidth and rates must be above 0");
  Plan plan = plan_of(config, request);
  PlanRequest single = request;
  single.ranks = 1;
  plan.single_seconds = request.ranks == 1 ? plan.step_seconds() : plan_of(config, single).step_seconds();
  return plan;
}

}  // namespace gau
