// Attention whose heads share keys of 576 numbers, of which the first 512 are the values, on compute capability 9.0:
// decode steps of DeepSeek's latent attention, which multiply more than they read.
//
// Work is divided by rows and keys. A row tile is 64 rows of a sequence; a block works on a pair of key tiles, 64 keys
// each, at a time. The pairs of all sequences are numbered one after the other and divided evenly among partitions. A
// partition has a block for each row tile of a sequence, and these read the same keys at the same time. If several
// partitions work on a row tile, CombineTiles sums their partial results (split-KV). One warp of a block copies rows
// and key tiles. Two warpgroups share a pair (the seesaw schedule: Deng, Liu, "FlashMLA", 2025): each multiplies all
// rows with its own key tile, and accumulates its own half of the value channels over both tiles, so that the
// exponents of one overlap the products of the other. They exchange the greatest scores and the weights.
//
// A key is 1152 bytes, read once for each row tile of its sequence, and takes 64 * (576 + 512) multiply-adds there:
// with 128 heads 242 operations for a byte read from memory, so that the tensor cores are about as busy as memory is.
#include <limits.h>

#include <algorithm>

#include "attention/cuda/attention_join.cuh"
#include "attention/cuda/attention_latent_group.cuh"
#include "common/room.h"
#include "cuda/tensor_map.h"

