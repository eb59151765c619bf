// What a path is, by what it holds: for commands that take any of our files.
#pragma once

#include <string>

namespace gau {

enum class FileKind {
  kConfig,       ///< text: a TOML configuration
  kCorpus,       ///< HDF5 with /tokens
  kModel,        ///< HDF5 with /parameters
  kOptimizer,    ///< HDF5 with the moments of a part of the parameters
  kHdf5,         ///< any other HDF5 file
  kSafetensors,  ///< tensors without their configuration
  kRun,          ///< directory with checkpoints
  kCheckpoint,   ///< directory with manifest.json
  kExchange,     ///< directory in the Hugging Face layout
  kModelFolder,  ///< directory with model.h5 alone
};

/// "corpus", "model", …
const char* name_of(FileKind kind);

/// Throws Error(kIo) for a path that does not exist or cannot be read, Error(kData) for a damaged HDF5 file and for what is
/// none of these.
FileKind kind_of(const std::string& path);

}  // namespace gau
