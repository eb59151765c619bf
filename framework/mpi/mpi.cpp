// The communicator of a job that mpirun started. The only file that knows MPI.
//
// MPI_THREAD_FUNNELED: the main thread alone makes calls. A message is its header, with up to 4 KiB of data behind it in the
// same buffer; longer data follow as a second message, straight from and into the caller's memory. That is received only after
// the header was found right: data that are longer than expected would be written beyond their place. So that nobody's data
// wait for the moment in which just that receive is asked about, progress() looks at the headers of all. Headers of a kind
// share a tag and so keep their order; data have a tag by number, since which of several headers is looked at first is open.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
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
  Sending(const MpiRanks& ranks, const MessageLabel& label, int peer, int data_tag, std::span<const std::byte> data);
  bool done() override;

 private:
  const MpiRanks& ranks_;
  std::vector<std::byte> first_;
  Parts parts_;
  bool finished_ = false;
};

class Receiving final : public Transfer {
 public:
  Receiving(MpiRanks& ranks, const MessageLabel& label, int peer, int data_tag, std::span<std::byte> data);
  ~Receiving() override;
  bool done() override;
  /// Receives the data once the header is here; true when it is.
  bool look_at_header();

 private:
  void take_header();

  MpiRanks& ranks_;
  int data_tag_;
  std::span<std::byte> data_;
  std::vector<std::byte> first_;
  Parts header_;
  bool checked_ = false;
  bool finished_ = false;
  Parts parts_;
};

int header_tag(MessageKind kind) { return static_cast<int>(kind); }

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
    return std::make_unique<Sending>(*this, label, peer, data_tag(label.kind, sent_[{peer, label.kind}]++), data);
  }
  std::unique_ptr<Transfer> receive(int peer, const MessageLabel& label, std::span<std::byte> data) override {
    return std::make_unique<Receiving>(*this, label, peer, data_tag(label.kind, received_[{peer, label.kind}]++), data);
  }
  void progress() override {
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    const std::vector<Receiving*> open = without_header_;
    for (Receiving* const message : open) message->look_at_header();
  }
  void await_header(Receiving& message) { without_header_.push_back(&message); }
  void forget_header(Receiving& message) { std::erase(without_header_, &message); }
  void finish() override {
    barrier({MessageKind::kFinish});
    set_timeout(0);
    MPI_Finalize();
  }

  void check_arrived(const MessageHeader& got, int peer, const MessageLabel& expected, std::size_t bytes) const {
    check_header(got, peer, expected, bytes);
  }
  static MessageHeader header(const MessageLabel& label, std::size_t bytes) { return header_of(label, bytes); }

 private:
  using Numbers = std::map<std::pair<int, MessageKind>, std::uint32_t>;  // of messages so far, by peer and kind

  static int data_tag(MessageKind kind, std::uint32_t number) {
    return (1 + static_cast<int>(kind)) * (1 << 16) + static_cast<int>(number % (1U << 16));
  }

  Numbers sent_, received_;
  std::vector<Receiving*> without_header_;  // in the order in which they were made
};

int part_bytes(std::size_t total, std::size_t offset) { return static_cast<int>(std::min(kLargestPart, total - offset)); }

Sending::Sending(const MpiRanks& ranks, const MessageLabel& label, int peer, int data_tag, std::span<const std::byte> data)
    : Transfer(peer, label), ranks_(ranks) {
  const MessageHeader header = MpiRanks::header(label, data.size());
  const std::size_t behind = data.size() <= kInline ? data.size() : 0;
  first_.resize(sizeof header + behind);
  std::memcpy(first_.data(), &header, sizeof header);
  if (behind > 0) std::memcpy(first_.data() + sizeof header, data.data(), behind);
  const auto start = [&](const std::byte* bytes, int count, int tag) {
    require(MPI_Isend(bytes, count, MPI_BYTE, peer, tag, MPI_COMM_WORLD, parts_.add()), "MPI_Isend");
  };
  start(first_.data(), static_cast<int>(first_.size()), header_tag(label.kind));
  for (std::size_t at = behind; at < data.size(); at += kLargestPart)
    start(data.data() + at, part_bytes(data.size(), at), data_tag);
}

bool Sending::done() {
  if (!finished_) finished_ = parts_.done("sending", ranks_, *this);
  return finished_;
}

Receiving::Receiving(MpiRanks& ranks, const MessageLabel& label, int peer, int data_tag, std::span<std::byte> data)
    : Transfer(peer, label), ranks_(ranks), data_tag_(data_tag), data_(data), first_(sizeof(MessageHeader) + kInline) {
  require(MPI_Irecv(first_.data(), static_cast<int>(first_.size()), MPI_BYTE, peer, header_tag(label.kind), MPI_COMM_WORLD,
                    header_.add()),
          "MPI_Irecv");
  ranks_.await_header(*this);
}

Receiving::~Receiving() { ranks_.forget_header(*this); }

void Receiving::take_header() {
  MessageHeader header;
  std::memcpy(&header, first_.data(), sizeof header);
  ranks_.check_arrived(header, peer(), label(), data_.size());
  checked_ = true;
  if (data_.size() <= kInline) {
    if (!data_.empty()) std::memcpy(data_.data(), first_.data() + sizeof header, data_.size());
    return;
  }
  for (std::size_t at = 0; at < data_.size(); at += kLargestPart) {
    require(
        MPI_Irecv(data_.data() + at, part_bytes(data_.size(), at), MPI_BYTE, peer(), data_tag_, MPI_COMM_WORLD, parts_.add()),
        "MPI_Irecv");
  }
}

bool Receiving::look_at_header() {
  if (checked_) return true;
  if (!header_.done("receiving", ranks_, *this)) return false;
  ranks_.forget_header(*this);
  take_header();
  return true;
}

bool Receiving::done() {
  if (finished_) return true;
  if (!look_at_header()) return false;
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
  check(ranks == launched_ranks(), ExitCode::kUsage,
        "the launcher started {} processes, but {} tells this one of {}: start them with the mpirun of the same MPI",
        launched_ranks(), communication_library(), ranks);
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
