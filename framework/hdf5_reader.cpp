// Reading HDF5 files: the seal first, then libhdf5, read-only.
//
// Conversions between widths and signs go through HDF5, with a callback that turns its silent clamping into a failure.
#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "framework/hdf5_library.h"
#include "framework/hdf5_seal.h"

namespace gau::h5 {
namespace {

Kind kind_of(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return Kind::kInteger;
    case H5T_FLOAT:
      return Kind::kReal;
    case H5T_STRING:
      return Kind::kString;
    default:
      return Kind::kOther;
  }
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kInteger:
      return "integers";
    case Kind::kReal:
      return "real numbers";
    case Kind::kString:
      return "strings";
    case Kind::kOther:
      break;
  }
  return "another type";
}

template <class T>
constexpr Kind kKindOf = std::is_integral_v<T> ? Kind::kInteger : Kind::kReal;

std::vector<std::int64_t> shape_of(hid_t space) {
  if (H5Sget_simple_extent_type(space) == H5S_NULL) return {0};
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> dims(static_cast<std::size_t>(std::max(rank, 0)));
  if (!dims.empty()) H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  return {dims.begin(), dims.end()};
}

H5T_conv_ret_t refuse_overflow(H5T_conv_except_t exception, hid_t, hid_t, void*, void*, void* overflowed) {
  if (exception != H5T_CONV_EXCEPT_RANGE_HI && exception != H5T_CONV_EXCEPT_RANGE_LOW) return H5T_CONV_UNHANDLED;
  *static_cast<bool*>(overflowed) = true;
  return H5T_CONV_ABORT;
}

/// Transfer properties under which a value that does not fit ends the read and sets `overflowed`.
Properties strict_transfer(bool& overflowed) {
  Properties transfer(H5Pcreate(H5P_DATASET_XFER));
  H5Pset_type_conv_cb(transfer.get(), refuse_overflow, &overflowed);
  return transfer;
}

/// A padded string of `bytes` bytes as the file's padding means it.
std::string trimmed(const char* text, std::size_t bytes, H5T_str_t padding) {
  if (padding == H5T_STR_NULLTERM) return {text, strnlen(text, bytes)};
  const char pad = padding == H5T_STR_SPACEPAD ? ' ' : '\0';
  while (bytes > 0 && text[bytes - 1] == pad) --bytes;
  return {text, bytes};
}

bool exists(hid_t file, const std::string& object) {
  // Each step of the path is asked for: HDF5 fails on a path whose middle is missing.
  for (std::size_t end = object.find('/', 1);; end = object.find('/', end + 1)) {
    const std::string part = object.substr(0, end);
    if (!part.empty() && part != "/" && H5Lexists(file, part.c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) break;
  }
  return object == "/" || H5Oexists_by_name(file, object.c_str(), H5P_DEFAULT) > 0;
}

File open_file(const std::string& path) {
  File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  if (file.valid()) return file;
  const Failure failure = last_failure();
  if (failure.locked) {
    fail(ExitCode::kIo,
         "{}: cannot be locked ({}): another program has it open for writing (close it), or its file system has no locks (set "
         "HDF5_USE_FILE_LOCKING=FALSE)",
         path, failure.reason);
  }
  fail(ExitCode::kData, "{}: HDF5 cannot open it: {}; the file is cut short, damaged, or of another kind", path,
       failure.reason);
}

}  // namespace

std::int64_t DatasetInfo::size() const {
  std::int64_t size = 1;
  for (const std::int64_t dim : shape) size *= dim;
  return size;
}

struct Reader::Impl {
  std::string path;
  Seal seal;
  File file;

