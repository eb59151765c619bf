// Preloaded into one rank's program: at a chosen message something goes wrong. The program itself has no such switch.
//
// GAU_TEST_FAULT="RANK STEP BUCKET KIND ACTION" names the message by its header (framework/communicator.h; kind as a number)
// and what happens when the rank is about to send it: kill, stop, segv, usr1 (signals to itself), throw, exit, skip (the
// message is never sent), nan (the first float of what follows is not a number). A step below 0 means every step.
#include <mpi.h>
#include <signal.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>

namespace {

struct Fault {
  int rank = -1;
  long long step = 0, bucket = 0;
  unsigned kind = 0;
  std::string action;
};

Fault read_fault() {
  Fault fault;
  const char* const text = std::getenv("GAU_TEST_FAULT");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) rank = std::getenv("PMI_RANK");
  if (text == nullptr || rank == nullptr) return fault;
  std::istringstream(text) >> fault.rank >> fault.step >> fault.bucket >> fault.kind >> fault.action;
  if (fault.rank != std::atoi(rank)) fault.rank = -1;
  return fault;
}

struct Header {
  std::uint32_t magic, kind;
  std::int64_t step, bucket;
  std::uint64_t bytes;
};

bool is_meant(const Fault& fault, const void* data, int bytes) {
  Header header{};
  if (fault.rank < 0 || bytes < static_cast<int>(sizeof header)) return false;
  std::memcpy(&header, data, sizeof header);
  return header.magic == 0x67617531U && header.kind == fault.kind && (fault.step < 0 || header.step == fault.step) &&
         header.bucket == fault.bucket;
}

// Floats behind a short message's header.
void spoil(const void* data, int bytes) {
  const float bad = std::nanf("");
  if (bytes < static_cast<int>(sizeof(Header) + sizeof bad)) return;
  std::memcpy(static_cast<char*>(const_cast<void*>(data)) + sizeof(Header), &bad, sizeof bad);
}

}  // namespace

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  static const Fault fault = read_fault();
  if (is_meant(fault, data, count)) {
    if (fault.action == "kill") raise(SIGKILL);
    if (fault.action == "stop") raise(SIGSTOP);
    if (fault.action == "segv") raise(SIGSEGV);
    if (fault.action == "usr1") raise(SIGUSR1);
    if (fault.action == "exit") std::exit(0);
    if (fault.action == "throw") throw std::runtime_error("broken on purpose");
    if (fault.action == "nan") spoil(data, count);
    if (fault.action == "skip") {
      *request = MPI_REQUEST_NULL;
      return MPI_SUCCESS;
    }
  }
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}
