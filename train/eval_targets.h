// Which tokens an evaluation predicts, and in which windows: pure arithmetic over document lengths.
//
// fixed-target  The same targets at every length L. Targets of a document lie `stride` apart (at least L_train, so that one
// never
//               starves another of its near context) and are all masked in every window. Windows of L advance so that their
//               scored cores tile the document: a core is [L/4, L - L/4) of its window (integer division), hence a target has
//               at least L/4 tokens on both sides and edges do not confound length.
// crop          Every target alone in the window of L_train tokens around it: what the near context is worth.
// paper         The first L tokens of a document, one mask at a time at every position: L passes of length L.
// labels        Made data that says what to predict: every document as it is, nothing masked by us.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gau {

/// A document read for evaluation.
struct EvalDocument {
  std::int64_t index = 0;            ///< in the corpus
  std::vector<std::int32_t> tokens;  ///< ids
  std::vector<std::int32_t> labels;  ///< empty, or one a token: the id to predict, negative where there is none
};

/// The targets of one document.
struct DocumentTargets {
  std::int64_t document = 0;            ///< place in the list of documents that was given
  std::vector<std::int64_t> positions;  ///< ascending
  std::int64_t first = 0;               ///< number of the first one among all targets
};

struct TargetSet {
  std::vector<DocumentTargets> documents;  ///< those with targets
  std::int64_t total = 0;                  ///< targets of all documents
  std::int64_t skipped = 0;                ///< documents that are too short
};

struct TargetOptions {
  std::int64_t max_length = 0;  ///< longest window; shorter documents are skipped
  std::int64_t stride = 0;      ///< distance between the targets of a document
  std::int64_t limit = 0;       ///< at most so many targets (0: all): see thin()
  std::uint64_t seed = 0;
  std::span<const std::int32_t> special_ids;  ///< never a target
};

/// Targets of protocol fixed-target: positions phase + k · stride inside [max_length/4, n − max_length/4), the phase keyed by
/// (seed, document). A special token at such a place gives no target there.
TargetSet spaced_targets(std::span<const EvalDocument> documents, const TargetOptions& options);

/// Targets of protocol paper: every position below `length` that holds no special token, of documents of at least `length`
/// tokens; `per_document` above 0 keeps that many, evenly spaced.
TargetSet leading_targets(std::span<const EvalDocument> documents, std::int64_t length, std::int64_t per_document,
                          std::span<const std::int32_t> special_ids);

/// Labelled positions of the documents that have exactly `length` tokens; others count as skipped.
TargetSet labelled_targets(std::span<const EvalDocument> documents, std::int64_t length);

/// Keeps at most `limit` targets: every document the same number where it has as many, evenly spaced inside. When there are
/// fewer targets to keep than documents, evenly spaced documents keep one.
void thin(TargetSet& targets, std::int64_t limit);

/// One stretch of a document to be run through the model, and which of its targets are scored there.
struct EvalWindow {
  std::int64_t entry = 0;  ///< place in TargetSet::documents
  std::int64_t start = 0;  ///< first token in the document
  std::int64_t first = 0;  ///< first scored target among the document's positions
  std::int64_t count = 0;  ///< scored targets
};

/// Windows of `length` in which every target is scored once; those without a target are left out. `documents` are those that
/// the targets came from.
std::vector<EvalWindow> sliding_windows(const TargetSet& targets, std::span<const EvalDocument> documents, std::int64_t length);
/// One window a target, centred on it where the document reaches that far.
std::vector<EvalWindow> centred_windows(const TargetSet& targets, std::span<const EvalDocument> documents, std::int64_t length);
/// One window from the document's first token for each target (protocol paper).
std::vector<EvalWindow> leading_windows(const TargetSet& targets);
/// One window from the first token for each document, all its targets scored (labels).
std::vector<EvalWindow> whole_windows(const TargetSet& targets);

/// Index of the unit of each target: its document when at least kMinBootstrapUnits documents have targets, else the stretch of
/// `block` tokens of its document in which it lies. Units are numbered from 0 without gaps.
struct UnitMap {
  bool blocks = false;
  std::int64_t count = 0;
  std::vector<std::int64_t> unit;  ///< by target number
};
UnitMap map_units(const TargetSet& targets, std::int64_t block);

}  // namespace gau
