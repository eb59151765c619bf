// Writing HDF5 files: under a temporary name, flushed, sealed, renamed.
//
// A full disk must not publish a file with holes: HDF5 can close such a file without an error. So everything is flushed by
// a checked call before the close, and the size on the disk is compared with the one HDF5 believes in.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "framework/atomic_file.h"
#include "framework/error.h"
#include "framework/hdf5_file.h"
#include "framework/hdf5_library.h"
#include "framework/hdf5_seal.h"

namespace gau::h5 {
namespace {

constexpr hsize_t kChunk = 65536;
/// HDF5 keeps an attribute inside a 64 KiB header.
constexpr std::size_t kLargestAttribute = 60000;

Properties untimed(hid_t object_class) {
  Properties properties(H5Pcreate(object_class));
  H5Pset_obj_track_times(properties.get(), false);
  return properties;
}

Properties with_parents() {
  Properties properties(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(properties.get(), 1);
  return properties;
}

void set_chunks(const Properties& properties, hsize_t chunk) {
  H5Pset_chunk(properties.get(), 1, &chunk);
  H5Pset_shuffle(properties.get());
  H5Pset_deflate(properties.get(), 1);
  H5Pset_fletcher32(properties.get());
}

Type string_type(std::size_t bytes) {
  Type type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), std::max<std::size_t>(bytes, 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

struct Growing {
  Dataset dataset;
  hsize_t size = 0;
};

}  // namespace

struct Writer::Impl {
  std::string path;
  TemporaryFile temporary;
  File file;
  std::map<std::string, Growing> growing;

  explicit Impl(const std::string& name);
  ~Impl() {
    const Session session;
    growing.clear();
    file = File();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[noreturn]] void fail_write(const std::string& object) const {
    fail(ExitCode::kIo, "{}: \"{}\" cannot be written: {}", path, object, last_failure().reason);
  }
  Dataset create(const std::string& name, hid_t type, const Space& space, const Properties& properties) const;
  Object open_or_make(const std::string& object) const;
  void attribute(const std::string& object, const std::string& name, hid_t type, const void* value) const;
  hsize_t finish();
};

Writer::Impl::Impl(const std::string& name) : path(name), temporary(name) {
  const Session session;
  const Properties creation = untimed(H5P_FILE_CREATE);
  H5Pset_userblock(creation.get(), kUserBlock);
  file = File(H5Fcreate(temporary.name().c_str(), H5F_ACC_TRUNC, creation.get(), H5P_DEFAULT));
  if (file.valid()) return;
  const Failure failure = last_failure();
  fail(ExitCode::kIo, "{}: cannot be {}: {}{}", path, failure.locked ? "locked" : "created", failure.reason,
       failure.locked ? "; a file system without locks wants HDF5_USE_FILE_LOCKING=FALSE" : "");
}

Dataset Writer::Impl::create(const std::string& name, hid_t type, const Space& space, const Properties& properties) const {
  const Properties links = with_parents();
  Dataset set(H5Dcreate2(file.get(), name.c_str(), type, space.get(), links.get(), properties.get(), H5P_DEFAULT));
  if (!set.valid()) fail_write(name);
  return set;
}

Object Writer::Impl::open_or_make(const std::string& object) const {
  Object opened(H5Oopen(file.get(), object.c_str(), H5P_DEFAULT));
  if (opened.valid()) return opened;
  const Properties links = with_parents();
  const Properties creation = untimed(H5P_GROUP_CREATE);
  Object made(H5Gcreate2(file.get(), object.c_str(), links.get(), creation.get(), H5P_DEFAULT));
  if (!made.valid()) fail_write(object);
  return made;
}

void Writer::Impl::attribute(const std::string& object, const std::string& name, hid_t type, const void* value) const {
  const Object owner = open_or_make(object);
  const Space space(H5Screate(H5S_SCALAR));
  const Attribute made(H5Acreate2(owner.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (!made.valid() || H5Awrite(made.get(), type, value) < 0) fail_write(object + " attribute " + name);
}

/// Everything to the disk, file closed; the size that the file must have.
hsize_t Writer::Impl::finish() {
  for (auto& [name, set] : growing) {
    const hid_t id = set.dataset.release();
    if (H5Dclose(id) < 0) fail_write(name);
  }
  growing.clear();
  if (H5Fflush(file.get(), H5F_SCOPE_GLOBAL) < 0) fail_write("/");
  hsize_t size = 0;
  if (H5Fget_filesize(file.get(), &size) < 0) fail_write("/");
  if (H5Fclose(file.release()) < 0) fail_write("/");
  return size;
}

Writer::Writer(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
Writer::~Writer() = default;

template <class T>
void Writer::write(const std::string& dataset, std::span<const T> values, const std::vector<std::int64_t>& shape,
                   const WriteOptions& options) {
  const DatasetInfo info{shape, Kind::kOther, sizeof(T)};
  check(info.size() == static_cast<std::int64_t>(values.size()), ExitCode::kIo, "{}: \"{}\" has {} values for a shape of {}",
        impl_->path, dataset, values.size(), info.size());
  check(!options.compress || shape.size() == 1, ExitCode::kIo, "{}: \"{}\" has {} dimensions; only one is compressed",
        impl_->path, dataset, shape.size());
  const Session session;
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Space space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr));
  const Properties properties = untimed(H5P_DATASET_CREATE);
  if (options.compress && !values.empty()) set_chunks(properties, std::min<hsize_t>(kChunk, values.size()));
  const Dataset set = impl_->create(dataset, native_type<T>(), space, properties);
  if (values.empty()) return;
  if (H5Dwrite(set.get(), native_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) impl_->fail_write(dataset);
}

void Writer::write_strings(const std::string& dataset, const std::vector<std::string>& values) {
  std::size_t width = 1;
  bool ends_with_nul = false;
  std::vector<std::uint64_t> lengths;
  for (const std::string& value : values) {
    width = std::max(width, value.size());
    ends_with_nul = ends_with_nul || value.ends_with('\0');
    lengths.push_back(value.size());
  }
  std::string bytes(width * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) values[i].copy(bytes.data() + i * width, width);
  {
    const Session session;
    const hsize_t count = values.size();
    const Space space(H5Screate_simple(1, &count, nullptr));
    const Type type = string_type(width);
    const Dataset set = impl_->create(dataset, type.get(), space, untimed(H5P_DATASET_CREATE));
    if (count > 0 && H5Dwrite(set.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) < 0)
      impl_->fail_write(dataset);
  }
  if (ends_with_nul) write<std::uint64_t>(lengths_dataset(dataset), lengths, {static_cast<std::int64_t>(lengths.size())});
}

template <class T>
void Writer::create_growing(const std::string& dataset, const WriteOptions& options) {
  const Session session;
  const hsize_t none = 0;
  const hsize_t unlimited = H5S_UNLIMITED;
  const Space space(H5Screate_simple(1, &none, &unlimited));
  const Properties properties = untimed(H5P_DATASET_CREATE);
  if (options.compress) {
    set_chunks(properties, kChunk);
  } else {
    H5Pset_chunk(properties.get(), 1, &kChunk);
  }
  impl_->growing[dataset].dataset = impl_->create(dataset, native_type<T>(), space, properties);
}

template <class T>
void Writer::append(const std::string& dataset, std::span<const T> values) {
  const auto found = impl_->growing.find(dataset);
  check(found != impl_->growing.end(), ExitCode::kIo, "{}: \"{}\" was not created as growing", impl_->path, dataset);
  if (values.empty()) return;
  const Session session;
  Growing& set = found->second;
  const hsize_t start = set.size;
  const hsize_t count = values.size();
  const hsize_t size = start + count;
  if (H5Dset_extent(set.dataset.get(), &size) < 0) impl_->fail_write(dataset);
  const Space selection(H5Dget_space(set.dataset.get()));
  const Space memory(H5Screate_simple(1, &count, nullptr));
  H5Sselect_hyperslab(selection.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr);
  if (H5Dwrite(set.dataset.get(), native_type<T>(), memory.get(), selection.get(), H5P_DEFAULT, values.data()) < 0) {
    impl_->fail_write(dataset);
  }
  set.size = size;
}

void Writer::attribute(const std::string& object, const std::string& name, const std::string& value) {
  check(value.size() <= kLargestAttribute, ExitCode::kIo,
        "{}: attribute \"{}\" has {} bytes, more than {}; store it as a dataset", impl_->path, name, value.size(),
        kLargestAttribute);
  const Session session;
  const std::string text = value.empty() ? std::string(1, '\0') : value;
  impl_->attribute(object, name, string_type(value.size()).get(), text.data());
}

void Writer::attribute(const std::string& object, const std::string& name, std::int64_t value) {
  const Session session;
  impl_->attribute(object, name, H5T_NATIVE_INT64, &value);
}

void Writer::attribute(const std::string& object, const std::string& name, double value) {
  const Session session;
  impl_->attribute(object, name, H5T_NATIVE_DOUBLE, &value);
}

std::uint64_t Writer::publish() {
  check(impl_->file.valid(), ExitCode::kIo, "{}: already published", impl_->path);
  hsize_t expected = 0;
  {
    const Session session;
    expected = impl_->finish();
  }
  const std::string& name = impl_->temporary.name();
  struct stat status {};
  check(stat(name.c_str(), &status) == 0 && static_cast<hsize_t>(status.st_size) == expected, ExitCode::kIo,
        "{}: cannot be written: {} bytes reached the disk of {}; is it full?", impl_->path,
        static_cast<std::int64_t>(status.st_size), expected);
  const std::uint64_t digest = write_seal(name, impl_->path);
  impl_->temporary.publish();
  return digest;
}

#define GAU_WRITE_TYPE(T)                                                                                  \
  template void Writer::write<T>(const std::string&, std::span<const T>, const std::vector<std::int64_t>&, \
                                 const WriteOptions&);                                                     \
  template void Writer::create_growing<T>(const std::string&, const WriteOptions&);                        \
  template void Writer::append<T>(const std::string&, std::span<const T>);
GAU_WRITE_TYPE(std::int32_t)
GAU_WRITE_TYPE(std::int64_t)
GAU_WRITE_TYPE(std::uint8_t)
GAU_WRITE_TYPE(std::uint16_t)
GAU_WRITE_TYPE(std::uint32_t)
GAU_WRITE_TYPE(std::uint64_t)
GAU_WRITE_TYPE(float)
GAU_WRITE_TYPE(double)
#undef GAU_WRITE_TYPE

}  // namespace gau::h5
