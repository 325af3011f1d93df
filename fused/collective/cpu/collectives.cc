// AllReduce, AllGather, ReduceScatter, AllToAll and AllReduceAddRMSNorm on the CPU.
#include <string.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "collective/common/group.h"
#include "cpu/scratch.h"
#include "rmsnorm/cpu/prepared_scale.h"

namespace mojo {
namespace {

// Tensors up to so many bytes go whole to every rank: one message instead of two.
constexpr size_t kWhole = size_t{64} << 10;

// SumOfRanks writes the sums of count numbers of each rank: in float32, in the order of ranks, rounded once. y may be
// one of the rows.
OrtStatus* SumOfRanks(const Api& api, OrtKernelContext* context, ElementType type, const char* const* rows,
                      size_t ranks, void* y, size_t count) {
  if (count == 0) return nullptr;
  const auto sum_some = [&](size_t begin, size_t end) {
    constexpr size_t kMost = 256;
    float sum[kMost], wide[kMost];
    const float* const row = sum;
    const float one = 1;
    for (size_t i = begin; i < end; i += kMost) {
      const size_t n = std::min(kMost, end - i);
      char* const to = static_cast<char*>(y) + i * SizeOf(type);
      TheKernels()->to_float32(type, At(rows[0], i, type), sum, n);
      for (size_t r = 1; r < ranks; ++r) {
        TheKernels()->to_float32(type, At(rows[r], i, type), wide, n);
        for (size_t k = 0; k < n; ++k) sum[k] += wide[k];
      }
      if (type == kFloat32) {
        memcpy(to, sum, n * sizeof(float));
      } else {
        TheKernels()->weighted_sum(type)({&row, &one, 1, n, to});
      }
    }
  };
  return RunInTasks(api, context, sum_some, count, ranks);
}

// Whole is AllReduce by one exchange of whole tensors.
OrtStatus* Whole(const Api& api, OrtKernelContext* context, const Member& member, ElementType type, const void* x,
                 void* y, size_t count) {
  const size_t bytes = count * SizeOf(type), ranks = static_cast<size_t>(member.ranks);
  Turn turn(member);
  char* const all = turn.Staging(ranks * bytes);
  if (all == nullptr) return OutOfMemory(api);
  if (OrtStatus* s = turn.Gather(api, x, all, bytes)) return s;
  std::vector<const char*> rows;
  for (size_t r = 0; r < ranks; ++r) rows.push_back(all + r * bytes);
  return SumOfRanks(api, context, type, rows.data(), ranks, y, count);
}

// InPieces is AllReduce by two exchanges: each rank sums a piece, and sends it to the others.
OrtStatus* InPieces(const Api& api, OrtKernelContext* context, const Member& member, ElementType type, const void* x,
                    void* y, size_t count) {
  const size_t size = SizeOf(type), bytes = count * size;
  const auto ranks = static_cast<size_t>(member.ranks), self = static_cast<size_t>(member.rank);
  const size_t each = (count / ranks + 64) / 64 * 64;  // numbers of a piece, whole cache lines
  const auto begin = [&](size_t r) { return std::min(count, r * each) * size; };
  const auto length = [&](size_t r) { return begin(r + 1) - begin(r); };
  Turn turn(member);
  char* const staging = turn.Staging(ranks * length(self) + bytes);
  if (staging == nullptr) return OutOfMemory(api);
  char* const sums = staging + ranks * length(self);
  const char* const from = static_cast<const char*>(x);
  std::vector<Part> send(ranks);
  std::vector<Place> receive(ranks);
  std::vector<const char*> rows(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    send[r] = {from + begin(r), length(r)};
    receive[r] = {staging + r * length(self), length(self)};
    rows[r] = r == self ? from + begin(self) : receive[r].data;
  }
  if (OrtStatus* s = turn.Exchange(api, send.data(), receive.data(), bytes)) return s;
  if (OrtStatus* s = SumOfRanks(api, context, type, rows.data(), ranks, sums + begin(self), length(self) / size)) {
    return s;
  }
  for (size_t r = 0; r < ranks; ++r) {
    send[r] = {sums + begin(self), length(self)};
    receive[r] = {sums + begin(r), length(r)};
  }
  if (OrtStatus* s = turn.Exchange(api, send.data(), receive.data(), bytes)) return s;
  memcpy(y, sums, bytes);
  return nullptr;
}

// AllReduce writes the sum of the ranks' x, of count numbers, to y, which may be x. The bits are equal on every rank.
OrtStatus* AllReduce(const Api& api, OrtKernelContext* context, const Member& member, ElementType type, const void* x,
                     void* y, size_t count) {
  if (member.ranks == 1) {
    if (x != y && count > 0) memcpy(y, x, count * SizeOf(type));
    return nullptr;
  }
  try {
    const auto run = count * SizeOf(type) <= kWhole ? Whole : InPieces;
    return run(api, context, member, type, x, y, count);
  } catch (...) {
    return OutOfMemory(api);
  }
}

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

// ReducedNorm is the state of one node.
struct ReducedNorm : ScaledNode<AllReduceAddRMSNormAttributes, NormFn> {
  Member member;
  HostMemory memory;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    if (OrtStatus* s = member.Init(init, attributes.rank, attributes.ranks, attributes.plan)) return s;
    if (OrtStatus* s = memory.Find(init)) return s;
    const NormFn norm = TheKernels()->norm({Input(0), Output(0), attributes.scale_after_cast, true});
    return Use(init, norm, kAllReduceAddRMSNormScale);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    AllReduceAddRMSNormCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    const Shape &x = call.shapes[0], &scale = call.shapes[kAllReduceAddRMSNormScale];
    const size_t rows = x.Product(0, x.rank - scale.rank), width = scale.Count();
    NormArgs args{};
    ScaleRoom room;
    if (OrtStatus* s = prepared.AsFloats(api, call.data[kAllReduceAddRMSNormScale], width, &room, &args.scale))
      return s;
    if (OrtStatus* s = call.Make(0, &args.y)) return s;
    if (OrtStatus* s = call.Make(1, &args.sum)) return s;
    args.x = call.data[0];
    args.residual = call.data[kAllReduceAddRMSNormResidual];
    HostScratch scratch;
    if (member.ranks > 1) {
      void* reduced = args.sum;
      if (reduced == nullptr && x.Count() > 0) {
        if (OrtStatus* s = scratch.Take(api, context, memory, x.Count() * SizeOf(Input(0)))) return s;
        reduced = scratch.memory();
      }
      if (OrtStatus* s = AllReduce(api, context, member, Input(0), args.x, reduced, x.Count())) return s;
      args.x = reduced;
    }
    if (rows == 0 || width == 0) return nullptr;
    args.width = width;
    args.epsilon = attributes.epsilon;
    return RunInTasks(api, context, run, args, rows, width);
  }
};

}  // namespace

const Backend kCPUAllReduce = MakeBackend<Collective<AllReduceCall>>(nullptr, MayInPlace<0, 0>);
const Backend kCPUAllGather = MakeBackend<Collective<AllGatherCall>>(nullptr);
const Backend kCPUReduceScatter = MakeBackend<Collective<ReduceScatterCall>>(nullptr);
const Backend kCPUAllToAll = MakeBackend<Collective<AllToAllCall>>(nullptr);
// As for AddRMSNorm: sum must never be in Y's memory.
const Backend kCPUAllReduceAddRMSNorm = MakeBackend<ReducedNorm>(nullptr, MayInPlace<0, 1, 1, 0>);

}  // namespace mojo
