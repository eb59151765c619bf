// The communicator of a job that mpirun started. The only file that knows MPI.
//
// MPI_THREAD_FUNNELED: the main thread alone makes calls. A message is its header, with up to 4 KiB of data behind it in the
// same buffer; longer data follow as a second message of the same kind, straight from and into the caller's memory. The header
// is checked before the data count.
#include <mpi.h>

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "framework/communicator.h"
#include "framework/error.h"

namespace gau {
namespace {

constexpr std::size_t kInline = 4096;
// MPI counts in int.
constexpr std::size_t kLargestPart = std::size_t{1} << 30;

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

void require(int code, const char* call) { check(code == MPI_SUCCESS, ExitCode::kPeerLost, "{}: {}", call, error_text(code)); }

// The messages that one transfer is made of.
class Parts {
 public:
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  // True when all are through.
  bool done(const char* what, const Communicator& ranks, const Transfer& transfer) {
    int all = 0;
    const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE);
    check(code == MPI_SUCCESS, ExitCode::kPeerLost, "{} \"{}\" {}: {}", what, transfer.label().str(),
          ranks.describe(transfer.peer()), error_text(code));
    return all != 0;
  }

 private:
  std::vector<MPI_Request> requests_;
};

class MpiRanks;

class Sending final : public Transfer {
 public:
  Sending(const MpiRanks& ranks, int peer, const MessageLabel& label, const MessageHeader& header,
          std::span<const std::byte> data);
  bool done() override;

 private:
  const MpiRanks& ranks_;
  std::vector<std::byte> first_;
  Parts parts_;
  bool finished_ = false;
};

class Receiving final : public Transfer {
 public:
  Receiving(const MpiRanks& ranks, int peer, const MessageLabel& label, std::span<std::byte> data);
  bool done() override;

 private:
  const MpiRanks& ranks_;
  std::span<std::byte> data_;
  std::vector<std::byte> first_;
  Parts header_;
  bool checked_ = false;
  bool finished_ = false;
  Parts parts_;
};

class MpiRanks final : public Communicator {
 public:
  MpiRanks(int rank, int ranks) : Communicator(rank, std::vector<std::string>(static_cast<std::size_t>(ranks))) {
    std::array<char, 256> mine{};
    const std::string name = host_name();
    std::memcpy(mine.data(), name.data(), std::min(name.size(), mine.size() - 1));
    const auto all = all_gather(MessageLabel{}, mine);
    std::vector<std::string> hosts;
    for (const auto& host : all) hosts.emplace_back(host.data());
    set_hosts(std::move(hosts));
  }

  std::unique_ptr<Transfer> send(int peer, const MessageLabel& label, std::span<const std::byte> data) override {
    return std::make_unique<Sending>(*this, peer, label, header_of(label, data.size()), data);
  }
  std::unique_ptr<Transfer> receive(int peer, const MessageLabel& label, std::span<std::byte> data) override {
    return std::make_unique<Receiving>(*this, peer, label, data);
  }
  void progress() override {
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  }
  void finish() override {
    barrier({MessageKind::kFinish});
    set_timeout(0);
    MPI_Finalize();
  }

  void check_arrived(const MessageHeader& got, int peer, const MessageLabel& expected, std::size_t bytes) const {
    check_header(got, peer, expected, bytes);
  }
};

int tag_of(const MessageLabel& label) { return static_cast<int>(label.kind); }

int part_bytes(std::size_t total, std::size_t offset) { return static_cast<int>(std::min(kLargestPart, total - offset)); }

Sending::Sending(const MpiRanks& ranks, int peer, const MessageLabel& label, const MessageHeader& header,
                 std::span<const std::byte> data)
    : Transfer(peer, label), ranks_(ranks) {
  const std::size_t behind = data.size() <= kInline ? data.size() : 0;
  first_.resize(sizeof header + behind);
  std::memcpy(first_.data(), &header, sizeof header);
  if (behind > 0) std::memcpy(first_.data() + sizeof header, data.data(), behind);
  const auto start = [&](const std::byte* bytes, int count) {
    require(MPI_Isend(bytes, count, MPI_BYTE, peer, tag_of(label), MPI_COMM_WORLD, parts_.add()), "MPI_Isend");
  };
  start(first_.data(), static_cast<int>(first_.size()));
  for (std::size_t at = behind; at < data.size(); at += kLargestPart) start(data.data() + at, part_bytes(data.size(), at));
}

bool Sending::done() {
  if (!finished_) finished_ = parts_.done("sending", ranks_, *this);
  return finished_;
}

Receiving::Receiving(const MpiRanks& ranks, int peer, const MessageLabel& label, std::span<std::byte> data)
    : Transfer(peer, label), ranks_(ranks), data_(data), first_(sizeof(MessageHeader) + kInline) {
  const auto start = [&](std::byte* bytes, int count, MPI_Request* request) {
    require(MPI_Irecv(bytes, count, MPI_BYTE, peer, tag_of(label), MPI_COMM_WORLD, request), "MPI_Irecv");
  };
  start(first_.data(), static_cast<int>(first_.size()), header_.add());
  if (data.size() <= kInline) return;
  for (std::size_t at = 0; at < data.size(); at += kLargestPart)
    start(data.data() + at, part_bytes(data.size(), at), parts_.add());
}

bool Receiving::done() {
  if (finished_) return true;
  if (!checked_) {
    if (!header_.done("receiving", ranks_, *this)) return false;
    MessageHeader header;
    std::memcpy(&header, first_.data(), sizeof header);
    ranks_.check_arrived(header, peer(), label(), data_.size());
    if (data_.size() <= kInline && !data_.empty()) std::memcpy(data_.data(), first_.data() + sizeof header, data_.size());
    checked_ = true;
  }
  finished_ = parts_.done("receiving", ranks_, *this);
  return finished_;
}

}  // namespace

std::unique_ptr<Communicator> start_ranks() {
  if (launched_ranks() == 1) return single_rank();
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  check(provided >= MPI_THREAD_FUNNELED, ExitCode::kUsage, "this MPI gives no MPI_THREAD_FUNNELED, which is needed");
  // Errors come back as codes, so that the line that is printed is ours and names the rank.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return std::make_unique<MpiRanks>(rank, ranks);
}

const char* communication_library() {
  static const std::string name = [] {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string whole(text.data(), static_cast<std::size_t>(length));
    return whole.substr(0, whole.find(','));
  }();
  return name.c_str();
}

}  // namespace gau
