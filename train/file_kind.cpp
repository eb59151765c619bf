#include "train/file_kind.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "framework/read_file.h"
#include "train/exchange.h"
#include "train/safetensors.h"

namespace gau {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<FileKind, const char*> kNames[] = {
    {FileKind::kConfig, "config"},     {FileKind::kCorpus, "corpus"},
    {FileKind::kModel, "model"},       {FileKind::kOptimizer, "optimizer"},
    {FileKind::kHdf5, "hdf5"},         {FileKind::kSafetensors, "safetensors"},
    {FileKind::kRun, "run"},           {FileKind::kCheckpoint, "checkpoint"},
    {FileKind::kExchange, "exchange"}, {FileKind::kModelFolder, "model"}};

std::string first_bytes(const std::string& path) {
  std::ifstream file = open_file(path, "a file");
  std::string start(16, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  return start;
}

/// A plausible size of a header, and its opening brace.
bool starts_as_safetensors(const std::string& start) {
  if (start.size() < 9 || start[8] != '{') return false;
  std::uint64_t header = 0;
  std::memcpy(&header, start.data(), sizeof header);
  return header <= safetensors::kMostHeaderBytes;
}

FileKind kind_of_hdf5(const std::string& path) {
  const h5::Reader file(path);
  if (file.has("/tokens")) return FileKind::kCorpus;
  if (file.has("/parameters")) return FileKind::kModel;
  if (file.has("/first") && file.has("/second")) return FileKind::kOptimizer;
  return FileKind::kHdf5;
}

FileKind kind_of_file(const std::string& path) {
  const std::string start = first_bytes(path);
  if (path.ends_with(".h5") || path.ends_with(".hdf5")) return kind_of_hdf5(path);
  if (path.ends_with(".safetensors") || starts_as_safetensors(start)) return FileKind::kSafetensors;
  // The seal of our own files begins with other bytes than HDF5's; both hold bytes that no text has.
  const bool binary = start.find_first_of(std::string("\0\x1a\x89", 3)) != std::string::npos;
  return binary ? kind_of_hdf5(path) : FileKind::kConfig;
}

}  // namespace

const char* name_of(FileKind kind) {
  for (const auto& [known, name] : kNames)
    if (kind == known) return name;
  return "?";
}

FileKind kind_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  check(status.type() != fs::file_type::not_found, ExitCode::kIo, "{}: there is no such file or directory", path);
  check(!error, ExitCode::kIo, "{}: cannot be read: {}", path, error.message());
  if (fs::is_regular_file(status)) return kind_of_file(path);
  check(fs::is_directory(status), ExitCode::kData, "{}: is neither a regular file nor a directory", path);
  const fs::path directory(path);
  if (fs::exists(directory / "manifest.json", error)) return FileKind::kCheckpoint;
  if (fs::exists(directory / "checkpoints", error)) return FileKind::kRun;
  if (is_exchange_directory(path)) return FileKind::kExchange;
  if (fs::exists(directory / "model.h5", error)) return FileKind::kModelFolder;
  check(!error, ExitCode::kIo, "{}: cannot be read: {}", path, error.message());
  fail(ExitCode::kData, "{}: is no run, no checkpoint, no model and no export", path);
}

}  // namespace gau
