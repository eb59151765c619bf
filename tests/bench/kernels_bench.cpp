// Kernels against the clock, with Google Benchmark: for people who change one. Not a test; `gau bench` measures whole steps.
#include <benchmark/benchmark.h>

#include "autograd/op_cases.h"
#include "framework/attention_counters.h"
#include "framework/kernels.h"

namespace gau {
namespace {

Tensor normal(const Shape& shape, double spread = 1) { return random_tensor(shape, DType::kF32, 1, spread); }

// Forward and weight-gradient products of a dense layer: tokens × in × out.
void dense_forward(benchmark::State& state) {
  const Tensor x = normal({state.range(0), state.range(1)}), w = normal({state.range(2), state.range(1)});
  Tensor y = Tensor::empty({state.range(0), state.range(2)}, DType::kF32);
  for (auto _ : state) kernels::gemm(MatrixView::of(x), MatrixView::of(w, true), MatrixView::of(y));
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(state.range(0) * state.range(1) * state.range(2)),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(dense_forward)->Args({8192, 768, 3200})->Args({1024, 768, 3200})->Args({512, 256, 1088})->UseRealTime();

void dense_weight_gradient(benchmark::State& state) {
  const Tensor x = normal({state.range(0), state.range(1)}), g = normal({state.range(0), state.range(2)});
  Tensor dw = Tensor::empty({state.range(2), state.range(1)}, DType::kF32);
  for (auto _ : state) kernels::gemm(MatrixView::of(g, true), MatrixView::of(x), MatrixView::of(dw));
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(state.range(0) * state.range(1) * state.range(2)),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(dense_weight_gradient)->Args({8192, 768, 3200})->Args({512, 256, 1088})->UseRealTime();

AttentionInputs sequence(std::int64_t length, double spread) {
  AttentionInputs in;
  in.q_near = normal({1, length, 128}, spread);
  in.k_near = random_tensor({1, length, 128}, DType::kF32, 2, spread);
  in.v = random_tensor({1, length, 1536}, DType::kF32, 3);
  return in;
}

// Attention of one sequence: length, spread of q and k (the larger, the more concentrated), 1 to skip.
void attention(benchmark::State& state) {
  const std::int64_t length = state.range(0);
  const AttentionInputs in = sequence(length, static_cast<double>(state.range(1)) / 10);
  AttentionPlan plan;
  if (state.range(2) == 0) plan.skip = 0;
  Tensor out = Tensor::empty({1, length, 1536}, DType::kF32), log_sum_exp = Tensor::empty({1, length}, DType::kF64);
  reset_attention_counters();
  for (auto _ : state) kernels::attention(in, plan, {}, out, log_sum_exp);
  state.counters["skipped"] = attention_counters().skipped_share();
}
BENCHMARK(attention)
    ->Args({512, 3, 1})
    ->Args({2048, 3, 1})
    ->Args({2048, 20, 0})
    ->Args({2048, 20, 1})
    ->Args({16384, 20, 1})
    ->MeasureProcessCPUTime()
    ->UseRealTime();

// The same from its parts, with all weights in memory: what attention must not be slower than.
void attention_in_parts(benchmark::State& state) {
  const std::int64_t length = state.range(0);
  const AttentionInputs in = sequence(length, static_cast<double>(state.range(1)) / 10);
  Tensor weights = Tensor::empty({1, length, length}, DType::kF32), out = Tensor::empty({1, length, 1536}, DType::kF32);
  for (auto _ : state) {
    kernels::attention_weights(in, {}, weights);
    kernels::gemm(MatrixView::batched(weights), MatrixView::batched(in.v), MatrixView::batched(out));
  }
}
BENCHMARK(attention_in_parts)->Args({512, 3})->Args({2048, 3})->MeasureProcessCPUTime()->UseRealTime();

void swish_split(benchmark::State& state) {
  const Tensor h = normal({4096, 3200});
  Tensor u = Tensor::empty({4096, 1536}, DType::kF32), v = Tensor::empty({4096, 1536}, DType::kF32),
         z = Tensor::empty({4096, 128}, DType::kF32);
  for (auto _ : state) kernels::swish_split(h, u, v, z);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(2 * h.bytes()));
}
BENCHMARK(swish_split)->UseRealTime();

void residual_rms_norm(benchmark::State& state) {
  const Tensor x = normal({8192, 768}), y = normal({8192, 768});
  Tensor out = Tensor::empty({8192, 768}, DType::kF32), inverse = Tensor::empty({8192}, DType::kF32);
  DropoutSpec spec;
  spec.rate = static_cast<double>(state.range(0)) / 10;
  spec.length = 64;
  for (auto _ : state) kernels::residual_rms_norm(x, y, spec, 1e-12, out, inverse);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(3 * x.bytes()));
}
BENCHMARK(residual_rms_norm)->Arg(0)->Arg(1)->UseRealTime();

void adamw(benchmark::State& state) {
  const Tensor gradient = normal({8 << 20});
  Tensor value = normal({8 << 20}), first = Tensor::zeros({8 << 20}, DType::kF32),
         second = Tensor::zeros({8 << 20}, DType::kF32);
  AdamStep step;
  step.learning_rate = 1e-3;
  for (auto _ : state) kernels::adamw(step, gradient, value, first, second);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(7 * gradient.bytes()));
}
BENCHMARK(adamw)->UseRealTime();

}  // namespace
}  // namespace gau

BENCHMARK_MAIN();