  explicit Impl(const std::string& name) : path(name), seal(check_seal(name)) {
    const Session session;
    file = open_file(path);
  }
  ~Impl() {
    const Session session;
    file = File();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Dataset dataset(const std::string& name) const;
  hid_t require(const std::string& object) const;
  DatasetInfo info(const std::string& name, const Dataset& set) const;
  template <class T>
  std::vector<T> transfer(const std::string& name, const Dataset& set, hid_t memory, hid_t selection, std::int64_t count) const;
  template <class T, class From>
  std::vector<T> narrow(const std::string& name, const std::vector<From>& wide) const;
  template <class T>
  [[noreturn]] void fail_range(const std::string& name) const;
  std::vector<std::string> fixed_strings(const std::string& name, const Dataset& set, hid_t type, std::int64_t count) const;
  std::vector<std::string> variable_strings(const std::string& name, const Dataset& set, hid_t type, std::int64_t count) const;
  Attribute attribute(const std::string& object, const std::string& name, Kind kind) const;
  template <class T>
  T scalar(const std::string& object, const std::string& name, const Attribute& attribute) const;
};

hid_t Reader::Impl::require(const std::string& object) const {
  check(exists(file.get(), object), ExitCode::kData, "{}: has no object \"{}\"; is it a file of the right kind?", path, object);
  return file.get();
}

Dataset Reader::Impl::dataset(const std::string& name) const {
  Dataset set(H5Dopen2(require(name), name.c_str(), H5P_DEFAULT));
  if (!set.valid()) fail(ExitCode::kData, "{}: \"{}\" is not a readable dataset: {}", path, name, last_failure().reason);
  return set;
}

DatasetInfo Reader::Impl::info(const std::string& name, const Dataset& set) const {
  const Space space(H5Dget_space(set.get()));
  const Type type(H5Dget_type(set.get()));
  check(space.valid() && type.valid(), ExitCode::kData, "{}: \"{}\" has no readable type or shape", path, name);
  return {shape_of(space.get()), kind_of(type.get()), H5Tget_size(type.get())};
}

template <class T>
std::vector<T> Reader::Impl::transfer(const std::string& name, const Dataset& set, hid_t memory, hid_t selection,
                                      std::int64_t count) const {
  const DatasetInfo what = info(name, set);
  check(what.kind == kKindOf<T>, ExitCode::kData, "{}: \"{}\" holds {}, wanted are {}", path, name, name_of(what.kind),
        name_of(kKindOf<T>));
  if constexpr (std::is_integral_v<T>) {
    using Other = std::conditional_t<std::is_signed_v<T>, std::uint64_t, std::int64_t>;
    const Type type(H5Dget_type(set.get()));
    // HDF5 does not report every change of sign, so it is checked here, from the widest type of the file's sign.
    if ((H5Tget_sign(type.get()) == H5T_SGN_NONE) == std::is_signed_v<T>) {
      return narrow<T>(name, transfer<Other>(name, set, memory, selection, count));
    }
  }
  std::vector<T> values;
  try {
    values.resize(static_cast<std::size_t>(count));
  } catch (const std::exception&) {
    fail(ExitCode::kIo, "{}: \"{}\" has {} elements, more than memory holds", path, name, count);
  }
  if (count == 0) return values;
  bool overflowed = false;
  const Properties properties = strict_transfer(overflowed);
  if (H5Dread(set.get(), native_type<T>(), memory, selection, properties.get(), values.data()) < 0) {
    const Failure failure = last_failure();
    if (overflowed) fail_range<T>(name);
    fail(ExitCode::kData, "{}: \"{}\" cannot be read: {}", path, name, failure.reason);
  }
  return values;
}

template <class T>
void Reader::Impl::fail_range(const std::string& name) const {
  fail(ExitCode::kData, "{}: \"{}\" has a value that does not fit {} {} bits", path, name,
       std::is_integral_v<T> ? (std::is_signed_v<T> ? "signed" : "unsigned") : "a real number of", 8 * sizeof(T));
}

template <class T, class From>
std::vector<T> Reader::Impl::narrow(const std::string& name, const std::vector<From>& wide) const {
  std::vector<T> values;
  values.reserve(wide.size());
  for (const From value : wide) {
    if (!std::in_range<T>(value)) fail_range<T>(name);
    values.push_back(static_cast<T>(value));
  }
  return values;
}

std::vector<std::string> Reader::Impl::fixed_strings(const std::string& name, const Dataset& set, hid_t type,
                                                     std::int64_t count) const {
  const std::size_t width = H5Tget_size(type);
  std::vector<char> bytes(width * static_cast<std::size_t>(count));
  if (H5Dread(set.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) < 0) {
    fail(ExitCode::kData, "{}: \"{}\" cannot be read: {}", path, name, last_failure().reason);
  }
  std::vector<std::string> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    values.push_back(trimmed(bytes.data() + i * width, width, H5Tget_strpad(type)));
  }
  return values;
}

