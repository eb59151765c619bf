// Communicator: the ranks of one job talking to each other.
//
// One process (every call does nothing), several threads of one process (framework/thread_ranks.h, for tests), or MPI
// (framework/mpi/). Only point-to-point messages and failing differ between them; the collectives are built on those here, each
// rank sending to each other one. That is more messages than a tree would need, but nobody waits for a third: the rank that a
// waiting rank names is the one that is missing, and sums can be made in any order that we choose.
//
// Every message carries what it is about, and the receiver states what it expects. A rank that has left out an exchange is so
// found at the next message instead of running on misaligned.
//
// All calls come from one thread of the rank. Nothing advances by itself: call progress() between pieces of work.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/watchdog.h"

namespace gau {

/// What a message is for. Messages between two ranks arrive in the order sent within a kind, not across kinds.
enum class MessageKind : std::uint32_t {
  kStart,       ///< checks before the first step
  kControl,     ///< flags and sums of a step
  kGradient,    ///< gradients on their way to the owner of a slice
  kSum,         ///< their sums on the way back
  kParameters,  ///< updated by the owner of a slice
  kMoments,     ///< of the optimizer, on their way to a file
  kSave,        ///< agreeing on a checkpoint
  kEvaluation,  ///< losses of validation or evaluation
  kKeys,        ///< keys and values of a sequence that ranks share
  kKeyGradients,
  kReplicas,  ///< digests that must be equal
  kFinish,
};
/// "gradient", as messages to people name it.
const char* name_of(MessageKind kind);

/// What a message is about; negative numbers stand for none.
struct MessageLabel {
  MessageKind kind = MessageKind::kStart;
  std::int64_t step = -1;
  std::int64_t bucket = -1;  ///< of a gradient; a layer, a part or a number in other kinds

  bool operator==(const MessageLabel&) const = default;
  /// "step 12, bucket 3, gradient"
  std::string str() const;
};

/// A label and the number of bytes that follow, as sent.
struct MessageHeader {
  std::uint32_t magic = 0;
  std::uint32_t kind = 0;
  std::int64_t step = 0;
  std::int64_t bucket = 0;
  std::uint64_t bytes = 0;
};

/// A message on its way. The bytes belong to the caller and must stay, unchanged, until done() is true.
class Transfer {
 public:
  Transfer(int peer, const MessageLabel& label) : peer_(peer), label_(label) {}
  virtual ~Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// Makes progress; true once the bytes have arrived, or may be changed. Throws Error(kPeerLost) when the peer is gone or sent
  /// something else than was expected.
  virtual bool done() = 0;

  int peer() const { return peer_; }
  const MessageLabel& label() const { return label_; }

 private:
  int peer_;
  MessageLabel label_;
};

class Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  const std::string& host() const { return host(rank_); }
  const std::string& host(int rank) const { return hosts_.at(static_cast<std::size_t>(rank)); }
  /// "rank 2 (node7)"
  std::string describe(int rank) const;

  /// Starts sending `data` to another rank. Both sides call with equal labels and sizes.
  virtual std::unique_ptr<Transfer> send(int peer, const MessageLabel& label, std::span<const std::byte> data) = 0;
  /// Starts receiving into `data`.
  virtual std::unique_ptr<Transfer> receive(int peer, const MessageLabel& label, std::span<std::byte> data) = 0;
  /// Lets messages advance.
  virtual void progress() = 0;
  /// Ends an orderly job; all ranks call it. A rank that fails must not: it leaves the process, which ends the job.
  virtual void finish() {}

  /// Waits until the transfer is done. After `timeout()` seconds the process ends with code 76 and one line that names rank,
  /// host and label.
  void wait(Transfer& transfer);
  /// Longest wait for another rank, seconds; 0 (the start) waits for ever.
  void set_timeout(double seconds);

  /// `all` gets the `mine` of every rank in the order of ranks: size() · mine.size() bytes.
  void all_gather(const MessageLabel& label, std::span<const std::byte> mine, std::span<std::byte> all);
  /// The same for a plain value.
  template <class T>
  std::vector<T> all_gather(const MessageLabel& label, const T& mine);
  /// The same for texts of any length.
  std::vector<std::string> all_gather_text(const MessageLabel& label, const std::string& mine);
  /// Everybody's `data` becomes that of rank `root`.
  void broadcast(const MessageLabel& label, int root, std::span<std::byte> data);
  std::string broadcast_text(const MessageLabel& label, int root, const std::string& text);
  /// Returns once every rank has come here.
  void barrier(const MessageLabel& label);

 protected:
  /// `hosts` by rank.
  Communicator(int rank, std::vector<std::string> hosts);
  static MessageHeader header_of(const MessageLabel& label, std::size_t bytes);
  /// Throws Error(kPeerLost) when `got`, from `peer`, is not what was expected.
  void check_header(const MessageHeader& got, int peer, const MessageLabel& expected, std::size_t bytes) const;
  void set_hosts(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }

 private:
  int rank_;
  std::vector<std::string> hosts_;
  std::unique_ptr<Watchdog> watchdog_;
};

/// A job of one process.
std::unique_ptr<Communicator> single_rank();
/// The same, for whoever needs a communicator and has none.
Communicator& one_rank();

/// The ranks that this process was started as one of: MPI's when a launcher started more than one, else a single one. Throws
/// Error(kUsage) when a launcher started several and this build has no MPI. Call it once, from the main thread.
std::unique_ptr<Communicator> start_ranks();
/// How many processes the launcher says it started; 1 without a launcher.
int launched_ranks();
/// "Open MPI 4.1.4", or "none".
const char* communication_library();

/// This machine's name.
std::string host_name();

template <class T>
std::vector<T> Communicator::all_gather(const MessageLabel& label, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(size()));
  all_gather(label, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

}  // namespace gau
