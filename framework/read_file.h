// Reading files that somebody else may have put there: what is no file at all is refused at once.
//
// Opening a named pipe waits for its writer, reading a terminal waits for a person, and a file of gigabytes in the place of a
// few lines would fill the memory before anybody notices that it is the wrong one. So the kind is looked at before the file is
// opened, and the size before it is read.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace gau {

/// What may stand at a path: a regular file alone, or also a pipe or a character device, such as /dev/stdin, for what a person
/// names on a command line.
enum class FileSource { kFile, kFileOrStream };

/// The largest text that is read at once: 64 MiB, some hundred times what manifests, configurations and vocabularies have.
inline constexpr std::uint64_t kMostTextBytes = std::uint64_t{64} << 20;

/// All bytes of the file at `path`. `what` says with its article what it should be: "a manifest". Throws Error(kIo) with the
/// system's reason when it is missing or cannot be read, Error(kData) when something else than `source` stands there, and when
/// it has more than `most` bytes.
std::string read_file(const std::string& path, const char* what, std::uint64_t most = kMostTextBytes,
                      FileSource source = FileSource::kFile);

/// A regular file of any size, to be read piece by piece. Throws as read_file() does.
std::ifstream open_file(const std::string& path, const char* what);

}  // namespace gau
