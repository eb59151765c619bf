// The header is checked whole before any data is read: numbers are compared in ways that cannot overflow, and the sorted
// offsets must meet without hole or overlap from the first byte of the data to the last byte of the file.
#include "train/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <tuple>
#include <utility>

#include "framework/atomic_file.h"
#include "framework/cpu/bfloat16.h"
#include "framework/error.h"
#include "train/float16.h"
#include "train/strict_json.h"

namespace gau::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "the data of the format is little-endian");

constexpr std::uint64_t kPrefix = 8;
constexpr int kMostDepth = 4;  // the header, a tensor in it, a list in that; one to spare
constexpr const char* kMetadata = "__metadata__";

constexpr std::pair<Type, const char*> kTypeNames[] = {{Type::kF32, "f32"}, {Type::kBF16, "bf16"}, {Type::kF16, "f16"}};

struct ElementType {
  const char* name;
  std::uint64_t bytes;
};
constexpr ElementType kElementTypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
                                         {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
                                         {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1}};

std::string header_name(Type type) {
  std::string name = name_of(type);
  for (char& c : name) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

/// A whole number ≥ 0 that the JSON holds as one: not 1.0, not -1, not beyond 64 bits.
std::uint64_t whole_number(const StrictJson& json, const std::string& where, const char* what) {
  check(json.is_number_unsigned(), ExitCode::kData, "{}: {} must hold whole numbers from 0 on", where, what);
  return json.get<std::uint64_t>();
}

const StrictJson& member(const StrictJson& tensor, const char* key, const std::string& where) {
  check(tensor.contains(key), ExitCode::kData, "{}: has no {}", where, key);
  return tensor.at(key);
}

std::uint64_t element_bytes(const std::string& dtype, const std::string& where) {
  for (const ElementType& type : kElementTypes)
    if (dtype == type.name) return type.bytes;
  fail(ExitCode::kData, "{}: unknown dtype {}", where, shown(dtype));
}

/// Shape × element size, or an error where that passes `most`.
std::uint64_t data_bytes(const std::vector<std::int64_t>& shape, std::uint64_t element, std::uint64_t most,
                         const std::string& where) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::uint64_t bytes = element;
  for (const std::int64_t dimension : shape) {
    check(static_cast<std::uint64_t>(dimension) <= most / bytes, ExitCode::kData,
          "{}: its shape needs more bytes than the file has", where);
    bytes *= static_cast<std::uint64_t>(dimension);
  }
  return bytes;
}

/// One tensor of the header. `data` is the number of bytes behind the header, which begins the data at byte `first`.
Entry read_entry(const std::string& name, const StrictJson& tensor, std::uint64_t first, std::uint64_t data,
                 const std::string& path) {
  const std::string where = path + ": tensor " + shown(name);
  check(tensor.is_object(), ExitCode::kData, "{}: must be an object with dtype, shape and data_offsets", where);
  for (const auto& [key, value] : tensor.items())
    check(key == "dtype" || key == "shape" || key == "data_offsets", ExitCode::kData, "{}: unknown key {}", where, shown(key));
  Entry entry;
  entry.name = name;
  const StrictJson &dtype = member(tensor, "dtype", where), &shape = member(tensor, "shape", where);
  const StrictJson& offsets = member(tensor, "data_offsets", where);
  check(dtype.is_string(), ExitCode::kData, "{}: dtype must be text", where);
  entry.dtype = dtype.get<std::string>();
  check(shape.is_array() && shape.size() <= kMostRank, ExitCode::kData, "{}: shape must be a list of at most {} numbers", where,
        kMostRank);
  for (const StrictJson& dimension : shape) {
    const std::uint64_t size = whole_number(dimension, where, "shape");
    check(size < std::uint64_t{1} << 62, ExitCode::kData, "{}: dimension {} is too large", where, size);
    entry.shape.push_back(static_cast<std::int64_t>(size));
  }
  check(offsets.is_array() && offsets.size() == 2, ExitCode::kData, "{}: data_offsets must be two numbers", where);
  const std::uint64_t begin = whole_number(offsets[0], where, "data_offsets");
  const std::uint64_t end = whole_number(offsets[1], where, "data_offsets");
  check(begin <= end && end <= data, ExitCode::kData, "{}: data_offsets {} to {} do not lie in the {} bytes of data", where,
        begin, end, data);
  const std::uint64_t needed = data_bytes(entry.shape, element_bytes(entry.dtype, where), data, where);
  check(needed == end - begin, ExitCode::kData, "{}: data_offsets hold {} bytes, dtype and shape need {}", where, end - begin,
        needed);
  entry.begin = first + begin;
  entry.end = first + end;
  return entry;
}

