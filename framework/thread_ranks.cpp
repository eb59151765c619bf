// Mailboxes between threads.
#include "framework/thread_ranks.h"

#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "framework/error.h"

namespace gau {
namespace {

struct Mail {
  MessageHeader header;
  std::vector<std::byte> data;
};

struct Hub {
  std::mutex mutex;
  std::map<std::tuple<int, int, MessageKind>, std::deque<Mail>> boxes;  // sender, receiver, kind
  int failed = -1;                                                      // the first rank that threw
  std::exception_ptr error;
};

class Delivered final : public Transfer {
 public:
  using Transfer::Transfer;
  bool done() override { return true; }
};

class ThreadRank final : public Communicator {
 public:
  ThreadRank(Hub& hub, int rank, int ranks)
      : Communicator(rank, std::vector<std::string>(static_cast<std::size_t>(ranks), "thread")), hub_(hub) {}

  std::unique_ptr<Transfer> send(int peer, const MessageLabel& label, std::span<const std::byte> data) override {
    const std::lock_guard lock(hub_.mutex);
    hub_.boxes[{rank(), peer, label.kind}].push_back({header_of(label, data.size()), {data.begin(), data.end()}});
    return std::make_unique<Delivered>(peer, label);
  }

  std::unique_ptr<Transfer> receive(int peer, const MessageLabel& label, std::span<std::byte> data) override {
    // Messages of a kind go to receives in the order of these, whichever is asked first.
    auto arrival = std::make_shared<Arrival>(Arrival{data, label, false});
    waiting_[{peer, label.kind}].push_back(arrival);
    return std::make_unique<Expected>(*this, peer, label, std::move(arrival));
  }

  void progress() override {
    for (auto& [from, arrivals] : waiting_) {
      while (!arrivals.empty() && deliver(from.first, *arrivals.front())) arrivals.pop_front();
    }
  }

 private:
  struct Arrival {
    std::span<std::byte> data;
    MessageLabel label;
    bool here;
  };

  class Expected final : public Transfer {
   public:
    Expected(ThreadRank& owner, int peer, const MessageLabel& label, std::shared_ptr<Arrival> arrival)
        : Transfer(peer, label), owner_(owner), arrival_(std::move(arrival)) {}
    bool done() override {
      if (!arrival_->here) owner_.progress();
      return arrival_->here;
    }

   private:
    ThreadRank& owner_;
    std::shared_ptr<Arrival> arrival_;
  };

  bool deliver(int peer, Arrival& arrival) {
    const std::lock_guard lock(hub_.mutex);
    std::deque<Mail>& box = hub_.boxes[{peer, rank(), arrival.label.kind}];
    if (box.empty()) {
      if (hub_.failed >= 0) fail(ExitCode::kPeerLost, "{}: {} has failed", arrival.label.str(), describe(hub_.failed));
      return false;
    }
    check_header(box.front().header, peer, arrival.label, arrival.data.size());
    std::copy(box.front().data.begin(), box.front().data.end(), arrival.data.begin());
    box.pop_front();
    arrival.here = true;
    return true;
  }

  Hub& hub_;
  std::map<std::pair<int, MessageKind>, std::deque<std::shared_ptr<Arrival>>> waiting_;
};

}  // namespace

void run_as_threads(int ranks, const std::function<void(Communicator&)>& body) {
  Hub hub;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadRank communicator(hub, rank, ranks);
      try {
        body(communicator);
      } catch (...) {
        const std::lock_guard lock(hub.mutex);
        if (hub.failed < 0) {
          hub.failed = rank;
          hub.error = std::current_exception();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (hub.error) std::rethrow_exception(hub.error);
}

}  // namespace gau
