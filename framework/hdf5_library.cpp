// Lock, types and failure texts of libhdf5.
#include "framework/hdf5_library.h"

#include <algorithm>

namespace gau::h5 {
namespace {

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

herr_t keep_description(unsigned, const H5E_error2_t* error, void* text) {
  if (error->desc != nullptr && *error->desc != '\0') *static_cast<std::string*>(text) = error->desc;
  return 0;
}

}  // namespace

Session::Session() : lock_(library_mutex()) {
  static const herr_t once = H5dont_atexit();
  static_cast<void>(once);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

template <>
hid_t native_type<std::int32_t>() {
  return H5T_NATIVE_INT32;
}
template <>
hid_t native_type<std::int64_t>() {
  return H5T_NATIVE_INT64;
}
template <>
hid_t native_type<std::uint8_t>() {
  return H5T_NATIVE_UINT8;
}
template <>
hid_t native_type<std::uint16_t>() {
  return H5T_NATIVE_UINT16;
}
template <>
hid_t native_type<std::uint32_t>() {
  return H5T_NATIVE_UINT32;
}
template <>
hid_t native_type<std::uint64_t>() {
  return H5T_NATIVE_UINT64;
}
template <>
hid_t native_type<float>() {
  return H5T_NATIVE_FLOAT;
}
template <>
hid_t native_type<double>() {
  return H5T_NATIVE_DOUBLE;
}

Failure last_failure() {
  std::string text;
  // Downward begins at the outermost call, so the text that stays is the innermost one.
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_description, &text);
  const bool locked = text.find("lock file") != std::string::npos;
  static const std::string kErrno = "error message = '";
  if (const auto begin = text.find(kErrno); begin != std::string::npos) {
    const auto first = begin + kErrno.size();
    text = text.substr(first, text.find('\'', first) - first);
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return {text.empty() ? "unknown reason" : text, locked};
}

std::string lengths_dataset(const std::string& strings) { return strings + ".lengths"; }

}  // namespace gau::h5
