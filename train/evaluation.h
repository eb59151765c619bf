// What an evaluation found, as plain data: filled by the evaluator, written as text, CSV, JSON and plots by the report.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "train/statistics.h"

namespace gau {

/// One method at one length.
struct EvalRow {
  std::string method;
  std::int64_t length = 0;     ///< tokens of a window
  std::int64_t targets = 0;    ///< predicted tokens
  std::int64_t documents = 0;  ///< documents that they lie in
  std::int64_t skipped = 0;    ///< documents that were too short
  Interval loss;               ///< mean cross-entropy in nats
  Interval accuracy;           ///< share of targets predicted right
  /// loss − loss of crop at the same targets, in nats; below 0: the longer context helps. NaN where there is no crop.
  Interval delta{std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN(),
                 std::numeric_limits<double>::quiet_NaN()};
  double entropy = std::numeric_limits<double>::quiet_NaN();  ///< mean row entropy of attention in nats; NaN: not measured
  std::string intervals;                                      ///< how they were made: interval_label()
  double seconds = 0;

  double perplexity() const;
};

/// Which side of a query its fact is on.
enum class RecallSide { kBoth, kLeft, kRight };

/// The recall task: one method at one length, over the queries whose facts are on one side, `first` to `last` tokens away.
struct RecallRow {
  std::string method;
  std::int64_t length = 0;
  RecallSide side = RecallSide::kBoth;
  std::int64_t first = 1;
  std::int64_t last = 1;
  std::int64_t queries = 0;
  double accuracy = 0;        ///< share of queries whose likeliest token of all is the fact
  double loss = 0;            ///< mean cross-entropy among the values of the class asked for, in nats
  double attention = 0;       ///< mean over queries of the weight from query to fact, in the layer where it is highest
  double attention_last = 0;  ///< the same in the last layer
};

/// All rows of one model on one corpus.
struct Evaluation {
  std::string model;     ///< label
  std::string protocol;  ///< "fixed-target", "paper" or "labels"
  std::string corpus;    ///< path
  std::string split;
  std::int64_t corpus_documents = 0;  ///< documents of the split
  std::int64_t corpus_tokens = 0;     ///< tokens of the split
  std::int64_t train_length = 0;      ///< L_train; 0: not known
  std::int64_t stride = 0;            ///< distance between targets; 0: the protocol has none
  std::int64_t target_limit = 0;      ///< --targets: at most so many (paper: a document); 0: all
  std::int64_t seed = 0;
  std::vector<EvalRow> rows;      ///< crop first, then by method and length
  std::vector<RecallRow> recall;  ///< of the recall task, in the order of `rows`
};

/// Name of the row that holds the centred L_train windows.
inline constexpr const char* kCropMethod = "crop";

}  // namespace gau
