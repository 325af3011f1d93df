// AllReduce, AllGather, ReduceScatter and AllToAll on the CPU.
#include <string.h>

#include <type_traits>
#include <vector>

#include "collective/cpu/all_reduce.h"

namespace mojo {
namespace {

// Cut is a tensor cut along an axis: runs of count blocks of bytes.
struct Cut {
  size_t runs, count, bytes;

  // Copy copies block number block of each run from a tensor to another, in which a run has other blocks.
  void Copy(const char* from, size_t block, char* to, size_t to_block, size_t to_count) const {
    for (size_t i = 0; i < runs && bytes > 0; ++i) {
      memcpy(to + (i * to_count + to_block) * bytes, from + (i * count + block) * bytes, bytes);
    }
  }
};

// Parts sends a part of x to each rank, cut along the axis, and receives a part from each.
OrtStatus* Parts(const Api& api, Turn* turn, const Member& member, const Cut& cut, const char* x, char* staging) {
  const auto ranks = static_cast<size_t>(member.ranks), self = static_cast<size_t>(member.rank);
  const size_t part = cut.runs * cut.bytes;
  char* const packed = staging + ranks * part;
  std::vector<Part> send(ranks);
  std::vector<Place> receive(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    cut.Copy(x, r, r == self ? staging + self * part : packed + r * part, 0, 1);
    send[r] = {packed + r * part, part};
    receive[r] = {staging + r * part, part};
  }
  return turn->Exchange(api, send.data(), receive.data(), ranks * part);
}

// Collective is the state of one node.
template <class Call>
struct Collective : NodeState<typename Call::Attributes> {
  Member member;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState<typename Call::Attributes>::Init(init)) return s;
    const auto& attributes = this->attributes;
    return member.Init(init, attributes.rank, attributes.ranks, attributes.plan);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    const auto& attributes = this->attributes;
    const ElementType type = this->Input(0);
    Call call(api, context, attributes);
    char* y;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &y)) return s;
    const Shape& shape = call.shapes[0];
    const auto* const x = static_cast<const char*>(call.data[0]);
    if constexpr (std::is_same_v<Call, AllReduceCall>) {
      return AllReduce(api, context, member, type, x, y, shape.Count());
    } else {
      if (member.ranks == 1) {
        if (!call.Empty()) memcpy(y, x, shape.Count() * SizeOf(type));
        return nullptr;
      }
      const size_t ranks = static_cast<size_t>(member.ranks), axis = shape.rank - static_cast<size_t>(-attributes.axis);
      const size_t runs = shape.Product(0, axis), run = shape.Product(axis, shape.rank) * SizeOf(type);
      try {
        Turn turn(member);
        char* const staging = turn.Staging(2 * ranks * runs * run);
        if (staging == nullptr) return OutOfMemory(api);
        if constexpr (std::is_same_v<Call, AllGatherCall>) {
          if (OrtStatus* s = turn.Gather(api, x, staging, runs * run)) return s;
          const Cut whole = {runs, 1, run};
          for (size_t r = 0; r < ranks; ++r) whole.Copy(staging + r * runs * run, 0, y, r, ranks);
          return nullptr;
        }
        const Cut cut = {runs, ranks, run / ranks};
        if (OrtStatus* s = Parts(api, &turn, member, cut, x, staging)) return s;
        const size_t part = runs * cut.bytes;
        std::vector<const char*> rows;
        for (size_t r = 0; r < ranks; ++r) rows.push_back(staging + r * part);
        if constexpr (std::is_same_v<Call, ReduceScatterCall>) {
          return SumOfRanks(api, context, type, rows.data(), ranks, y, part / SizeOf(type));
        }
        const Cut received = {runs, 1, cut.bytes};
        for (size_t r = 0; r < ranks; ++r) received.Copy(rows[r], 0, y, r, ranks);
        return nullptr;
      } catch (...) {
        return OutOfMemory(api);
      }
    }
  }
};

}  // namespace

const Backend kCPUAllReduce = MakeBackend<Collective<AllReduceCall>>(nullptr, MayInPlace<0, 0>);
const Backend kCPUAllGather = MakeBackend<Collective<AllGatherCall>>(nullptr);
const Backend kCPUReduceScatter = MakeBackend<Collective<ReduceScatterCall>>(nullptr);
const Backend kCPUAllToAll = MakeBackend<Collective<AllToAllCall>>(nullptr);

}  // namespace mojo
