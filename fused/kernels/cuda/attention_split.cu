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

// AttendSplit. Registers: 168. Shared memory: kSplitStages of 4 KB for each warp and 64 numbers of 16 bits a row, twice
// as much for twice as wide rows and for float32.
template <class T, int kWidth>
__global__ __launch_bounds__(kMostSplitWarps * 32, 2) void AttendSplit(const __grid_constant__ MojoAttentionArgs a,
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
  char* const ring = memory + warp * (kSplitStages * S::kBytes);
  const auto start = [&](int group, int stage) {
    const uint32_t to = SharedAddress(ring + stage * S::kBytes);
    key_copies.Start(to, part.Key(group));
    value_copies.Start(to + S::kTensorBytes, part.Key(group));
  };
#pragma unroll
  for (int i = 0; i < kSplitStages - 1; ++i) {
    if (part.from + i < part.to) start(part.from + i, i);
    EndGroup();
  }
  const int last_row = min(part.rows, part.first_row + kSplitRows) - 1;
  const Span seen{Seen(a, part.p, part.first_row / part.p.group).begin, Seen(a, part.p, last_row / part.p.group).end};
  UnitRows<T, kWidth> rows(a, part, memory + part.warps * (kSplitStages * S::kBytes));
  int stage = 0;
  for (int group = part.from; group < part.to; ++group) {
    const int key = part.Key(group), next = group + kSplitStages - 1;
    rows.Ask(a, part, key);
    WaitForGroups<kSplitStages - 2>();
    __syncwarp();
    if (next < part.to) start(next, stage == 0 ? kSplitStages - 1 : stage - 1);
    EndGroup();
    const char* const at = ring + stage * S::kBytes;
    stage = stage == kSplitStages - 1 ? 0 : stage + 1;
    if (part.writes) {
      key_copies.Keep(at, key, part.copies);
      value_copies.Keep(at + S::kTensorBytes, key, part.copies);
    }
    if (key < seen.end && key + kSplitKeys > seen.begin) rows.Add(a, part, at, key);
  }
  WaitForGroups<0>();
  __syncwarp();
  rows.Store(reinterpret_cast<float*>(ring), most + warp * kSplitRows, sum + warp * kSplitRows);
  Finish<T, kWidth>(a, work, part, values, memory, kSplitStages * S::kBytes, most, sum);
}

// WidthOf is the width of rows in a stage.
int WidthOf(const MojoAttentionArgs& a) {
  const size_t width = a.width > a.value_width ? a.width : a.value_width;
  return width <= 64 ? 64 : width <= 128 ? 128 : 256;
}

int StageBytes(const MojoAttentionArgs& a) { return static_cast<int>(2 * kSplitKeys * WidthOf(a) * TypeSize(a.type)); }

// WarpsOf is how many warps a block has: as many as leave room for two blocks on a multiprocessor of Hopper's, if it is
// more than two.
int WarpsOf(const MojoAttentionArgs& a) {
  int warps = StageBytes(a) > 16384 ? kMostSplitWarps / 2 : kMostSplitWarps;
  while (warps > 1 && warps * kSplitStages * StageBytes(a) > TheDevice().shared_bytes - 16384) warps /= 2;
  return warps;
}

// As many blocks run on a multiprocessor at once, if there is shared memory for them.
constexpr int kMostBlocks = 3;

// SplitsOf is into how many parts the keys of a unit are cut. A block takes about as long as its groups and one more,
// and adding up as one or two; of all blocks so many run at once.
int SplitsOf(const MojoAttentionArgs& a, size_t units) {
  const int warps = WarpsOf(a), bytes = warps * kSplitStages * StageBytes(a);
  const int blocks = std::max(1, std::min(kMostBlocks, TheDevice().shared_bytes / bytes));
  const size_t at_once = static_cast<size_t>(TheDevice().multiprocessors) * blocks;
  const bool copies = a.present_key != nullptr && a.past_length == nullptr && a.past_key != nullptr;
  size_t keys = a.past_length == nullptr ? a.past + a.added : a.room;
  if (a.window > 0 && !copies && a.window + a.queries < keys) keys = a.window + a.queries;
  const size_t groups = DivideUp(keys, static_cast<size_t>(kSplitKeys * warps));
  size_t best = 1;
  double least = 0;
  for (size_t splits = 1; splits <= groups && splits <= kMostSplits; ++splits) {
    const double time = static_cast<double>(DivideUp(units * splits, at_once)) * (DivideUp(groups, splits) + 1) +
                        (splits > 1 ? 1 + splits / 32.0 : 0);
    if (splits == 1 || time < least) best = splits, least = time;
    if (units * splits > 8 * at_once) break;
  }
  return static_cast<int>(best);
}

SplitWork Divide(const MojoAttentionArgs& a, Room<256>* room) {
  SplitWork work = {};
  const size_t row_tiles = DivideUp(RowsOf(a), kSplitRows), units = PairsOf(a) * row_tiles;
  work.row_tiles = static_cast<int>(row_tiles);
  work.splits = SplitsOf(a, units);
  if (work.splits == 1) return work;
  const size_t rows = units * work.splits * kSplitRows;
  work.finished = room->Take<unsigned long long>(units);
  work.part = room->Take<float>(rows * WidthOf(a));
  work.most = room->Take<float>(rows);
  work.sum = room->Take<float>(rows);
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
  const int warps = WarpsOf(a), bytes = warps * kSplitStages * Stage<T, kWidth>::kBytes + UnitRows<T, kWidth>::kBytes;
  const auto kernel = AttendSplit<T, kWidth>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return e;
  const dim3 grid(static_cast<unsigned>(work.splits), static_cast<unsigned>(PairsOf(a) * work.row_tiles));
  return Launch(kernel, grid, warps * 32, bytes, stream, a, work);
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
