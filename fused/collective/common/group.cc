#include "collective/common/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>

namespace mojo {
namespace {

// Seconds until which all ranks must have begun.
constexpr double kJoinTimeout = 600;

// Group is the ranks of the process. Its memory is never freed: a failed transport may still write there.
struct Group {
  std::mutex mutex;
  std::unique_ptr<Transport> transport;
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

bool Open(Group* group) {
  Launch launch;
  if (!ReadLaunch(&launch, &group->failure.text)) return false;
  const bool sockets = getenv("MASTER_ADDR") != nullptr && getenv("MASTER_PORT") != nullptr;
  if (launch.mpi) {
    group->transport = OpenMPI(launch, &group->failure);
    if (group->transport == nullptr && !sockets) return false;
  }
  if (group->transport == nullptr) {
    group->failure = {};
    const double patience = Seconds("MOJO_COLLECTIVE_JOIN_TIMEOUT", kJoinTimeout);
    group->transport = OpenSockets(launch, Duration(patience), &group->failure);
  }
  return group->transport != nullptr;
}

void Finalize() {
  Group& group = TheGroup();
  const std::lock_guard<std::mutex> lock(group.mutex);
  if (group.transport != nullptr && group.failure.text.empty()) {
    group.transport->Finalize();
    group.failure.text = "the exchanges of this process are finalized";
  }
}

bool Exchanged(Group* group, const Header& header, const Part* send, const Place* receive) {
  if (!group->failure.text.empty()) return false;
  if (group->transport == nullptr) {
    if (!Open(group)) return false;
    atexit(Finalize);
  }
  double seconds = Seconds("MOJO_COLLECTIVE_TIMEOUT", kTimeout);
  bool known = false;
  for (const uint64_t plan : group->plans) known = known || plan == header.plan;
  if (!known) seconds = Seconds("MOJO_COLLECTIVE_JOIN_TIMEOUT", kJoinTimeout);
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

// MojoCollectivesFinalize ends the connections of this process to other ranks. A program that ends without running the
// functions of atexit calls it first; without connections it does nothing.
extern "C" MOJO_EXPORT void MojoCollectivesFinalize() { mojo::Finalize(); }
