// Plain, gzip and zstd input behind one interface. Both packed forms may be several streams one after another, as `cat` makes
// them.
#include "data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "framework/error.h"

namespace gau {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;

/// The raw file, with its beginning kept for a look before the first read.
class File : public ByteSource {
 public:
  File(const std::string& path, std::string name) : name_(std::move(name)), id_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    check(id_ >= 0, ExitCode::kIo, "{}: cannot be opened: {}", name_, std::strerror(errno));
    struct stat status {};
    const bool is_directory = fstat(id_, &status) == 0 && S_ISDIR(status.st_mode);
    if (is_directory) close(id_);
    check(!is_directory, ExitCode::kIo, "{}: cannot be read: it is a directory; name the files in it", name_);
  }
  ~File() override { close(id_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::size_t read(char* out, std::size_t size) override {
    if (!head_.empty()) {
      const std::size_t count = std::min(size, head_.size());
      head_.copy(out, count);
      head_.erase(0, count);
      return count;
    }
    for (;;) {
      const ssize_t got = ::read(id_, out, size);
      if (got < 0 && errno == EINTR) continue;
      check(got >= 0, ExitCode::kIo, "{}: cannot be read: {}", name_, std::strerror(errno));
      consumed_ += got;
      return static_cast<std::size_t>(got);
    }
  }
  std::int64_t consumed() const override { return consumed_; }
  const std::string& name() const { return name_; }

  /// The first bytes, fewer than `size` only in a shorter file; they are read again by read().
  std::string peek(std::size_t size) {
    std::string head(size, '\0');
    std::size_t have = 0;
    while (have < size) {
      const std::size_t got = read(head.data() + have, size - have);
      if (got == 0) break;
      have += got;
    }
    head.resize(have);
    head_ = head;
    return head;
  }

 private:
  std::string name_;
  int id_;
  std::string head_;
  std::int64_t consumed_ = 0;
};

class Gzip : public ByteSource {
 public:
  explicit Gzip(std::unique_ptr<File> file) : file_(std::move(file)), input_(kBuffer) {
    // 15 bits of window, and 32: the gzip header is found by itself.
    check(inflateInit2(&stream_, 15 + 32) == Z_OK, ExitCode::kIo, "{}: gzip cannot be set up: no memory", file_->name());
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  std::size_t read(char* out, std::size_t size) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out == size) {
      if (stream_.avail_in == 0 && !refill()) break;
      if (ended_) {
        inflateReset(&stream_);
        ended_ = false;
      }
      const int result = inflate(&stream_, Z_NO_FLUSH);
      check(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR, ExitCode::kData, "{}: damaged gzip data: {}",
            file_->name(), stream_.msg == nullptr ? "unknown reason" : stream_.msg);
      ended_ = result == Z_STREAM_END;
    }
    return size - stream_.avail_out;
  }
  std::int64_t consumed() const override { return file_->consumed(); }

 private:
  bool refill() {
    const std::size_t got = file_->read(input_.data(), input_.size());
    check(got > 0 || ended_, ExitCode::kData, "{}: gzip data is cut short", file_->name());
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(got);
    return got > 0;
  }

  std::unique_ptr<File> file_;
  std::vector<char> input_;
  z_stream stream_{};
  bool ended_ = false;
};

class Zstd : public ByteSource {
 public:
  explicit Zstd(std::unique_ptr<File> file) : file_(std::move(file)), input_(kBuffer), stream_(ZSTD_createDStream()) {
    check(stream_ != nullptr, ExitCode::kIo, "{}: zstd cannot be set up: no memory", file_->name());
    ZSTD_initDStream(stream_);
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;

  std::size_t read(char* out, std::size_t size) override {
    ZSTD_outBuffer output{out, size, 0};
    while (output.pos == 0) {
      // What the last call could not give out comes without new input.
      if (in_.pos == in_.size && !full_ && !refill()) break;
      pending_ = ZSTD_decompressStream(stream_, &output, &in_);
      check(ZSTD_isError(pending_) == 0, ExitCode::kData, "{}: damaged zstd data: {}", file_->name(),
            ZSTD_getErrorName(pending_));
      full_ = output.pos == output.size && pending_ != 0;
    }
    return output.pos;
  }
  std::int64_t consumed() const override { return file_->consumed(); }

 private:
  bool refill() {
    const std::size_t got = file_->read(input_.data(), input_.size());
    check(got > 0 || pending_ == 0, ExitCode::kData, "{}: zstd data is cut short", file_->name());
    in_ = {input_.data(), got, 0};
    return got > 0;
  }

  std::unique_ptr<File> file_;
  std::vector<char> input_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  std::size_t pending_ = 0;  ///< 0 between frames
  bool full_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> ByteSource::open(const std::string& path, const std::string& name) {
  auto file = std::make_unique<File>(path, name);
  const std::string head = file->peek(4);
  if (head.starts_with("\x1f\x8b")) return std::make_unique<Gzip>(std::move(file));
  if (head == "\x28\xb5\x2f\xfd") return std::make_unique<Zstd>(std::move(file));
  return file;
}

}  // namespace gau
