// Messages between the ranks.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collective/common/launch.h"

namespace mojo {

using Clock = std::chrono::steady_clock;

inline Clock::duration Duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Failure is why an exchange ended: a text, the rank that is to blame (-1 if unknown), and the cause.
struct Failure {
  enum Cause : uint32_t { kOther, kEnded, kLate, kPlan, kNode, kSize };
  std::string text;
  int culprit = -1;
  Cause cause = kOther;
};

// Fail writes a failure from a printf format, and returns false.
bool Fail(Failure* failure, int culprit, Failure::Cause cause, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

// Header begins every message. All ranks must have one byte order.
struct Header {
  enum Kind : uint32_t { kData, kAbort, kHello, kWelcome, kTable, kBeat, kBye };
  static constexpr uint64_t kMagic = 0x326b6e61726f6a6dULL;  // "mjorank2", which has the version of the protocol

  uint64_t magic = kMagic;
  uint32_t kind = kData;
  uint32_t rank = 0, ranks = 0;
  uint32_t culprit = 0, cause = 0;  // kAbort: of the failure
  uint32_t port = 0;                // kHello: where the rank listens
  uint64_t sequence = 0;            // number of the exchange; kHello and kTable: a number that strangers do not know
  uint64_t plan = 0, node = 0;      // hashes
  uint64_t bytes = 0;               // of the whole exchange
  char name[64] = "";               // of the node
};
static_assert(sizeof(Header) == 128, "without padding");

// kJoinVariable is the variable with the seconds until which all ranks must have connected, and loaded their models.
constexpr char kJoinVariable[] = "MOJO_COLLECTIVE_JOIN_TIMEOUT";

// kBeatTime is the time between two beats of a rank.
constexpr auto kBeatTime = std::chrono::milliseconds(500);

// kTimeout is the seconds after which a silent rank counts as dead, unless $MOJO_COLLECTIVE_TIMEOUT says otherwise.
constexpr double kTimeout = 8;

// Vigil decides when a rank that others wait for counts as dead. In the first exchange, a rank may load its model for
// patience, but it must beat. Later, or once all ranks have begun the exchange, something must move.
class Vigil {
 public:
  Vigil(bool first, Clock::duration patience, size_t ranks)
      : first_(first), patience_(patience), looked_(Clock::now()), moved_(looked_), heard_(ranks, looked_) {}

  void Moved() { moved_ = Clock::now(); }
  void Heard(int rank) { heard_[static_cast<size_t>(rank)] = Clock::now(); }
  // Still returns how long nothing has moved.
  Clock::duration Still() const { return looked_ - moved_; }
  // Look reports whether to wait on. late is a rank that is waited for; begun: all ranks have begun the exchange.
  bool Look(int late, bool begun, Failure* failure);

 private:
  const bool first_;
  const Clock::duration patience_, silence_ = Duration(Seconds("MOJO_COLLECTIVE_TIMEOUT", kTimeout));
  Clock::time_point looked_, moved_;
  std::vector<Clock::time_point> heard_;
};

// Busy is a lock of a flag, for short waits: unlike std::mutex, it can be tried with any C library.
class Busy {
 public:
  // Without wait, the lock may fail.
  Busy(std::atomic<bool>* flag, bool wait) : flag_(flag) {
    while (!(held_ = !flag->exchange(true)) && wait) std::this_thread::yield();
  }
  ~Busy() {
    if (held_) *flag_ = false;
  }
  bool held() const { return held_; }

 private:
  std::atomic<bool>* const flag_;
  bool held_ = false;
};

// CheckHeader reports whether a message is the one that is expected from a rank: of the same exchange as mine.
bool CheckHeader(const Header& mine, const Header& theirs, int rank, Failure* failure);

// Part is bytes to send to a rank, Place memory for bytes from a rank.
struct Part {
  const char* data;
  size_t bytes;
};
struct Place {
  char* data;
  size_t bytes;
};

// Transport moves messages between this rank and all others.
class Transport {
 public:
  virtual ~Transport() = default;

  // Exchange sends to each other rank r the header and send[r], and receives its header and receive[r]. It returns
  // false if a header is wrong, a rank has ended, or nothing moves for patience (see Vigil). No later exchange is
  // possible then.
  virtual bool Exchange(const Header& mine, const Part* send, const Place* receive, Clock::duration patience,
                        Failure* failure) = 0;

  // Beat tells the other ranks that this one is alive. It returns false once the first exchange has begun: no more
  // beats are needed. Another thread may call Exchange.
  virtual bool Beat() = 0;

  // Abort tells the other ranks, as far as possible, why this rank gives up.
  virtual void Abort(const Header& mine, const Failure& failure) = 0;

  // Finalize ends a transport that works.
  virtual void Finalize() = 0;
};

// OpenMPI connects the ranks by the MPI library that started them. OpenSockets connects them by TCP, through rank 0 at
// MASTER_ADDR and MASTER_PORT. They return null, with the failure, after patience.
std::unique_ptr<Transport> OpenMPI(const Launch& launch, Failure* failure);
std::unique_ptr<Transport> OpenSockets(const Launch& launch, Clock::duration patience, Failure* failure);

}  // namespace mojo