namespace mojo {
namespace latent {
namespace {

constexpr int kJoinThreads = 512, kMeanThreads = 512;

// AttendLatents. Registers: 168; a thread that multiplies has 232. Shared memory: 217 KB.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    AttendLatents(const __grid_constant__ MojoAttentionArgs a, const __grid_constant__ Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  if (threadIdx.x == 0) {
    PrefetchMap(&work.q);
    PrefetchMap(&work.k);
    const uint32_t shared = SharedAddress(memory);
    InitBarrier(shared + kRowsFull, 1);
    InitBarrier(shared + kRowsFree, 2 * kGroup / 32);
    for (int i = 0; i < 2 * kParts; ++i) InitBarrier(shared + kKeysFull + i * 8, 1);
    for (int i = 0; i < 4; ++i) InitBarrier(shared + kKeysFree + i * 8, kGroup / 32);
    for (const int at : {kFirstMaxima, kSecondMaxima, kFirstWeights}) InitBarrier(shared + at, kGroup);
    InitBarrier(shared + kSums, 2 * kGroup);
    ShowBarriers();
  }
  __syncthreads();
  WaitForPrevious();
  // A shuffle, so that the compiler knows that the value is uniform in a warp.
  const int group = __shfl_sync(~0u, threadIdx.x / kGroup, 0);
  if (group == 2) {
    GiveRegisters<kFewest>();
    if (threadIdx.x < 2 * kGroup + 32) Load(a, work, memory);
  } else {
    TakeRegisters<kMost>();
    if (group == 0) {
      Group<T, 0>(a, work, memory).Attend();
    } else {
      Group<T, 1>(a, work, memory).Attend();
    }
  }
#endif
}

// CombineTiles sums the rows of a row tile that several blocks have worked on: a fourth of a row's parts at a time.
//
// Registers: 80. Shared memory: 9 KB.
template <class T>
__global__ __launch_bounds__(kJoinThreads) void CombineTiles(const __grid_constant__ MojoAttentionArgs a,
                                                             const __grid_constant__ Work work, int partitions,
                                                             int rows) {
  constexpr int kQuads = kOut / 4, kShares = kJoinThreads / kQuads;
  __shared__ __align__(16) float totals[kShares * kOut];
  __shared__ float2 states[kShares];
  WaitForPrevious();
  LetNextStart();
  const int heads = static_cast<int>(a.heads), each = kRows / rows, row_tile = blockIdx.x / each;
  const int batch = row_tile / work.row_tiles, tile = row_tile % work.row_tiles;
  const Sequence s = SequenceOf(a, batch);
  const int each_pairs = PairsEach(FindSequence(a, INT_MAX).begin, partitions);
  const int first = s.begin / each_pairs;
  const int parts = (s.begin + s.pairs - 1) / each_pairs - first + 1;
  if (parts == 1) return;
  const int share = threadIdx.x / kQuads, quad = threadIdx.x % kQuads;
  const int from = parts * share / kShares, count = parts * (share + 1) / kShares - from;
  const int first_row = static_cast<int>(blockIdx.x) % each * rows;
  for (int own = first_row; own < first_row + rows; ++own) {
    const int at = tile * kRows + own;
    if (at >= heads * static_cast<int>(a.queries)) return;
    // The first partition's part is the second of its block; the other partitions' parts are their blocks' first ones.
    const auto join = [&](Joined* joined, int i, int n) {
      const size_t block = static_cast<size_t>(first + i) * work.row_tiles + tile;
      const size_t slot = (block * 2 + (i == 0)) * kRows + own;
      const int step = 2 * kRows * work.row_tiles;
      joined->Join(work.part + slot * kOut + quad * 4, static_cast<size_t>(step) * kOut, work.state + slot, step, n);
    };
    Joined joined, all;
    const int alone = from == 0 && count > 0;
    join(&joined, from, alone);
    join(&joined, from + alone, count - alone);
    __syncthreads();
    *reinterpret_cast<float4*>(totals + share * kOut + quad * 4) = joined.total;
    if (quad == 0) states[share] = make_float2(joined.most, joined.sum);
    __syncthreads();
    if (share > 0) continue;
    all.Join(totals + quad * 4, kOut, states, 1, kShares);
    const float4 total = all.total;
    const float by = all.sum == 0 ? 0 : __fdividef(1, all.sum);
    const float v[4] = {total.x * by, total.y * by, total.z * by, total.w * by};
    T* const y = static_cast<T*>(a.y) + batch * a.y_steps.batch + at % heads * a.y_steps.head +
                 at / heads * a.y_steps.row + quad * 4;
    StorePack(y, PackFloats<T>(v));
  }
}

// MeanOfEmpty writes the mean of all values for each query that sees no key, with a block for each sequence.
//
// Registers: 40. Shared memory: 16 KB.
template <class T>
__global__ __launch_bounds__(kMeanThreads) void MeanOfEmpty(const __grid_constant__ MojoAttentionArgs a,
                                                            const __grid_constant__ Work work) {
  constexpr int kColumns = kOut / 8, kLines = kMeanThreads / kColumns;
  __shared__ float sums[kMeanThreads * 8];
  __shared__ int found;
  WaitForPrevious();
  LetNextStart();
  const Pair pair(a, blockIdx.x);
  if (threadIdx.x == 0) found = pair.length;
  __syncthreads();
  // The first key that is seen by any query, and by how many queries it is not.
  for (int j = threadIdx.x; j < pair.length && j < *static_cast<volatile int*>(&found); j += kMeanThreads) {
    if (Valid(a, pair, j)) atomicMin(&found, j);
  }
  __syncthreads();
  int empty = 0;
  while (empty < static_cast<int>(a.queries) && Seen(a, pair, empty).end <= found) ++empty;
  if (empty == 0 || pair.length == 0) return;
  const int column = threadIdx.x % kColumns;
  const T* const from = static_cast<const T*>(work.latents) + pair.batch * work.step + column * 8;
  float sum[8] = {};
  for (int j = threadIdx.x / kColumns; j < pair.length; j += kLines) {
    float row[8];
    ToFloats(LoadPack<8>(from + static_cast<size_t>(j) * kWidth), row);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += row[i];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[threadIdx.x * 8 + i] = sum[i];
  __syncthreads();
  static_assert(kMeanThreads == kOut, "a thread for each channel");
  float all = 0;
  for (int line = 0; line < kLines; ++line) all += sums[line * kOut + threadIdx.x];
  const T mean = FromFloat<T>(all / pair.length);
  for (int i = 0; i < empty * static_cast<int>(a.heads); ++i) {
    const int head = i % static_cast<int>(a.heads), query = i / static_cast<int>(a.heads);
    static_cast<T*>(a.y)[pair.batch * a.y_steps.batch + head * a.y_steps.head + query * a.y_steps.row + threadIdx.x] =
        mean;
  }
}

// If there is a past, keys are read from present_key, which then also has the new ones.
const void* LatentsOf(const MojoAttentionArgs& a) {
  return a.past > 0 || a.past_lengths != nullptr ? a.present_key : a.k;
}
size_t StepOf(const MojoAttentionArgs& a) { return LatentsOf(a) == a.k ? a.k_steps.batch : a.room * kWidth; }
size_t TokensOf(const MojoAttentionArgs& a) { return LatentsOf(a) == a.k ? a.added : a.room; }

// RowTiles are the row tiles of a sequence, PartitionsOf the partitions of a call: at most as many as have work and fit
// on the multiprocessors.
size_t RowTiles(const MojoAttentionArgs& a) { return DivideUp(RowsOf(a), kRows); }
size_t PartitionsOf(const MojoAttentionArgs& a) {
  const size_t pairs = a.batch * std::max<size_t>(1, DivideUp(a.room, 2 * kKeys));
  return std::max<size_t>(1, std::min(pairs, TheDevice().multiprocessors / RowTiles(a)));
}

void Divide(const MojoAttentionArgs& a, Room<256>* room, Work* work) {
  const size_t rows = PartitionsOf(a) * RowTiles(a) * 2 * kRows;
  work->part = room->Take<float>(rows * kOut);
  work->state = room->Take<float2>(rows);
}

template <class T>
cudaError_t Run(const MojoAttentionArgs& a, cudaStream_t stream) {
  Room<256> room{static_cast<char*>(a.scratch)};
  Work work = {};
  Divide(a, &room, &work);
  work.latents = LatentsOf(a);
  work.step = StepOf(a);
  work.row_tiles = static_cast<int>(RowTiles(a));
  work.factor = a.scale * kLog2E;
  const Extent rows[] = {{kWidth, 0, 64}, {RowsOf(a), kWidth * 2, kRows}, {a.batch, RowsOf(a) * kWidth * 2, 1}};
  const Extent keys[] = {{kWidth, 0, 64}, {TokensOf(a), kWidth * 2, kKeys}, {a.batch, work.step * 2, 1}};
  if (cudaError_t e = MakeTensorMap(&work.q, a.q, rows, 3)) return e;
  if (cudaError_t e = MakeTensorMap(&work.k, work.latents, keys, 3)) return e;
  const auto kernel = AttendLatents<T>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes)) return e;
  const size_t partitions = PartitionsOf(a);
  const auto blocks = static_cast<unsigned>(partitions * RowTiles(a));
  if (cudaError_t e = Launch(kernel, blocks, kThreads, kBytes, stream, a, work)) return e;
  // most is about the number of blocks that run at once.
  const size_t tiles = a.batch * RowTiles(a), most = 4 * static_cast<size_t>(TheDevice().multiprocessors);
  int joined_rows = 1;
  while (joined_rows < kRows && tiles * kRows / joined_rows > most) joined_rows *= 2;
  const auto joins = static_cast<unsigned>(tiles * kRows / joined_rows);
  const cudaError_t error =
      Launch(CombineTiles<T>, joins, kJoinThreads, 0, stream, a, work, static_cast<int>(partitions), joined_rows);
  if (error != cudaSuccess) return error;
  // Without padding each query sees at least its own key.
  if (!a.empty_mean || (a.key_valid == nullptr && a.queries <= a.added)) return cudaSuccess;
  return Launch(MeanOfEmpty<T>, static_cast<unsigned>(a.batch), kMeanThreads, 0, stream, a, work);
}

