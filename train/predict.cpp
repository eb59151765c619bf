// Reads inputs, runs them in batches, collects the outputs in memory and writes them at once.
#include "train/predict.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <optional>
#include <span>

#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "train/eval_forecast.h"
#include "train/eval_scoring.h"

namespace gau {
namespace {

std::vector<std::int32_t> read_matrix(const h5::Reader& reader, const std::string& name, std::vector<std::int64_t>& shape) {
  const h5::DatasetInfo info = reader.info(name);
  check(info.kind == h5::Kind::kInteger && info.shape.size() == 2, ExitCode::kData,
        "{}: {} must hold integers in two dimensions (rows, length); it has {} dimensions{}", reader.path(), name,
        info.shape.size(), info.kind == h5::Kind::kInteger ? "" : " and is not of integers");
  check(shape.empty() || shape == info.shape, ExitCode::kData, "{}: {} is {} x {}, but input_ids is {} x {}", reader.path(),
        name, info.shape[0], info.shape[1], shape.empty() ? 0 : shape[0], shape.empty() ? 0 : shape[1]);
  shape = info.shape;
  return reader.read<std::int32_t>(name);
}

/// What a run collects, by output.
template <class T>
class Collector {
 public:
  Collector(const Model& model, const PredictInputs& inputs, const PredictOptions& options)
      : config_(model.config()), rows_(inputs.rows), length_(inputs.length) {
    const std::int64_t tokens = rows_ * length_;
    logits_.resize(static_cast<std::size_t>(tokens * config_.vocab_size));
    if (options.hidden) hidden_.resize(static_cast<std::size_t>((config_.layers + 1) * tokens * config_.hidden));
    if (options.attention) attention_.resize(static_cast<std::size_t>(config_.layers * tokens * length_));
  }

  void logits(std::int64_t first_row, const Tensor& values) { put(logits_, first_row * length_ * config_.vocab_size, values); }
  void hidden(std::int64_t index, std::int64_t first_row, const Tensor& values) {
    put(hidden_, (index * rows_ + first_row) * length_ * config_.hidden, values);
  }
  void attention(std::int64_t layer, std::int64_t first_row, const Tensor& values) {
    put(attention_, (layer * rows_ + first_row) * length_ * length_, values);
  }

  void write(h5::Writer& writer) const {
    writer.write<T>("/logits", logits_, {rows_, length_, config_.vocab_size});
    if (!hidden_.empty()) writer.write<T>("/hidden", hidden_, {config_.layers + 1, rows_, length_, config_.hidden});
    if (!attention_.empty()) writer.write<T>("/attention", attention_, {config_.layers, rows_, length_, length_});
  }

 private:
  static void put(std::vector<T>& all, std::int64_t offset, const Tensor& values) {
    const auto span = values.span<T>();
    std::copy(span.begin(), span.end(), all.begin() + offset);
  }