void check_coverage(const std::vector<Entry>& entries, std::uint64_t first, std::uint64_t end, const std::string& path) {
  std::uint64_t at = first;
  for (const Entry& entry : entries) {
    check(entry.begin == at, ExitCode::kData, "{}: tensor {}: begins at byte {} of the data, where {} is expected: {}", path,
          shown(entry.name), entry.begin - first, at - first, entry.begin < at ? "tensors overlap" : "a hole");
    at = entry.end;
  }
  check(at == end, ExitCode::kData, "{}: {} bytes at its end belong to no tensor", path, end - at);
}

std::map<std::string, std::string> read_metadata(const StrictJson& json, const std::string& path) {
  check(json.is_object(), ExitCode::kData, "{}: {} must be an object", path, kMetadata);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : json.items()) {
    check(value.is_string(), ExitCode::kData, "{}: {}: {} must be text", path, kMetadata, shown(key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

Type parse_type(const std::string& name) {
  for (const auto& [type, known] : kTypeNames)
    if (name == known) return type;
  fail(ExitCode::kUsage, "unknown element type '{}'; known: f32, bf16, f16", name);
}

const char* name_of(Type type) {
  for (const auto& [known, name] : kTypeNames)
    if (type == known) return name;
  return "?";
}

std::size_t size_of(Type type) { return type == Type::kF32 ? 4 : 2; }

std::int64_t Entry::elements() const {
  std::int64_t count = 1;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const std::int64_t dimension : shape) count *= dimension;
  return count;
}

Reader::Reader(const std::string& path) : path_(path) {
  // Opening a pipe without O_NONBLOCK would wait for its writer.
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  check(file_ >= 0, ExitCode::kIo, "{}: cannot be opened: {}", path, std::strerror(errno));
  try {
    read_header();
  } catch (...) {
    close(file_);
    throw;
  }
}

Reader::~Reader() { close(file_); }

void Reader::read_header() {
  struct stat status {};
  const int told = fstat(file_, &status);  // before the arguments below, one of which is errno
  check(told == 0, ExitCode::kIo, "{}: cannot be read: {}", path_, std::strerror(errno));
  check(S_ISREG(status.st_mode), ExitCode::kData, "{}: is no regular file", path_);
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  check(bytes_ >= kPrefix, ExitCode::kData, "{}: {} bytes: too short for a safetensors file", path_, bytes_);
  std::uint64_t header = 0;
  read_at(&header, kPrefix, 0);
  check(header <= kMostHeaderBytes, ExitCode::kData,
        "{}: is no safetensors file: its header would have {} bytes, known are up to {}", path_, header, kMostHeaderBytes);
  check(header >= 2 && header <= bytes_ - kPrefix, ExitCode::kData,
        "{}: is no safetensors file, or cut short: a header of {} bytes in a file of {}", path_, header, bytes_);
  std::string text(header, '\0');
  read_at(text.data(), header, kPrefix);
  check(text[0] == '{', ExitCode::kData, "{}: is no safetensors file: its header does not begin with '{{'", path_);
  const StrictJson json = parse_strict_json(text, kMostDepth, path_ + ": header");
  const std::uint64_t first = kPrefix + header;
  for (const auto& [name, tensor] : json.items()) {
    if (name == kMetadata)
      metadata_ = read_metadata(tensor, path_);
    else
      entries_.push_back(read_entry(name, tensor, first, bytes_ - first, path_));
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  check_coverage(entries_, first, bytes_, path_);
  for (std::size_t i = 0; i < entries_.size(); ++i) index_[entries_[i].name] = i;
}

void Reader::read_at(void* out, std::uint64_t bytes, std::uint64_t offset) const {
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(file_, static_cast<char*>(out) + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    check(got >= 0, ExitCode::kIo, "{}: cannot be read: {}", path_, std::strerror(errno));
    check(got > 0, ExitCode::kIo, "{}: ends at byte {}: it was cut while it was read", path_, offset + done);
    done += static_cast<std::uint64_t>(got);
  }
}

const Entry* Reader::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::vector<float> Reader::read(const Entry& entry) const {
  const auto count = static_cast<std::size_t>(entry.elements());
  std::vector<float> values(count);
  if (entry.dtype == "F32") {
    read_at(values.data(), entry.end - entry.begin, entry.begin);
    return values;
  }
  check(entry.dtype == "BF16" || entry.dtype == "F16", ExitCode::kData,
        "{}: tensor {} is {}; read are F32, BF16 and F16, which float32 holds exactly", path_, shown(entry.name), entry.dtype);
  std::vector<std::uint16_t> bits(count);
  read_at(bits.data(), entry.end - entry.begin, entry.begin);
  const bool brain = entry.dtype == "BF16";
  std::transform(bits.begin(), bits.end(), values.begin(),
                 [brain](std::uint16_t half) { return brain ? cpu::to_float(BFloat16{half}) : from_float16(half); });
  return values;
}

namespace {

/// The header, filled up with blanks so that the data begins at a multiple of eight bytes.
std::string header_of(const std::vector<Source>& tensors, Type type) {
  StrictJson json;
  json[kMetadata] = {{"format", "pt"}};
  std::uint64_t at = 0;
  for (const Source& tensor : tensors) {
    std::uint64_t end = at + size_of(type);
    for (const std::int64_t dimension : tensor.shape) end = at + (end - at) * static_cast<std::uint64_t>(dimension);
    json[tensor.name] = {{"dtype", header_name(type)}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = json.dump();
  text.append((kPrefix - text.size() % kPrefix) % kPrefix, ' ');
  return text;
}

std::uint16_t narrow(float value, Type type) { return type == Type::kBF16 ? cpu::to_bfloat16(value).bits : to_float16(value); }

float widen(std::uint16_t bits, Type type) { return type == Type::kBF16 ? cpu::to_float(BFloat16{bits}) : from_float16(bits); }

std::vector<std::uint16_t> narrowed(std::span<const float> values, Type type, const std::string& name, Rounding& rounding) {
  std::vector<std::uint16_t> bits(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    bits[i] = narrow(values[i], type);
    const float back = widen(bits[i], type);
    check(std::isfinite(back) || !std::isfinite(values[i]), ExitCode::kData,
          "tensor {}: element {} = {} is beyond the largest value of {}; write bf16 or f32", name, i, values[i], name_of(type));
    rounding.changed += back != values[i];
    rounding.zeroed += back == 0 && values[i] != 0;
  }
  return bits;
}

}  // namespace

Rounding write(const std::string& path, const std::vector<Source>& tensors, Type type) {
  TemporaryFile temporary(path);
  std::ofstream file(temporary.name(), std::ios::binary);
  const std::string header = header_of(tensors, type);
  const std::uint64_t size = header.size();
  file.write(reinterpret_cast<const char*>(&size), kPrefix);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  Rounding rounding;
  for (const Source& tensor : tensors) {
    const std::span<const float> values = tensor.values();
    rounding.elements += static_cast<std::int64_t>(values.size());
    if (type == Type::kF32) {
      file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
    } else {
      const std::vector<std::uint16_t> bits = narrowed(values, type, tensor.name, rounding);
      file.write(reinterpret_cast<const char*>(bits.data()), static_cast<std::streamsize>(bits.size() * sizeof bits[0]));
    }
    check(file.good(), ExitCode::kIo, "{}: cannot be written: {}", path, std::strerror(errno));
  }
  file.close();
  check(file.good(), ExitCode::kIo, "{}: cannot be written: {}", path, std::strerror(errno));
  temporary.publish();
  return rounding;
}

}  // namespace gau::safetensors
