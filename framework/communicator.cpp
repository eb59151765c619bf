// Collectives over point-to-point messages, and the communicator of a single process.
#include "framework/communicator.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "framework/error.h"

namespace gau {
namespace {

constexpr std::uint32_t kMagic = 0x67617531;  // "gau1"

// Polls before a waiting rank lets others have the processor, and before it sleeps between polls.
constexpr int kSpins = 200;
constexpr int kYields = 2000;
constexpr std::chrono::microseconds kNap(50);

std::string number_text(const char* name, std::int64_t value) { return value < 0 ? "" : fmt::format("{} {}, ", name, value); }

class SingleRank final : public Communicator {
 public:
  SingleRank() : Communicator(0, {host_name()}) {}
  std::unique_ptr<Transfer> send(int peer, const MessageLabel& label, std::span<const std::byte>) override {
    fail(ExitCode::kPeerLost, "{}: a message to rank {} in a job of one rank", label.str(), peer);
  }
  std::unique_ptr<Transfer> receive(int peer, const MessageLabel& label, std::span<std::byte>) override {
    fail(ExitCode::kPeerLost, "{}: a message from rank {} in a job of one rank", label.str(), peer);
  }
  void progress() override {}
};

}  // namespace

const char* name_of(MessageKind kind) {
  static constexpr std::array kNames{"start", "control",    "gradient", "sum",           "parameters", "moments",
                                     "save",  "evaluation", "keys",     "key gradients", "replicas",   "finish"};
  const auto index = static_cast<std::size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string MessageLabel::str() const { return number_text("step", step) + number_text("bucket", bucket) + name_of(kind); }

Communicator::Communicator(int rank, std::vector<std::string> hosts) : rank_(rank), hosts_(std::move(hosts)) {}
Communicator::~Communicator() = default;

std::string Communicator::describe(int rank) const { return fmt::format("rank {} ({})", rank, host(rank)); }

MessageHeader Communicator::header_of(const MessageLabel& label, std::size_t bytes) {
  return {kMagic, static_cast<std::uint32_t>(label.kind), label.step, label.bucket, bytes};
}

void Communicator::check_header(const MessageHeader& got, int peer, const MessageLabel& expected, std::size_t bytes) const {
  check(got.magic == kMagic, ExitCode::kPeerLost, "{}: a message from {} is not one of this program's", expected.str(),
        describe(peer));
  const MessageLabel label{static_cast<MessageKind>(got.kind), got.step, got.bucket};
  check(label == expected && got.bytes == bytes, ExitCode::kPeerLost,
        "{} sent \"{}\" ({} bytes) where \"{}\" ({} bytes) was expected: the ranks no longer do the same work", describe(peer),
        label.str(), got.bytes, expected.str(), bytes);
}

void Communicator::set_timeout(double seconds) {
  watchdog_.reset();
  if (size() > 1 && seconds > 0) watchdog_ = std::make_unique<Watchdog>(seconds);
}

void Communicator::wait(Transfer& transfer) {
  if (transfer.done()) return;
  struct EndOfWait {
    Watchdog* watchdog;
    ~EndOfWait() {
      if (watchdog != nullptr) watchdog->end();
    }
  } const end{watchdog_.get()};
  if (watchdog_) {
    watchdog_->begin(fmt::format("gau: {}: gave up waiting for {} at {}", describe(rank_), describe(transfer.peer()),
                                 transfer.label().str()));
  }
  // What this rank still receives may be what the awaited one waits for.
  for (int polls = 0; !transfer.done(); ++polls) {
    progress();
    if (polls < kSpins) continue;
    if (polls < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

void Communicator::all_gather(const MessageLabel& label, std::span<const std::byte> mine, std::span<std::byte> all) {
  const std::size_t bytes = mine.size();
  check(all.size() == bytes * static_cast<std::size_t>(size()), ExitCode::kPeerLost, "{}: {} bytes for {} ranks of {}",
        label.str(), all.size(), size(), bytes);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (int peer = 0; peer < size(); ++peer) {
    const std::span<std::byte> part = all.subspan(static_cast<std::size_t>(peer) * bytes, bytes);
    if (peer == rank_) {
      if (bytes > 0) std::memcpy(part.data(), mine.data(), bytes);
      continue;
    }
    transfers.push_back(receive(peer, label, part));
    transfers.push_back(send(peer, label, mine));
  }
  for (const auto& transfer : transfers) wait(*transfer);
}

std::vector<std::string> Communicator::all_gather_text(const MessageLabel& label, const std::string& mine) {
  const std::vector<std::uint64_t> sizes = all_gather(label, static_cast<std::uint64_t>(mine.size()));
  std::vector<std::string> all(sizes.size());
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (int peer = 0; peer < size(); ++peer) {
    std::string& text = all[static_cast<std::size_t>(peer)];
    text.resize(sizes[static_cast<std::size_t>(peer)]);
    if (peer == rank_) {
      text = mine;
      continue;
    }
    transfers.push_back(receive(peer, label, std::as_writable_bytes(std::span(text))));
    transfers.push_back(send(peer, label, std::as_bytes(std::span(mine))));
  }
  for (const auto& transfer : transfers) wait(*transfer);
  return all;
}

void Communicator::broadcast(const MessageLabel& label, int root, std::span<std::byte> data) {
  if (rank_ != root) {
    wait(*receive(root, label, data));
    return;
  }
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != root) transfers.push_back(send(peer, label, data));
  }
  for (const auto& transfer : transfers) wait(*transfer);
}

std::string Communicator::broadcast_text(const MessageLabel& label, int root, const std::string& text) {
  std::uint64_t bytes = text.size();
  broadcast(label, root, std::as_writable_bytes(std::span(&bytes, 1)));
  std::string result = text;
  result.resize(bytes);
  broadcast(label, root, std::as_writable_bytes(std::span(result)));
  return result;
}

void Communicator::barrier(const MessageLabel& label) { all_gather(label, char{0}); }

std::unique_ptr<Communicator> single_rank() { return std::make_unique<SingleRank>(); }

Communicator& one_rank() {
  static SingleRank instance;
  return instance;
}

int launched_ranks() {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    const char* const text = std::getenv(name);
    if (text == nullptr) continue;
    const std::string_view view(text);
    int ranks = 0;
    const auto result = std::from_chars(view.data(), view.data() + view.size(), ranks);
    if (result.ec == std::errc() && ranks >= 1) return ranks;
  }
  return 1;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

}  // namespace gau