// HasKernels reports whether the device runs the kernels, which are empty unless compiled for capability 9.0.
bool HasKernels() {
  if (TheDevice().capability != 90) return false;
  static const bool has = HasHopperCode(AttendLatents<BFloat>);
  return has;
}

bool HasForm(const MojoAttentionArgs& a) {
  return a.type != kMojoFloat32 && a.key_heads == 1 && a.width == kWidth && a.value_width == kOut &&
         a.bias == nullptr && a.sink == nullptr && a.softcap == 0 && a.window == 0 && a.scale > 0;
}

}  // namespace
}  // namespace latent

using namespace latent;

bool AttentionLatentTakes(const MojoAttentionArgs& a) {
  if (!HasForm(a) || !HasKernels()) return false;
  // The rows of a sequence must be contiguous.
  const void* const latents = LatentsOf(a);
  const bool lies = a.q_steps.head == kWidth && (a.queries == 1 || a.q_steps.row == a.heads * kWidth) &&
                    (a.batch == 1 || a.q_steps.batch == RowsOf(a) * kWidth) &&
                    (latents != a.k || a.k_steps.row == kWidth);
  const bool aligned = AllAligned(16, a.q, latents, a.y) && StepOf(a) % 8 == 0 && a.y_steps.batch % 8 == 0 &&
                       a.y_steps.head % 8 == 0 && a.y_steps.row % 8 == 0;
  // Pairs are counted in ints.
  return lies && aligned && a.batch * (a.room + 2 * kKeys) <= INT_MAX && latents != nullptr && TokensOf(a) > 0 &&
         StepOf(a) > 0;
}

size_t AttentionLatentScratch(const MojoAttentionArgs& a) {
  if (!HasForm(a) || !HasKernels()) return 0;
  Room<256> room;
  Work work;
  Divide(a, &room, &work);
  return room.used;
}

cudaError_t AttentionLatent(const MojoAttentionArgs& a, cudaStream_t stream) {
  return a.type == kMojoBFloat16 ? Run<BFloat>(a, stream) : Run<Half>(a, stream);
}

}  // namespace mojo
