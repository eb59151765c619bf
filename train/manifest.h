// manifest.json as text: what train/checkpoint.cpp writes and reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/checkpoint.h"

namespace gau {

/// The manifest as JSON, sealed by a digest of its own. `model` gives tensor ranges, method and L_train.
std::string manifest_text(const Manifest& manifest, const std::vector<ManifestFile>& files, const Model& model);

/// Parses the text and checks its seal; `path` stands for the file in errors (Error(kData)).
Manifest parse_manifest(const std::string& text, const std::string& path, std::vector<ManifestFile>& files);

/// "optimizer-3.h5"
std::string optimizer_file_name(std::int64_t part);

/// Size and digest of `directory`/`name`, read in pieces. Throws Error(kIo) with path and errno text.
ManifestFile describe_file(const std::string& directory, const std::string& name);

}  // namespace gau