std::vector<std::string> Reader::Impl::variable_strings(const std::string& name, const Dataset& set, hid_t type,
                                                        std::int64_t count) const {
  std::vector<char*> pointers(static_cast<std::size_t>(count), nullptr);
  if (H5Dread(set.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, pointers.data()) < 0) {
    fail(ExitCode::kData, "{}: \"{}\" cannot be read: {}", path, name, last_failure().reason);
  }
  std::vector<std::string> values;
  for (const char* pointer : pointers) values.emplace_back(pointer == nullptr ? "" : pointer);
  const Space space(H5Dget_space(set.get()));
  H5Dvlen_reclaim(type, space.get(), H5P_DEFAULT, pointers.data());
  return values;
}

Attribute Reader::Impl::attribute(const std::string& object, const std::string& name, Kind kind) const {
  check(H5Aexists_by_name(require(object), object.c_str(), name.c_str(), H5P_DEFAULT) > 0, ExitCode::kData,
        "{}: \"{}\" has no attribute \"{}\"; is it a file of the right kind?", path, object, name);
  Attribute found(H5Aopen_by_name(file.get(), object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT));
  check(found.valid(), ExitCode::kData, "{}: attribute \"{}\" of \"{}\" cannot be opened", path, name, object);
  const Type type(H5Aget_type(found.get()));
  const Space space(H5Aget_space(found.get()));
  const Kind is = kind_of(type.get());
  check(is == kind || (kind == Kind::kReal && is == Kind::kInteger), ExitCode::kData,
        "{}: attribute \"{}\" of \"{}\" holds {}, wanted are {}", path, name, object, name_of(is), name_of(kind));
  check(H5Sget_simple_extent_npoints(space.get()) == 1, ExitCode::kData, "{}: attribute \"{}\" of \"{}\" is not a single value",
        path, name, object);
  return found;
}

template <class T>
T Reader::Impl::scalar(const std::string& object, const std::string& name, const Attribute& found) const {
  T value{};
  check(H5Aread(found.get(), native_type<T>(), &value) >= 0, ExitCode::kData, "{}: attribute \"{}\" of \"{}\" cannot be read",
        path, name, object);
  return value;
}

Reader::Reader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;

const std::string& Reader::path() const { return impl_->path; }
bool Reader::sealed() const { return impl_->seal.sealed; }
std::uint64_t Reader::digest() const { return impl_->seal.digest; }

bool Reader::has(const std::string& object) const {
  const Session session;
  return exists(impl_->file.get(), object);
}

std::vector<std::string> Reader::list(const std::string& group) const {
  const Session session;
  const Group opened(H5Gopen2(impl_->require(group), group.c_str(), H5P_DEFAULT));
  check(opened.valid(), ExitCode::kData, "{}: \"{}\" is not a group", path(), group);
  std::vector<std::string> names;
  const auto collect = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  check(H5Literate(opened.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &names) >= 0, ExitCode::kData,
        "{}: the members of \"{}\" cannot be listed", path(), group);
  std::sort(names.begin(), names.end());
  return names;
}

DatasetInfo Reader::info(const std::string& dataset) const {
  const Session session;
  return impl_->info(dataset, impl_->dataset(dataset));
}

template <class T>
std::vector<T> Reader::read(const std::string& dataset) const {
  const Session session;
  const Dataset set = impl_->dataset(dataset);
  return impl_->transfer<T>(dataset, set, H5S_ALL, H5S_ALL, impl_->info(dataset, set).size());
}

