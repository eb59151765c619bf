// Preloaded into the program under test: makes writing of checkpoints fail, or holds it, as files in the directory
// GAU_FAULT_DIR say. EIO and ENOSPC: writes fail with that error; EROFS: making the directory does; hold: syncing waits until
// that file is gone, and a file "held" tells that it does. Only paths of unfinished checkpoints are touched; ENOLCK: no file of
// a run can be locked.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace {

constexpr const char* kOurs = "/checkpoints/.step-";

std::string control(const char* name) {
  const char* directory = std::getenv("GAU_FAULT_DIR");
  return directory == nullptr ? "" : std::string(directory) + "/" + name;
}

bool is_set(const char* name) {
  const std::string path = control(name);
  return !path.empty() && access(path.c_str(), F_OK) == 0;
}

bool is_at(int file, const char* part) {
  char target[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), target, sizeof target);
  return length > 0 && std::string(target, static_cast<std::size_t>(length)).find(part) != std::string::npos;
}

bool is_ours(int file) { return is_at(file, kOurs); }

bool write_fails(int file) {
  const int before = errno;
  const bool io = is_set("EIO"), full = !io && is_set("ENOSPC");
  const bool fails = (io || full) && is_ours(file);
  errno = fails ? (io ? EIO : ENOSPC) : before;
  return fails;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* data, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  return write_fails(file) ? -1 : real(file, data, bytes);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return write_fails(file) ? -1 : real(file, data, bytes, offset);
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  return write_fails(file) ? -1 : real(file, data, bytes, offset);
}

int mkdir(const char* path, mode_t mode) {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  if (is_set("EROFS") && std::string(path).find(kOurs) != std::string::npos) {
    errno = EROFS;
    return -1;
  }
  return real(path, mode);
}

int fsync(int file) {
  static auto* const real = next<int(int)>("fsync");
  while (is_set("hold") && is_ours(file)) {
    close(open(control("held").c_str(), O_CREAT | O_WRONLY, 0600));
    usleep(1000);
  }
  return real(file);
}

int flock(int file, int operation) {
  static auto* const real = next<int(int, int)>("flock");
  if (is_set("ENOLCK") && is_at(file, "/run.lock")) {
    errno = ENOLCK;
    return -1;
  }
  return real(file, operation);
}

}  // extern "C"
