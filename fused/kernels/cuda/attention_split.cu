// Attention of few rows, such as those of a step of decoding: one launch, which reads the keys and values of a sequence
// once for each eight rows of the heads that share them, puts the new ones into the cache, and adds up what blocks
// have.
//
// It is as fast as memory is read, so the grid fills the device whatever the batch: attention_split.cuh says how.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <type_traits>

#include "common/room.h"
#include "cuda/attention_rows.cuh"

namespace mojo {
namespace {

template <class T, int kWidth>
using UnitRows = std::conditional_t<sizeof(T) == 4, FloatRows<kWidth>, MmaRows<T, kWidth>>;

// AttendSplit. Registers: 128, and 230 for rows of 512 bytes. Shared memory: StagesOf for each warp.
template <class T, int kWidth>
__global__ __launch_bounds__(kMostSplitWarps * 32) void AttendSplit(const __grid_constant__ MojoAttentionArgs a,
                                                                    const __grid_constant__ SplitWork work) {
  typedef Stage<T, kWidth> S;
  extern __shared__ __align__(128) char memory[];
  __shared__ float most[kMostSplitWarps * kSplitRows], sum[kMostSplitWarps * kSplitRows];
  WaitForPrevious();
  LetNextStart();
  const Part part(a, work);
  if (part.split >= part.used) return;
  if (part.used > 1 && threadIdx.x == 0) BeginCount(work.finished + part.unit, work.tag);
  const Keys<T> keys = KeysOf<T>(a, part.p), values = ValuesOf<T>(a, part.p);
  const Copies<T, kWidth> key_copies(keys, part.p.length), value_copies(values, part.p.length);
  const int warp = threadIdx.x / 32;
  char* const ring = memory + warp * S::kWarpBytes;
  const int last_row = min(part.rows - part.first_row, kSplitRows) - 1;
  const Span seen{Seen(a, part.p, part.Query(a, 0)).begin, Seen(a, part.p, part.Query(a, last_row)).end};
  UnitRows<T, kWidth> rows(a, part, memory + part.warps * S::kWarpBytes);
  int stage = 0, next_stage = 0;
  for (int group = part.from - (S::kCount - 1); group < part.to; ++group) {
    const int next = group + S::kCount - 1, key = part.Key(group);
    __syncwarp();
    if (next < part.to) {
      const uint32_t to = SharedAddress(ring + next_stage * S::kBytes);
      key_copies.Start(to, part.Key(next));
      value_copies.Start(to + S::kTensorBytes, part.Key(next));
    }
    EndGroup();
    next_stage = next_stage == S::kCount - 1 ? 0 : next_stage + 1;
    if (group < part.from) continue;
    rows.Ask(a, part, key);
    WaitForGroups<S::kCount - 1>();
    __syncwarp();
    const char* const at = ring + stage * S::kBytes;
    stage = stage == S::kCount - 1 ? 0 : stage + 1;
    if (part.writes) {
      key_copies.Keep(at, key, part.copies);
      value_copies.Keep(at + S::kTensorBytes, key, part.copies);
    }
    if (key < seen.end && key + kSplitKeys > seen.begin) rows.Add(a, part, at, key);
  }
  __syncwarp();
  rows.Store(reinterpret_cast<float*>(ring), most + warp * kSplitRows, sum + warp * kSplitRows);
  Finish<T, kWidth>(a, work, part, values, memory, S::kWarpBytes, most, sum);
}

// What rows of float32 take of shared memory, at most.
constexpr int kRowsBytes = 14336;

// WidthOf is the width of rows in a stage.
int WidthOf(const MojoAttentionArgs& a) {
  const size_t width = a.width > a.value_width ? a.width : a.value_width;
  return width <= 64 ? 64 : width <= 128 ? 128 : 256;
}

// Cut is how the keys of units are cut: into parts, of groups of so many warps.
struct Cut {
  int warps, splits;
};

// CutOf takes the cut that is estimated to take the least time. All blocks that run at once share what a multiprocessor
// reads, and each begins and ends with a few microseconds, as adding up parts does.
Cut CutOf(const MojoAttentionArgs& a, size_t units) {
  constexpr double kBytesPerMicrosecond = 34000, kBlockMicroseconds = 4, kJoinMicroseconds = 1.5;
  const Device& device = TheDevice();
  const int row_bytes = a.type == kMojoFloat32 ? kRowsBytes : 1024;  // 1 KB is the system's
  const int stage = static_cast<int>(2 * kSplitKeys * WidthOf(a) * TypeSize(a.type)),
            warp_bytes = StagesOf(stage) * stage;
  const bool copies = a.present_key != nullptr && a.past_length == nullptr && a.past_key != nullptr;
  const size_t multiprocessors = static_cast<size_t>(device.multiprocessors);
  size_t keys = a.past_length == nullptr ? a.past + a.added : a.room;
  if (a.window > 0 && !copies && a.window + a.queries < keys) keys = a.window + a.queries;
  Cut best{1, 1};
  double least = HUGE_VAL;
  // Fewer than four warps wait too much: they are for devices with little shared memory.
  for (int warps = kMostSplitWarps; warps >= 4 || (warps >= 1 && least == HUGE_VAL); warps /= 2) {
    const int blocks = std::min(16 / warps, device.shared_bytes / (warps * warp_bytes + row_bytes));
    const size_t groups = DivideUp(keys, static_cast<size_t>(kSplitKeys * warps));
    for (size_t wanted = 0; blocks > 0 && wanted <= 4; ++wanted) {  // waves; 0: no parts
      const size_t most = std::min<size_t>(groups, kMostSplits), fit = multiprocessors * blocks * wanted / units;
      const size_t splits = std::max<size_t>(1, std::min(most, fit)), all = units * splits;
      const size_t waves = DivideUp(all, multiprocessors * blocks);
      const size_t beside = std::min<size_t>(blocks, DivideUp(all, multiprocessors));
      const double bytes = static_cast<double>(beside * DivideUp(groups, splits) * warps * stage);
      const double time = waves * (kBlockMicroseconds + bytes / kBytesPerMicrosecond) +
                          (splits > 1 ? kJoinMicroseconds + splits / 50.0 : 0);
      if (time < least) best = {warps, static_cast<int>(splits)}, least = time;
    }
  }
  return best;
}

SplitWork Divide(const MojoAttentionArgs& a, Room<256>* room) {
  SplitWork work = {};
  const size_t row_tiles = DivideUp(RowsOf(a), kSplitRows), units = PairsOf(a) * row_tiles;
  work.row_tiles = static_cast<int>(row_tiles);
  const Cut cut = CutOf(a, units);
  work.warps = cut.warps;
  work.splits = cut.splits;
  if (work.splits == 1) return work;
  const size_t rows = units * work.splits * kSplitRows;
  work.finished = room->Take<unsigned long long>(units);
  work.part = room->Take<float>(rows * WidthOf(a));
  work.state = room->Take<float2>(rows);
  return work;
}

// NextTag is another number of 48 bits for each launch.
unsigned long long NextTag() {
  static std::atomic<unsigned long long> next(
      static_cast<unsigned long long>(std::chrono::system_clock::now().time_since_epoch().count()));
  unsigned long long v = next.fetch_add(0x9e3779b97f4a7c15ull, std::memory_order_relaxed);
  v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
  v = (v ^ v >> 27) * 0x94d049bb133111ebull;
  return (v ^ v >> 31) >> kTagShift;
}

template <class T, int kWidth>
cudaError_t Run(const MojoAttentionArgs& a, cudaStream_t stream) {
  Room<256> room{static_cast<char*>(a.scratch)};
  SplitWork work = Divide(a, &room);
  work.tag = NextTag();
  static_assert(UnitRows<T, kWidth>::kBytes <= kRowsBytes, "CutOf leaves room for it");
  const int bytes = work.warps * Stage<T, kWidth>::kWarpBytes + UnitRows<T, kWidth>::kBytes;
  const auto kernel = AttendSplit<T, kWidth>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return e;
  const dim3 grid(static_cast<unsigned>(work.splits), static_cast<unsigned>(PairsOf(a) * work.row_tiles));
  return Launch(kernel, grid, work.warps * 32, bytes, stream, a, work);
}

template <class T>
cudaError_t Run(const MojoAttentionArgs& a, cudaStream_t stream) {
  const int width = WidthOf(a);
  return width == 64 ? Run<T, 64>(a, stream) : width == 128 ? Run<T, 128>(a, stream) : Run<T, 256>(a, stream);
}

// As many rows as this are few; a grid has no more units.
constexpr size_t kFewRows = 16, kMostUnits = 65535;

}  // namespace

bool AttentionSplitTakes(const MojoAttentionArgs& a) {
  return Pieces(a) && RowsOf(a) <= kFewRows && a.width <= 256 && a.value_width <= 256 &&
         PairsOf(a) * DivideUp(RowsOf(a), kSplitRows) <= kMostUnits;
}

size_t AttentionSplitScratch(const MojoAttentionArgs& a) {
  Room<256> room;
  Divide(a, &room);
  return room.used;
}

cudaError_t AttentionSplit(const MojoAttentionArgs& a, cudaStream_t stream) {
  return a.type == kMojoFloat32   ? Run<float>(a, stream)
         : a.type == kMojoFloat16 ? Run<Half>(a, stream)
                                  : Run<BFloat>(a, stream);
}

}  // namespace mojo