template <class T>
std::vector<T> Reader::read_range(const std::string& dataset, std::int64_t first, std::int64_t count) const {
  const Session session;
  const Dataset set = impl_->dataset(dataset);
  const DatasetInfo what = impl_->info(dataset, set);
  check(what.shape.size() == 1, ExitCode::kData, "{}: \"{}\" has {} dimensions, wanted is 1", path(), dataset,
        what.shape.size());
  check(first >= 0 && count >= 0 && first <= what.size() - count, ExitCode::kData,
        "{}: \"{}\" has {} elements, asked were {} from {} on", path(), dataset, what.size(), count, first);
  if (count == 0) return {};
  const auto start = static_cast<hsize_t>(first);
  const auto extent = static_cast<hsize_t>(count);
  const Space selection(H5Dget_space(set.get()));
  const Space memory(H5Screate_simple(1, &extent, nullptr));
  H5Sselect_hyperslab(selection.get(), H5S_SELECT_SET, &start, nullptr, &extent, nullptr);
  return impl_->transfer<T>(dataset, set, memory.get(), selection.get(), count);
}

std::vector<std::string> Reader::read_strings(const std::string& dataset) const {
  const Session session;
  const Dataset set = impl_->dataset(dataset);
  const DatasetInfo what = impl_->info(dataset, set);
  check(what.kind == Kind::kString && what.shape.size() == 1, ExitCode::kData,
        "{}: \"{}\" holds {} in {} dimensions, wanted is a list of strings", path(), dataset, name_of(what.kind),
        what.shape.size());
  if (what.size() == 0) return {};
  const Type type(H5Dget_type(set.get()));
  if (H5Tis_variable_str(type.get()) > 0) return impl_->variable_strings(dataset, set, type.get(), what.size());
  std::vector<std::string> values = impl_->fixed_strings(dataset, set, type.get(), what.size());
  if (const std::string name = lengths_dataset(dataset); sealed() && exists(impl_->file.get(), name)) {
    const std::vector<std::uint64_t> lengths = read<std::uint64_t>(name);
    for (std::size_t i = 0; i < std::min(values.size(), lengths.size()); ++i) values[i].resize(lengths[i], '\0');
  }
  return values;
}

bool Reader::has_attribute(const std::string& object, const std::string& name) const {
  const Session session;
  return exists(impl_->file.get(), object) &&
         H5Aexists_by_name(impl_->file.get(), object.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

std::string Reader::string_attribute(const std::string& object, const std::string& name) const {
  const Session session;
  const Attribute found = impl_->attribute(object, name, Kind::kString);
  const Type type(H5Aget_type(found.get()));
  if (H5Tis_variable_str(type.get()) <= 0) {
    std::vector<char> bytes(H5Tget_size(type.get()));
    check(H5Aread(found.get(), type.get(), bytes.data()) >= 0, ExitCode::kData, "{}: attribute \"{}\" of \"{}\" cannot be read",
          path(), name, object);
    return trimmed(bytes.data(), bytes.size(), H5Tget_strpad(type.get()));
  }
  char* text = nullptr;
  check(H5Aread(found.get(), type.get(), &text) >= 0, ExitCode::kData, "{}: attribute \"{}\" of \"{}\" cannot be read", path(),
        name, object);
  std::string value = text == nullptr ? "" : text;
  H5free_memory(text);
  return value;
}

std::int64_t Reader::int_attribute(const std::string& object, const std::string& name) const {
  const Session session;
  return impl_->scalar<std::int64_t>(object, name, impl_->attribute(object, name, Kind::kInteger));
}

double Reader::real_attribute(const std::string& object, const std::string& name) const {
  const Session session;
  return impl_->scalar<double>(object, name, impl_->attribute(object, name, Kind::kReal));
}

#define GAU_READ_TYPE(T)                                             \
  template std::vector<T> Reader::read<T>(const std::string&) const; \
  template std::vector<T> Reader::read_range<T>(const std::string&, std::int64_t, std::int64_t) const;
GAU_READ_TYPE(std::int32_t)
GAU_READ_TYPE(std::int64_t)
GAU_READ_TYPE(std::uint8_t)
GAU_READ_TYPE(std::uint16_t)
GAU_READ_TYPE(std::uint32_t)
GAU_READ_TYPE(std::uint64_t)
GAU_READ_TYPE(float)
GAU_READ_TYPE(double)
#undef GAU_READ_TYPE

}  // namespace gau::h5
