// A checkpoint: a directory with all that a run needs to go on as if it had never stopped.
//
//   manifest.json    sizes and digests of the files, tensor ranges, configuration, digest of the corpus, training state
//   model.h5         parameters (model_io.h)
//   optimizer-0.h5 … moments, cut into as many parts as the step has virtual shards
//
// It holds no path, host, time, thread or rank count, so equal states give equal bytes. Writing is a function of a snapshot
// alone: it may run on any thread while the run goes on. Several ranks write a checkpoint together: the first one the model,
// each the optimizer files of its part of the virtual shards, then the first one the manifest. Where checkpoints lie and when
// one counts: checkpoint_store.h.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "train/bucket_plan.h"
#include "train/config.h"
#include "train/model_io.h"
#include "train/optimizer.h"

namespace gau {

/// Where a run stands, between two optimizer steps. Integers and losses: there is no state of a generator to keep.
struct TrainState {
  std::int64_t step = 0;                                       ///< optimizer steps done, skipped ones included
  std::uint64_t cursor = 0;                                    ///< samples consumed, over all ranks
  double best_loss = std::numeric_limits<double>::infinity();  ///< smallest validation loss so far
  std::int64_t best_step = -1;                                 ///< the step it was seen at; -1: never
  std::int64_t skipped = 0;  ///< steps without effect: no masked token, or gradients that are not finite
  /// Validation loss after this very step; NaN when none was made. Not part of the digest, since it follows from the rest.
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
};

/// The changing part of a run: all of it, or what one of several ranks writes.
struct Snapshot {
  Tensor values;         ///< parameters [parameters]; undefined where another rank writes them
  Tensor first, second;  ///< moments of the elements `moments`, those of the optimizer files `parts`
  Range moments;
  Range parts{0, std::numeric_limits<std::int64_t>::max()};
  std::int64_t updates = 0;  ///< of the optimizer
  TrainState state;

  /// Shares the tensors of the run: good until its next step. `optimizer` has all moments.
  static Snapshot of(const Model& model, const Optimizer& optimizer, const TrainState& state);
  /// Copies everything into `buffer`, whose memory is used again when it has the right sizes.
  void copy_to(Snapshot& buffer) const;
  /// Of a whole snapshot, as a checkpoint of `files` optimizer files states it: over parameters, moments and training state,
  /// nothing else, so that equal states have equal digests. It is the xxh64 of those of its pieces, which several ranks make.
  std::uint64_t digest(std::int64_t files) const;
};

/// Elements of the flat buffers whose moments are in optimizer file `part` of `parts`.
Range part_range(std::int64_t size, std::int64_t part, std::int64_t parts);

/// A file of a checkpoint.
struct ManifestFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  ///< xxh64 of the whole file
  std::uint64_t state = 0;   ///< xxh64 of the numbers in it, known to its writer alone
};

/// What stays the same over a run and is written into each of its checkpoints. Refers to objects that must outlive it.
struct RunFacts {
  const Model& model;  ///< its configuration and layout; its values are never read
  const Config& config;
  const Tokenization& text;
  std::uint64_t corpus = 0;  ///< Corpus::digest()
};

/// What manifest.json says.
struct Manifest {
  std::string directory;
  TrainState state;
  std::uint64_t digest = 0;  ///< Snapshot::digest
  std::uint64_t corpus = 0;  ///< of the corpus it was trained on
  std::int64_t updates = 0;  ///< of the optimizer
  std::int64_t parameters = 0;
  std::int64_t parts = 0;                     ///< optimizer files
  DType dtype = DType::kF32;                  ///< of parameters and moments
  std::map<std::string, std::string> config;  ///< config_values(…, portable)
};

/// Writes the files that the snapshot has the contents of into `directory`, each synced, and describes them in order. Throws
/// Error(kIo) with path and errno text; the caller removes what is then there.
std::vector<ManifestFile> write_checkpoint_files(const std::string& directory, const RunFacts& facts, const Snapshot& snapshot);
/// Completes the directory by the manifest of `files`, which are those of all ranks in order. Returns the state's digest.
std::uint64_t write_manifest(const std::string& directory, const RunFacts& facts, const Snapshot& snapshot,
                             const std::vector<ManifestFile>& files);

/// Reads manifest.json and checks that it is whole, without a look at the other files. Throws as verify_checkpoint.
Manifest read_manifest(const std::string& directory);

/// read_manifest(), and every file it names has the size and digest it states. Throws Error(kData) naming the first that
/// differs, Error(kIo) when something cannot be read.
Manifest verify_checkpoint(const std::string& directory);

/// Restores model, optimizer and state from a checkpoint that verify_checkpoint() has passed; the restored state must have the
/// manifest's digest.
void load_checkpoint(const Manifest& verified, Model& model, Optimizer& optimizer, TrainState& state);

}  // namespace gau
