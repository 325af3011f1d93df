#include "collective/common/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <new>
#include <thread>

namespace mojo {
namespace {

// Seconds until which all ranks must have begun.
constexpr double kJoinTimeout = 600;

// Seconds that a process which ends waits for the others: until they know it, and until they end, too.
constexpr double kLeaveTimeout = 5;

// Group is the ranks of the process. Its memory is never freed: a failed transport may still write there.
struct Group {
  std::mutex mutex;  // of a turn
  std::atomic<bool> begun{false}, joined{false};
  Launch launch;
  Clock::time_point begin;
  std::unique_ptr<Transport> transport;  // once joined is set. Null: refusal says why
  Failure refusal;
  Failure failure;  // of an earlier exchange: its text is not empty
  uint64_t sequence = 0;
  std::vector<uint64_t> plans;  // of which an exchange succeeded
  char* staging = nullptr;
  size_t size = 0;
};

Group& TheGroup() {
  static Group& group = *new Group;
  return group;
}

// Hash is FNV-1a, continued from an earlier hash.
uint64_t Hash(const char* text, uint64_t hash = 14695981039346656037u) {
  do {
    hash = (hash ^ static_cast<unsigned char>(*text)) * 1099511628211u;
  } while (*text++ != 0);
  return hash;
}

double JoinTimeout() { return Seconds(kJoinVariable, kJoinTimeout); }

// Open connects this rank to the others.
void Open(Group* group) {
  const bool sockets = getenv("MASTER_ADDR") != nullptr && getenv("MASTER_PORT") != nullptr;
  if (group->launch.mpi) {
    group->transport = OpenMPI(group->launch, &group->refusal);
    if (group->transport != nullptr || !sockets) return;
  }
  group->transport = OpenSockets(group->launch, Duration(JoinTimeout()), &group->refusal);
}

// Join is the thread that connects this rank to the others, and beats while the model is loaded.
void Join() {
  Group& group = TheGroup();
  try {
    Open(&group);
  } catch (...) {
    Fail(&group.refusal, -1, Failure::kOther, "out of memory");
  }
  group.joined = true;
  while (group.transport != nullptr && group.transport->Beat()) std::this_thread::sleep_for(kBeatTime);
}

// Joined waits until the ranks are connected, and reports whether the wait has ended in time.
bool Joined(const Group& group, Clock::time_point until) {
  while (!group.joined) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

void Finalize() {
  Group& group = TheGroup();
  if (!group.begun || !Joined(group, Clock::now() + Duration(kLeaveTimeout))) return;
  const std::lock_guard<std::mutex> lock(group.mutex);
  if (group.transport == nullptr || !group.failure.text.empty()) return;
  // No rank ends before the others have what it sent, and have given back its memory. MPI ends ranks that still work if
  // another one ends without MPI_Finalize.
  Header bye;
  bye.kind = Header::kBye;
  bye.rank = static_cast<uint32_t>(group.launch.rank);
  bye.ranks = static_cast<uint32_t>(group.launch.ranks);
  const std::vector<Part> nothing(bye.ranks, Part{nullptr, 0});
  const std::vector<Place> nowhere(bye.ranks, Place{nullptr, 0});
  const double patience = group.launch.mpi && !group.plans.empty() ? JoinTimeout() : kLeaveTimeout;
  const bool all = group.transport->Exchange(bye, nothing.data(), nowhere.data(), Duration(patience), &group.failure);
  if (all) group.transport->Finalize();
  group.failure.text = "the exchanges of this process are finalized";
}

void Begin(const Launch& launch) {
  if (launch.ranks < 2) return;
  static const bool begun = [&launch] {
    Group& group = TheGroup();
    group.launch = launch;
    group.begin = Clock::now();
    group.begun = true;
    atexit(Finalize);
#ifdef _WIN32
    Join();
#else
    std::thread(Join).detach();
#endif
    return true;
  }();
  (void)begun;
}

bool Exchanged(Group* group, const Header& header, const Part* send, const Place* receive) {
  if (!group->failure.text.empty()) return false;
  // The transports have their own limit. MPI_Init has no limit.
  if (!Joined(*group, group->begin + Duration(JoinTimeout() + kLeaveTimeout))) {
    return Fail(&group->failure, -1, Failure::kLate,
                "MPI did not connect the ranks within %.0f s (%s): a rank ended before it opened its model, or hangs",
                JoinTimeout(), kJoinVariable);
  }
  if (group->transport == nullptr) {
    group->failure = group->refusal;
    return false;
  }
  double seconds = Seconds("MOJO_COLLECTIVE_TIMEOUT", kTimeout);
  bool known = false;
  for (const uint64_t plan : group->plans) known = known || plan == header.plan;
  if (!known) seconds = JoinTimeout();
  if (!group->transport->Exchange(header, send, receive, Duration(seconds), &group->failure)) {
    group->transport->Abort(header, group->failure);
    return false;
  }
  if (!known) group->plans.push_back(header.plan);
  return true;
}

}  // namespace

OrtStatus* Member::Init(const KernelInit& init, int64_t of_rank, int64_t of_ranks, const Text& plan) {
  rank = static_cast<int>(of_rank);
  ranks = static_cast<int>(of_ranks);
  if (rank >= ranks) return BadAttribute(init, "rank", of_rank, "less than ranks");
  if (ranks == 1) return nullptr;
  try {
    Launch launch;
    std::string error;
    if (!ReadLaunch(&launch, &error)) {
      return Errorf(init.api, "mojo.%s: the model is rank %d of %d: %s", init.def.name, rank, ranks, error.c_str());
    }
    if (launch.rank != rank || launch.ranks != ranks) {
      return Errorf(
          init.api,
          "mojo.%s: the model is rank %d of %d, and %s makes this process rank %d of %d: start one process for "
          "each rank, and open rank-%d.onnx in this one",
          init.def.name, rank, ranks, launch.variable, launch.rank, launch.ranks, launch.rank);
    }
    char name[256] = "";
    size_t size = sizeof(name);
    if (OrtStatus* s = init.api.ort->KernelInfo_GetNodeName(init.info, name, &size)) {
      init.api.ort->ReleaseStatus(s);
    }
    Begin(launch);
    const Group& group = TheGroup();
    if (group.joined && group.transport == nullptr) {
      return Errorf(init.api, "mojo.%s of rank %d: %s", init.def.name, rank, group.refusal.text.c_str());
    }
    header.rank = static_cast<uint32_t>(rank);
    header.ranks = static_cast<uint32_t>(ranks);
    header.plan = Hash(plan.text);
    header.node = Hash(name, Hash(init.def.name));
    snprintf(header.name, sizeof(header.name), "%.*s", static_cast<int>(sizeof(header.name)) - 1, name);
    return nullptr;
  } catch (...) {
    return OutOfMemory(init.api);
  }
}

Turn::Turn(const Member& member) : member_(member), lock_(TheGroup().mutex) {}

OrtStatus* Turn::Exchange(const Api& api, const Part* send, const Place* receive, size_t bytes) {
  Group& group = TheGroup();
  try {
    Header header = member_.header;
    header.sequence = ++group.sequence;
    header.bytes = bytes;
    if (Exchanged(&group, header, send, receive)) return nullptr;
    return Errorf(api, "mojo: node \"%s\" of rank %d: %s", header.name, member_.rank, group.failure.text.c_str());
  } catch (...) {
    return OutOfMemory(api);
  }
}

OrtStatus* Turn::Gather(const Api& api, const void* mine, void* all, size_t bytes) {
  try {
    const std::vector<Part> send(static_cast<size_t>(member_.ranks), Part{static_cast<const char*>(mine), bytes});
    std::vector<Place> receive(send.size());
    for (size_t r = 0; r < send.size(); ++r) receive[r] = {static_cast<char*>(all) + r * bytes, bytes};
    memmove(receive[static_cast<size_t>(member_.rank)].data, mine, bytes);
    return Exchange(api, send.data(), receive.data(), bytes);
  } catch (...) {
    return OutOfMemory(api);
  }
}

char* Turn::Staging(size_t bytes) {
  Group& group = TheGroup();
  if (bytes >= group.size) {
    bytes += 64;
    char* const made = new (std::nothrow) char[bytes];
    if (made == nullptr) return nullptr;
    if (group.failure.text.empty()) delete[] group.staging;
    group.staging = made;
    group.size = bytes;
  }
  return group.staging;
}

}  // namespace mojo

// MojoCollectivesBegin begins to connect this process to the other ranks, as the first node of a model does. A program
// calls it before it loads a model: if it then fails, the others know.
extern "C" MOJO_EXPORT void MojoCollectivesBegin() {
  mojo::Launch launch;
  std::string error;
  if (mojo::ReadLaunch(&launch, &error)) mojo::Begin(launch);
}

// MojoCollectivesLeave waits a short time until this process is connected: then the others notice its end at once. A
// program that fails calls it before it ends.
extern "C" MOJO_EXPORT void MojoCollectivesLeave() {
  const mojo::Group& group = mojo::TheGroup();
  if (group.begun) mojo::Joined(group, mojo::Clock::now() + mojo::Duration(mojo::kLeaveTimeout));
}

// MojoCollectivesFinalize waits until the other ranks end, too, and ends the connections to them. A program that ends
// without running the functions of atexit calls it first; without connections it does nothing.
extern "C" MOJO_EXPORT void MojoCollectivesFinalize() { mojo::Finalize(); }
