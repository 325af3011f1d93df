// Attention of few rows, as in decode steps, in one launch: it writes new keys and values into the cache, attends, and
// combines the partial results of blocks.
//
// Bytes read: the keys and values up to a sequence's length, once for each eight rows of the heads that share them. The
// floor is those bytes over the memory bandwidth, so the grid fills the device for any batch: see attention_split.cuh.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <type_traits>

#include "attention/cuda/attention_rows.cuh"
#include "common/room.h"

namespace mojo {
namespace {

template <class T, int kWidth>
using TileRows = std::conditional_t<sizeof(T) == 4, FloatRows<kWidth>, MmaRows<T, kWidth>>;

// The number of blocks with the most warps whose registers fit at once.
template <class T, int kWidth>
constexpr int kBlocksBeside = kWidth * sizeof(T) <= 256 ? 2 : 1;

// AttendSplit. Registers: 128, and 224 for rows of 512 bytes. Shared memory: StagesOf for each warp, and JoinPlace.
template <class T, int kWidth>
__global__ __launch_bounds__(kMostSplitWarps * 32,
                             kBlocksBeside<T, kWidth>) void AttendSplit(const __grid_constant__ MojoAttentionArgs a,
                                                                        const __grid_constant__ SplitWork work) {
  typedef Stage<T, kWidth> S;
  extern __shared__ __align__(128) char memory[];
  __shared__ float2 state[kMostSplitWarps * kSplitRows];
  __shared__ ByteCount arrived;
  if (work.cluster_bits > 0) {
    if (threadIdx.x == 0) InitByteCount(&arrived);
    __syncwarp();
    ArriveAtCluster();
  }
  WaitForPrevious();
  LetNextStart();
  Part part(a, work, S::kKeys);
  const int64_t past = part.p.AskPast(a);
  const SplitRows<T> keys = MakeSplitRows<T>(a, part, a.k, a.k_steps, a.past_key, a.present_key, a.width);
  const SplitRows<T> values = MakeSplitRows<T>(a, part, a.v, a.v_steps, a.past_value, a.present_value, a.value_width);
  const int warp = threadIdx.x / 32;
  char* const ring = memory + warp * S::kWarpBytes;
  TileRows<T, kWidth> rows;
  Span seen;
  part.Resolve(a, work, past);
  const int bits = work.cluster_bits, clusters = (part.used + (1 << bits) - 1) >> bits;
  if (part.split >> bits >= clusters) return;
  int stage = 0, next_stage = 0;
  for (int n = 1 - S::kCount;; ++n) {
    if (n == 0) {
      rows.Begin(a, part, memory + part.warps * S::kWarpBytes + sizeof(JoinPlace<kWidth>));
      if (clusters > 1 && threadIdx.x == 0) {
        BeginCount(work.finished + (part.tile << bits) + (part.split & ((1 << bits) - 1)), work.tag);
      }
      rows.See(a, part);
      const int last_row = min(part.rows - part.first_row, kSplitRows) - 1;
      seen = Span{Seen(a, part.p, part.Query(a, 0)).begin, Seen(a, part.p, part.Query(a, last_row)).end};
    }
    const int group = part.split + n * work.splits, next = group + (S::kCount - 1) * work.splits;
    if (n >= 0 && group >= part.groups) break;
    __syncwarp();
    if (next < part.groups) {
      const uint32_t to = SharedAddress(ring + next_stage * S::kBytes);
      const int key = part.Key(next);
      keys.template Start<kWidth>(to, key);
      values.template Start<kWidth>(to + S::kTensorBytes, key);
    }
    EndGroup();
    next_stage = next_stage == S::kCount - 1 ? 0 : next_stage + 1;
    if (n < 0) continue;
    const int key = part.Key(group);
    rows.Ask(a, part, key);
    WaitForGroups<S::kCount - 1>();
    __syncwarp();
    char* const at = ring + stage * S::kBytes;
    stage = stage == S::kCount - 1 ? 0 : stage + 1;
    if (part.keeps) Keep<T, kWidth>(part, keys, values, at, key);
    if (key + S::kKeys > part.tail) {
      Mend<T, kWidth>(part, keys, values, at, key);
      __syncwarp();
    }
    if (key < seen.end && key + S::kKeys > seen.begin) rows.Add(a, part, at, key);
  }
  WaitForGroups<0>();
  __syncwarp();
  rows.Store(reinterpret_cast<float*>(ring), state + warp * kSplitRows);
  Finish<T, kWidth>(a, work, part, reinterpret_cast<const float*>(memory), S::kWarpBytes / 4, state,
                    reinterpret_cast<JoinPlace<kWidth>*>(memory + part.warps * S::kWarpBytes), &arrived);
}

// The most shared memory that float32 rows take.
constexpr int kRowsBytes = 14336;

// Shared memory of a block besides the dynamic part: less than 1 KB, and 1 KB for the system.
constexpr int kOtherBytes = 2048;

// WidthOf is the width of rows in a stage.
int WidthOf(const MojoAttentionArgs& a) {
  const size_t width = a.width > a.value_width ? a.width : a.value_width;
  return width <= 64 ? 64 : width <= 128 ? 128 : 256;
}

// Cut is the partition of a row tile's keys: warps of a block, blocks of a cluster, and clusters of a row tile.
struct Cut {
  int warps = 1, cluster = 1, clusters = 1;
};

// CutOf returns the cut with the least estimated time, in microseconds. Memory, a multiprocessor and a warp each have a
// read rate; blocks that wait for others start late, and summing takes longer the farther apart the parts are. The
// numbers were fitted to 1,166 cuts of steps on an H200.
Cut CutOf(const MojoAttentionArgs& a, size_t tiles) {
  constexpr double kMemoryBytes = 4.5e6, kMultiprocessorBytes = 4.8e4;  // in a microsecond
  constexpr double kBlock = 0.57, kStage = 0.9, kStageOf8KB = 0.46, kFewWarps = 1.034, kWave = 2.3, kWarp = 0.1;
  constexpr double kCluster = 0.25, kBlockOfCluster = 0.1, kScratch = 3, kScratchParts = 0.4;
  const Device& device = TheDevice();
  const bool is_float = a.type == kMojoFloat32;
  const int width = WidthOf(a), row_bytes = width * static_cast<int>(TypeSize(a.type));
  const int stage_keys = StageKeys(row_bytes), stage = 2 * stage_keys * row_bytes;
  const int warp_bytes = StagesOf(stage) * stage;
  const int block_bytes = kSplitRows * (width * 4 + 8) + kOtherBytes + (is_float ? kRowsBytes : 0);
  const double stage_time = (kStage + kStageOf8KB * stage / 8192) * (is_float ? 2 : 1);
  const bool copies = a.present_key != nullptr && a.past_lengths == nullptr && a.past_key != nullptr;
  size_t keys = a.past_lengths == nullptr ? a.past + a.added : a.room;
  if (a.window > 0 && !copies) keys = std::min(keys, a.window + a.queries - 1);
  const double memory_time = static_cast<double>(tiles) * keys * 2 * row_bytes / kMemoryBytes;
  Cut best;
  double least = HUGE_VAL;
  for (int warps = kMostSplitWarps; warps >= 1; warps /= 2) {
    const int beside = std::min(16 / warps, device.shared_bytes / (warps * warp_bytes + block_bytes));
    const size_t groups = DivideUp(keys, static_cast<size_t>(stage_keys * warps));
    if (beside < 1) continue;
    for (int bits = 0; bits <= kMostClusterBits; ++bits) {
      const size_t cluster = size_t{1} << bits, room = static_cast<size_t>(device.clustered[bits]);
      if (room == 0 || (bits > 0 && cluster > groups)) break;
      size_t tried = 0;
      for (size_t wanted = 0; wanted <= 2; ++wanted) {  // waves; 0: one cluster for a row tile
        const size_t fit = room * beside * wanted / (tiles * cluster), most = std::min<size_t>(groups, kMostSplits);
        const size_t clusters = std::max<size_t>(1, std::min(fit, most / cluster)), blocks = tiles * cluster * clusters;
        // Fewer than four warps take long to sum many parts.
        if (clusters == tried || (clusters > 1 && warps < 4 && least < HUGE_VAL)) continue;
        tried = clusters;
        const size_t waves = DivideUp(blocks, room * beside), stages = DivideUp(groups, cluster * clusters);
        const double shared = static_cast<double>(DivideUp(blocks, room) * stages * warps * stage);
        const double uneven = static_cast<double>(stages * cluster * clusters) / std::max<size_t>(groups, 1);
        double time =
            std::max({memory_time * uneven, shared / kMultiprocessorBytes, waves * (stages * stage_time + kBlock)});
        if (warps < 4) time *= kFewWarps;
        time += (waves - 1) * kWave + warps * kWarp;
        if (bits > 0) time += kCluster + cluster * kBlockOfCluster;
        if (clusters > 1) {
          time +=
              kScratch + DivideUp(kSplitRows / cluster * width / 4, 32 * warps) * DivideUp(clusters, 4) * kScratchParts;
        }
        if (time < least) best = {warps, static_cast<int>(cluster), static_cast<int>(clusters)}, least = time;
      }
    }
  }
  return best;
}

SplitWork Divide(const MojoAttentionArgs& a, Room<256>* room, int* warps) {
  SplitWork work = {};
  const size_t row_tiles = DivideUp(RowsOf(a), kSplitRows), tiles = PairsOf(a) * row_tiles;
  const Cut cut = CutOf(a, tiles);
  *warps = cut.warps;
  work.row_tiles = static_cast<int>(row_tiles);
  work.group = static_cast<int>(a.heads / a.key_heads);
  work.by_group = (256 + work.group - 1) / work.group;
  while (1 << work.cluster_bits < cut.cluster) ++work.cluster_bits;
  work.splits = cut.cluster * cut.clusters;
  if (cut.clusters == 1) return work;
  const size_t rows = tiles * cut.clusters * kSplitRows;
  work.finished = room->Take<unsigned long long>(tiles * cut.cluster);
  work.part = room->Take<float>(rows * WidthOf(a));
  work.state = room->Take<float2>(rows);
  return work;
}

template <class T, int kWidth>
cudaError_t Run(const MojoAttentionArgs& a, cudaStream_t stream) {
  Room<256> room{static_cast<char*>(a.scratch)};
  int warps;
  SplitWork work = Divide(a, &room, &warps);
  work.tag = NextTag();
  static_assert(TileRows<T, kWidth>::kBytes <= kRowsBytes, "CutOf leaves room for it");
  constexpr int kWarpBytes = Stage<T, kWidth>::kWarpBytes;
  constexpr int kTileBytes = static_cast<int>(sizeof(JoinPlace<kWidth>)) + TileRows<T, kWidth>::kBytes;
  const int bytes = warps * kWarpBytes + kTileBytes;
  const auto kernel = AttendSplit<T, kWidth>;
  // One limit serves all launches: another thread could lower a limit set for this launch before it starts.
  const int most = std::min(kMostSplitWarps * kWarpBytes + kTileBytes, TheDevice().shared_bytes - kOtherBytes);
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most)) return e;
  const dim3 grid(static_cast<unsigned>(work.splits), static_cast<unsigned>(a.key_heads * work.row_tiles),
                  static_cast<unsigned>(a.batch));
  return LaunchClusters(kernel, 1 << work.cluster_bits, grid, warps * 32, bytes, stream, a, work);
}