  const ModelConfig& config_;
  std::int64_t rows_;
  std::int64_t length_;
  std::vector<T> logits_, hidden_, attention_;
};

Tensor rows_of(const std::vector<std::int32_t>& matrix, std::int64_t first, std::int64_t count, std::int64_t length) {
  if (matrix.empty()) return {};
  const auto part =
      std::span(matrix).subspan(static_cast<std::size_t>(first * length), static_cast<std::size_t>(count * length));
  return Tensor::from(part, {count, length});
}

template <class T>
void run(const Model& model, const Method& method, const PredictInputs& inputs, const PredictOptions& options,
         h5::Writer& writer) {
  const NoGrad no_grad;
  Collector<T> out(model, inputs, options);
  Planner planner(model.config(), method, model.dtype());
  const std::int64_t step = windows_per_batch(options.batch_tokens, inputs.length);
  for (std::int64_t first = 0; first < inputs.rows; first += step) {
    const std::int64_t count = std::min(step, inputs.rows - first);
    ModelInputs batch;
    batch.ids = rows_of(inputs.ids, first, count, inputs.length);
    batch.types = rows_of(inputs.types, first, count, inputs.length);
    batch.key_mask = rows_of(inputs.mask, first, count, inputs.length);
    const Variable x = model.hidden(Context{}, batch, planner, [&](std::int64_t index, const Variable& state) {
      if (options.hidden) out.hidden(index, first, state.value());
    });
    out.logits(first, model.logits(Context{}, x, inputs.length, {}).value());
    if (!options.attention) continue;
    const std::vector<Tensor> weights = model.attention(batch, planner);
    for (std::size_t layer = 0; layer < weights.size(); ++layer) {
      out.attention(static_cast<std::int64_t>(layer), first, weights[layer]);
    }
  }
  out.write(writer);
}

void check_memory(const Model& model, const PredictInputs& inputs, const PredictOptions& options) {
  const ModelConfig& config = model.config();
  const std::int64_t tokens = inputs.rows * inputs.length;
  const std::int64_t values = tokens * (config.vocab_size + (options.hidden ? (config.layers + 1) * config.hidden : 0) +
                                        (options.attention ? config.layers * inputs.length : 0));
  const std::int64_t batch = std::min(inputs.rows, windows_per_batch(options.batch_tokens, inputs.length));
  const std::int64_t weights = options.attention ? batch * config.layers * inputs.length * inputs.length : 0;
  const std::int64_t bytes = (values + weights) * static_cast<std::int64_t>(size_of(model.dtype())) +
                             forecast_bytes(config, model.dtype(), batch, inputs.length, batch * inputs.length);
  const std::optional<std::int64_t> available = available_memory();
  check(!available || bytes <= *available, ExitCode::kIo,
        "outputs of {} x {} tokens may need {} of memory, {} are available; give fewer rows", inputs.rows, inputs.length,
        bytes_text(bytes), bytes_text(available.value_or(0)));
}

void check_range(const std::vector<std::int32_t>& values, std::int64_t length, std::int64_t limit, const std::string& where,
                 const char* name) {
  const auto bad = std::find_if(values.begin(), values.end(), [&](std::int32_t v) { return v < 0 || v >= limit; });
  if (bad == values.end()) return;
  const std::int64_t at = bad - values.begin();
  fail(ExitCode::kData, "{}: {}: value {} at row {}, column {} is not in [0, {})", where, name, *bad, at / length, at % length,
       limit);
}

}  // namespace

PredictInputs read_predict_inputs(const std::string& path) {
  const h5::Reader reader(path);
  const std::string group = reader.has("/input_ids") ? "/" : "/inputs/";
  check(reader.has(group + "input_ids"), ExitCode::kData, "{}: neither /input_ids nor /inputs/input_ids is there", path);
  PredictInputs inputs;
  std::vector<std::int64_t> shape;
  inputs.ids = read_matrix(reader, group + "input_ids", shape);
  inputs.rows = shape[0];
  inputs.length = shape[1];
  check(inputs.rows > 0 && inputs.length > 0, ExitCode::kData, "{}: {}input_ids is empty ({} x {})", path, group, shape[0],
        shape[1]);
  if (reader.has(group + "attention_mask")) {
    inputs.mask = read_matrix(reader, group + "attention_mask", shape);
    check_range(inputs.mask, inputs.length, 2, path, "attention_mask");
  }
  if (reader.has(group + "type_ids")) inputs.types = read_matrix(reader, group + "type_ids", shape);
  return inputs;
}

PredictInputs predict_inputs_of_text(const std::string& path, const Tokenizer& tokenizer) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    check(file.is_open(), ExitCode::kIo, "{}: cannot be opened for reading", path);
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::vector<std::vector<std::int32_t>> rows;
  std::string line;
  std::size_t longest = 0;
  while (std::getline(in, line)) {
    if (line.ends_with('\r')) line.pop_back();
    rows.push_back(tokenizer.encode(line, true));
    longest = std::max(longest, rows.back().size());
  }
  check(!in.bad(), ExitCode::kIo, "{}: reading failed", path);
  check(longest > 0, ExitCode::kData, "{}: no text ({} lines, all empty)", path, rows.size());
  PredictInputs inputs;
  inputs.rows = static_cast<std::int64_t>(rows.size());
  inputs.length = static_cast<std::int64_t>(longest);
  for (const std::vector<std::int32_t>& row : rows) {
    inputs.ids.insert(inputs.ids.end(), row.begin(), row.end());
    inputs.ids.insert(inputs.ids.end(), longest - row.size(), tokenizer.vocabulary().special().pad);
    inputs.mask.insert(inputs.mask.end(), row.size(), 1);
    inputs.mask.insert(inputs.mask.end(), longest - row.size(), 0);
  }
  return inputs;
}

void check_predict_inputs(const PredictInputs& inputs, const ModelConfig& config, const std::string& where) {
  check_range(inputs.ids, inputs.length, config.vocab_size, where, "input_ids");
  check_range(inputs.types, inputs.length, config.type_vocab_size, where, "type_ids");
}

std::uint64_t predict(const Model& model, const Method& method, const PredictInputs& inputs, const PredictOptions& options,
                      const std::string& out_path) {
  check_memory(model, inputs, options);
  h5::Writer writer(out_path);
  writer.write<std::int32_t>("/input_ids", inputs.ids, {inputs.rows, inputs.length});
  if (!inputs.mask.empty()) writer.write<std::int32_t>("/attention_mask", inputs.mask, {inputs.rows, inputs.length});
  const Method resolved = resolve(method, model.config());
  writer.attribute("/", "method", resolved.name);
  model.dtype() == DType::kF64 ? run<double>(model, resolved, inputs, options, writer)
                               : run<float>(model, resolved, inputs, options, writer);
  return writer.publish();
}

}  // namespace gau