template <class T>
cudaError_t Run(const MojoAttentionArgs& a, cudaStream_t stream) {
  const int width = WidthOf(a);
  return width == 64 ? Run<T, 64>(a, stream) : width == 128 ? Run<T, 128>(a, stream) : Run<T, 256>(a, stream);
}

// The most rows that count as few, and the most row tiles of a grid.
constexpr size_t kFewRows = 16, kMostInGrid = 65535;

}  // namespace

unsigned long long NextTag() {
  static std::atomic<unsigned long long> next(
      static_cast<unsigned long long>(std::chrono::system_clock::now().time_since_epoch().count()));
  unsigned long long v = next.fetch_add(0x9e3779b97f4a7c15ull, std::memory_order_relaxed);
  v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
  v = (v ^ v >> 27) * 0x94d049bb133111ebull;
  return (v ^ v >> 31) >> kTagShift;
}

bool AttentionSplitTakes(const MojoAttentionArgs& a) {
  return Pieces(a) && RowsOf(a) <= kFewRows && a.width <= 256 && a.value_width <= 256 && a.batch <= kMostInGrid &&
         a.key_heads * DivideUp(RowsOf(a), kSplitRows) <= kMostInGrid;
}

size_t AttentionSplitScratch(const MojoAttentionArgs& a) {
  Room<256> room;
  int warps;
  Divide(a, &room, &warps);
  return room.used;
}

cudaError_t AttentionSplit(const MojoAttentionArgs& a, cudaStream_t stream) {
  return OfType(a.type, [&](auto t) { return Run<decltype(t)>(a, stream); });
}

}  // namespace mojo
