// Attention whose heads share keys of 576 numbers, of which the first 512 are the values, on compute capability 9.0:
// steps of DeepSeek's latent attention, which multiply more than they read.
//
// A unit is 64 rows of a sequence, a pair two tiles of 64 keys. The pairs of all sequences stand in a row, and a team,
// which has a block for each unit of a sequence, takes as many as another; its blocks read the same keys at one time.
// What blocks have of a unit that several teams work on, JoinUnits adds up. In a block one warp copies rows and tiles.
// Two warpgroups share a pair's work: each multiplies all rows with its own tile of keys, and weighs its own half of
// the channels of both tiles, so that a warpgroup's exponents fall into the other's products. They tell each other the
// greatest scores, and give each other their weights. (Deng, Liu: FlashMLA, 2025, calls it seesaw.)
#include <limits.h>

#include <algorithm>

#include "common/room.h"
#include "cuda/attention_join.cuh"
#include "cuda/attention_warpgroup.cuh"
#include "cuda/tensor_map.h"

namespace mojo {
namespace {

constexpr int kWidth = 576, kOut = 512, kOwn = kOut / 2;  // kOwn channels of values are a warpgroup's
constexpr int kRows = 64, kKeys = 64;
constexpr int kJoinThreads = 512, kMeanThreads = 512;

// Work is how the work is cut.
struct Work {
  CUtensorMap q, k;
  const void* latents;
  size_t step;    // from one sequence of latents to the next
  int row_tiles;  // units of a sequence, blocks of a team
  float factor;   // of the scores, for PowerOfTwo
  float* part;    // [blocks, 2, kRows, kOut]: of units that a block does not do alone, the one that it begins second
  float2* state;  // [blocks, 2, kRows]: the greatest score, and the sum of weights
};

// Sequence is a sequence of a call.
struct Sequence {
  int batch;
  int begin;  // pairs before it
  int pairs;
};

// PairsIn is how many pairs there are in a sequence, one at least.
__device__ __forceinline__ int PairsIn(const MojoAttentionArgs& a, int batch) {
  return max(1, (Pair(a, batch).length + 2 * kKeys - 1) / (2 * kKeys));
}

// FindSequence finds the sequence that has the pair of that place; where there is none, begin is the number of all
// pairs. A warp calls it. Where lengths are one for all, nothing is searched.
__device__ __forceinline__ Sequence FindSequence(const MojoAttentionArgs& a, int place) {
  const int batch = static_cast<int>(a.batch), lane = threadIdx.x % 32;
  if (a.past_length == nullptr || a.one_length) {
    const int pairs = PairsIn(a, 0), b = min(place / pairs, batch);
    return {b, b * pairs, pairs};
  }
  int before = 0;
#pragma unroll 1
  for (int first = 0; first < batch; first += 32) {
    const int pairs = first + lane < batch ? PairsIn(a, first + lane) : 0;
    int sum = pairs;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += other;
    }
    const int passed = __popc(__ballot_sync(~0u, before + sum <= place));
    if (passed < 32) {
      const int here = __shfl_sync(~0u, pairs, passed);
      return {first + passed, before + __shfl_sync(~0u, sum, passed) - here, here};
    }
    before += __shfl_sync(~0u, sum, 31);
  }
  return {batch, before, 0};
}

// SequenceOf is the sequence of that number. A warp calls it.
__device__ __forceinline__ Sequence SequenceOf(const MojoAttentionArgs& a, int batch) {
  const int pairs = PairsIn(a, batch);
  if (a.past_length == nullptr || a.one_length) return {batch, batch * pairs, pairs};
  int before = 0;
#pragma unroll 1
  for (int b = threadIdx.x % 32; b < batch; b += 32) before += PairsIn(a, b);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) before += __shfl_xor_sync(~0u, before, step);
  return {batch, before, pairs};
}

// Quota is how many of all pairs each of the teams takes.
__device__ __forceinline__ int Quota(int all, int teams) { return (all + teams - 1) / teams; }

// OfWarp is v, which all lanes have: the compiler knows it by the shuffle, and keeps one for the warp.
__device__ __forceinline__ int OfWarp(int v) { return __shfl_sync(~0u, v, 0); }

// Segment is what a block has of a sequence: its pairs from begin to end - 1.
struct Segment {
  Pair pair;
  int pairs;  // of the sequence
  int begin, end;

  __device__ __forceinline__ Segment(const MojoAttentionArgs& a, const Sequence& s, int place, int end_place)
      : pair(a, OfWarp(s.batch)),
        pairs(OfWarp(s.pairs)),
        begin(OfWarp(place - s.begin)),
        end(OfWarp(min(s.pairs, end_place - s.begin))) {
    pair.length = OfWarp(pair.length);
  }
};

// Places are the places of a block's pairs.
struct Places {
  const int tile;  // of rows
  int at, end;

  __device__ __forceinline__ Places(const MojoAttentionArgs& a, const Work& work)
      : tile(static_cast<int>(blockIdx.x) % work.row_tiles) {
    const int teams = static_cast<int>(gridDim.x) / work.row_tiles,
              team = static_cast<int>(blockIdx.x) / work.row_tiles;
    const int all = FindSequence(a, INT_MAX).begin, quota = Quota(all, teams);
    at = OfWarp(min(all, quota * team));
    end = OfWarp(min(all, at + quota));
  }
  // Next is the next segment; there is one while at < end.
  __device__ __forceinline__ Segment Next(const MojoAttentionArgs& a) {
    const Segment s(a, FindSequence(a, at), at, end);
    at = OfWarp(at + s.end - s.begin);
    return s;
  }
};

constexpr int kGroup = 128, kThreads = 3 * kGroup;
constexpr int kParts = kWidth / 64, kHalf = kOwn / 64;  // 64 numbers of a tile are a part; kHalf parts are a half
constexpr int kPartBytes = kKeys * 128, kTileBytes = kParts * kPartBytes;
constexpr int kKeysAt = kTileBytes, kMaximaAt = 3 * kTileBytes, kSumsAt = kMaximaAt + 2 * kRows * 4,
              kValidAt = kSumsAt + 2 * kRows * 4, kRowsFull = kValidAt + 2 * 2 * 4, kRowsFree = kRowsFull + 8,
              kKeysFull = kRowsFree + 8, kKeysFree = kKeysFull + 2 * kParts * 8, kFirstMaxima = kKeysFree + 2 * 2 * 8,
              kSecondMaxima = kFirstMaxima + 8, kFirstWeights = kSecondMaxima + 8, kSums = kFirstWeights + 8,
              kBytes = kSums + 8;
// Registers of a thread that multiplies, and of one that does not.
constexpr int kMost = 232, kFewest = 40;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The hardware's barriers of the two warpgroups, each its own. What they show each other goes by barriers in shared
// memory, at which all threads arrive: with the hardware's they are 3 % faster, but racecheck does not follow those.
constexpr int kOwnBarrier = 1;

// FreeOf and FullOf are the barriers of a half, or a part, of a tile of keys. The last part, which has no values, goes
// with the half of the other warpgroup, which is the later one to be done with it: in its place its weights lie.
__device__ __forceinline__ uint32_t FreeOf(uint32_t shared, int tile, int half) {
  return shared + kKeysFree + (tile * 2 + half) * 8;
}
__device__ __forceinline__ uint32_t FullOf(uint32_t shared, int tile, int part) {
  return shared + kKeysFull + (tile * kParts + part) * 8;
}

// Load is one warp, which copies all that the block needs.
__device__ __forceinline__ void Load(const MojoAttentionArgs& a, const Work& work, char* memory) {
  const uint32_t shared = SharedAddress(memory);
  const int lane = threadIdx.x % 32;
  Places places(a, work);
  int n = 0;  // pairs before
  for (int round = 0; places.at < places.end; ++round) {
    const Segment s = places.Next(a);
    if (lane == 0) {
      WaitForPhase(shared + kRowsFree, round % 2 ^ 1);
      ArriveExpecting(shared + kRowsFull, kTileBytes);
      for (int part = 0; part < kParts; ++part) {
        CopyBox(shared + part * kPartBytes, &work.q, shared + kRowsFull, part * 64, places.tile * kRows, s.pair.batch,
                kStayNormal);
      }
    }
    for (int i = s.begin; i < s.end; ++i, ++n) {
      const auto load = [&](int tile, int half) {
        const int key = (2 * i + tile) * kKeys;
        uint32_t bits[2];
        const bool marks = tile == half && a.key_valid != nullptr;
        if (marks) {
#pragma unroll
          for (int w = 0; w < 2; ++w) {
            const int j = key + w * 32 + lane;
            bits[w] = __ballot_sync(~0u, j < s.pair.length && Valid(a, s.pair, j));
          }
        }
        if (lane != 0) return;
        WaitForPhase(FreeOf(shared, tile, half), n % 2 ^ 1);
        if (marks) {
          uint32_t* const to = reinterpret_cast<uint32_t*>(memory + kValidAt) + tile * 2;
          to[0] = bits[0], to[1] = bits[1];
        }
        const auto copy = [&](int part) {
          const uint32_t full = FullOf(shared, tile, part);
          ArriveExpecting(full, kPartBytes);
          CopyBox(shared + kKeysAt + tile * kTileBytes + part * kPartBytes, &work.k, full, part * 64, key, s.pair.batch,
                  kStayFirst);
        };
        for (int part = half * kHalf; part < (half + 1) * kHalf; ++part) copy(part);
        if (tile != half) copy(kParts - 1);
      };
      load(0, 0);
      load(1, 1);
      load(0, 1);
      load(1, 0);
    }
  }
  LetNextStart();
}

// Group is one of the two warpgroups; kTile is which.
template <class T, int kTile>
struct Group {
  const MojoAttentionArgs& a;
  const Work& work;
  char* const memory;
  const uint32_t shared;
  const int lane, row;  // the thread's first row; the other one is eight further
  const int first_row;  // of the unit
  float o[kOwn / 8][4], s[kKeys / 8][4], most[2], sum[2], fade[2];

  __device__ __forceinline__ Group(const MojoAttentionArgs& args, const Work& of, char* at)
      : a(args),
        work(of),
        memory(at),
        shared(SharedAddress(at)),
        lane(threadIdx.x % 32),
        row(threadIdx.x % kGroup / 32 * 16 + lane / 4),
        first_row(static_cast<int>(blockIdx.x) % of.row_tiles * kRows) {}

  __device__ __forceinline__ float* Maxima(int tile) const {
    return reinterpret_cast<float*>(memory + kMaximaAt) + tile * kRows;
  }
  // Weights are where the weights of a tile are given to the other warpgroup.
  __device__ __forceinline__ char* Weights(int tile) const {
    return memory + kKeysAt + tile * kTileBytes + (kParts - 1) * kPartBytes + threadIdx.x % kGroup * 16;
  }
  __device__ __forceinline__ void Free(int tile, int half) const {
    if (lane == 0) Arrive(FreeOf(shared, tile, half));
  }

  // Scores multiplies rows and keys of the n-th pair, in the order in which parts come.
  __device__ __forceinline__ void Scores(int n) {
    BeginMultiply();
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int part = kTile == 0 || i == kParts - 1 ? i : (i + kHalf) % (2 * kHalf);
      WaitForPhase(FullOf(shared, kTile, part), n % 2);
      const uint64_t rows = Descriptor(shared + part * kPartBytes);
      const uint64_t keys = Descriptor(shared + kKeysAt + kTile * kTileBytes + part * kPartBytes);
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        MultiplyGroup<T, 0>(Columns<kKeys / 8>(), s, rows + d * kDeeper, keys + d * kDeeper, i + d);
      }
    }
    EndMultiply();
    WaitForMultiply<0>();
    Arrived(s);
    WaitForGroup<kGroup>(kOwnBarrier + kTile);  // all warps are: weights take the place of keys
  }
  // BeginValues begins to add the warpgroup's half of a tile's values.
  __device__ __forceinline__ void BeginValues(int tile, const uint32_t (&p)[kKeys / 16][4]) {
    const uint64_t values =
        WideTurnedDescriptor(shared + kKeysAt + tile * kTileBytes + kTile * kHalf * kPartBytes, kPartBytes);
    BeginMultiply();
#pragma unroll
    for (int d = 0; d < kKeys / 16; ++d) {
      MultiplyKept<T>(Columns<kOwn / 8>(), o, p[d], values + d * kWideTurnedDeeper, 1);
    }
    EndMultiply();
  }

  // HideKeys hides the scores of keys that rows do not see. Keys behind the length may be anything: they become zeros.
  __device__ __forceinline__ void HideKeys(const Segment& g, int pair) {
    const int first = (2 * pair + kTile) * kKeys, heads = static_cast<int>(a.heads);
    const int first_query = first_row / heads;
    if (first + kKeys > Seen(a, g.pair, first_query).end) {
      const int from = first + lane % 4 * 2;
      const Span one = Seen(a, g.pair, (first_row + row) / heads);
      const Span two = Seen(a, g.pair, (first_row + row + 8) / heads);
      warpgroup::Hide({{one.begin - from, one.end - from}, {two.begin - from, two.end - from}}, s);
    }
    if (a.key_valid != nullptr) {
      warpgroup::HideInvalid<2>(reinterpret_cast<const uint32_t*>(memory + kValidAt) + kTile * 2, s);
    }
    if (first + kKeys > g.pair.length) {
      const int there = max(0, g.pair.length - first), pieces = (kKeys - there) * 8;
#pragma unroll 1
      for (int i = threadIdx.x % kGroup; i < pieces * 2 * kHalf; i += kGroup) {
        char* const part = memory + kKeysAt + kTile * kTileBytes + i / pieces * kPartBytes;
        *reinterpret_cast<uint4*>(part + there * 128 + i % pieces * 16) = make_uint4(0, 0, 0, 0);
      }
      SeeCopies();
      WaitForGroup<kGroup>(kOwnBarrier + kTile);
    }
  }

  // Base is what weights are relative to.
  __device__ __forceinline__ float Base(float top) const { return top == -INFINITY ? 0.0f : top * work.factor; }
  // Raise takes greater scores of the rows, and writes by how much what was summed up fades.
  __device__ __forceinline__ void Raise(const float* maxima, float (&by)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float top = maxima[row + 8 * r];
      by[r] = PowerOfTwo(most[r] * work.factor - Base(top));
      most[r] = top;
      sum[r] *= by[r];
    }
  }
  __device__ __forceinline__ void ShowMaxima() const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (lane % 4 == 0) Maxima(kTile)[row + 8 * r] = most[r];
    }
  }
  __device__ __forceinline__ void FadeSums(const float (&by)[2]) {
#pragma unroll
    for (int j = 0; j < kOwn / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[j][i] *= by[i / 2];
    }
  }
  __device__ __forceinline__ void GiveWeights(const uint32_t (&p)[kKeys / 16][4]) const {
#pragma unroll
    for (int d = 0; d < kKeys / 16; ++d) {
      *reinterpret_cast<uint4*>(Weights(kTile) + d * kGroup * 16) = make_uint4(p[d][0], p[d][1], p[d][2], p[d][3]);
    }
    SeeCopies();  // a copy into their place comes next
  }
  __device__ __forceinline__ void TakeWeights(uint32_t (&p)[kKeys / 16][4]) const {
#pragma unroll
    for (int d = 0; d < kKeys / 16; ++d) {
      const uint4 v = *reinterpret_cast<const uint4*>(Weights(1 - kTile) + d * kGroup * 16);
      p[d][0] = v.x, p[d][1] = v.y, p[d][2] = v.z, p[d][3] = v.w;
    }
  }

  // First and Second are what the warpgroups do with the scores of a pair.
  __device__ __forceinline__ void First(const Segment& g, int pair, int n) {
    uint32_t p[kKeys / 16][4];
    HideKeys(g, pair);
    warpgroup::Soften(work.factor, s, most, sum, fade);
    ShowMaxima();
    Arrive(shared + kFirstMaxima);
    warpgroup::RoundSums<T>(s, p);
    FadeSums(fade);
    BeginValues(0, p);
    WaitForMultiply<0>();
    Arrived(o);
    Free(0, 0);
    WaitForPhase(shared + kSecondMaxima, n % 2);
    Raise(Maxima(1), fade);
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[j][i] *= fade[i / 2];
    }
    warpgroup::RoundSums<T>(s, p);
    GiveWeights(p);
    Arrive(shared + kFirstWeights);
    TakeWeights(p);
    FadeSums(fade);
    BeginValues(1, p);
    WaitForMultiply<0>();
    Arrived(o);
    Free(1, 0);
  }

  __device__ __forceinline__ void Second(const Segment& g, int pair, int n) {
    uint32_t p[kKeys / 16][4], again[kKeys / 16][4];
    float by[2];
    HideKeys(g, pair);
    WaitForPhase(shared + kFirstMaxima, n % 2);
    Raise(Maxima(0), by);
    warpgroup::Soften(work.factor, s, most, sum, fade);
    ShowMaxima();
    warpgroup::RoundSums<T>(s, p);
    GiveWeights(p);
    Arrive(shared + kSecondMaxima);
#pragma unroll
    for (int r = 0; r < 2; ++r) fade[r] *= by[r];
    FadeSums(fade);
    BeginValues(1, p);
    WaitForPhase(shared + kFirstWeights, n % 2);
    TakeWeights(again);
    BeginValues(0, again);
    WaitForMultiply<1>();
    Free(1, 1);
    WaitForMultiply<0>();
    Arrived(o);
    Free(0, 1);
  }

  // Store writes what a segment has.
  __device__ __forceinline__ void Store(const Segment& g, int round) {
    float* const sums = reinterpret_cast<float*>(memory + kSumsAt);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
      if (lane % 4 == 0) sums[kTile * kRows + row + 8 * r] = sum[r];
    }
    Arrive(shared + kSums);
    WaitForPhase(shared + kSums, round % 2);
    const bool alone = g.end - g.begin == g.pairs;
    const size_t slot = blockIdx.x * 2 + (g.begin == 0);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int own = row + 8 * r, at = first_row + own, heads = static_cast<int>(a.heads);
      const float all = sums[own] + sums[kRows + own];
      const bool is = at < heads * static_cast<int>(a.queries);
      if (alone) {
        T* const y = static_cast<T*>(a.y) + g.pair.batch * a.y_steps.batch + at % heads * a.y_steps.head +
                     at / heads * a.y_steps.row + kTile * kOwn;
        warpgroup::StoreRow<T>(o, r, all == 0 ? 0 : __fdividef(1, all), is, y);
        continue;
      }
      float* const to = work.part + (slot * kRows + own) * kOut + kTile * kOwn + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kOwn / 8; ++j) {
        *reinterpret_cast<float2*>(to + j * 8) = make_float2(o[j][2 * r], o[j][2 * r + 1]);
      }
      if (kTile == 0 && lane % 4 == 0) work.state[slot * kRows + own] = make_float2(most[r] * work.factor, all);
    }
  }

  // Attend does the block's segments.
  __device__ __forceinline__ void Attend() {
    int n = 0;  // pairs before
    Places places(a, work);
    for (int round = 0; places.at < places.end; ++round) {
      const Segment g = places.Next(a);
#pragma unroll
      for (int j = 0; j < kOwn / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[j][i] = 0;
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) most[r] = -INFINITY, sum[r] = 0;
      WaitForPhase(shared + kRowsFull, round % 2);
#pragma unroll 1
      for (int pair = g.begin; pair < g.end; ++pair, ++n) {
        Scores(n);
        if (pair + 1 == g.end && lane == 0) Arrive(shared + kRowsFree);
        if constexpr (kTile == 0) {
          First(g, pair, n);
        } else {
          Second(g, pair, n);
        }
      }
      Store(g, round);
    }
  }
};

#endif

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
  // By a shuffle, so that the compiler knows that a warp has one.
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

// JoinUnits adds up rows of a unit that several blocks have worked on: of a row's parts, a fourth at a time.
//
// Registers: 80. Shared memory: 9 KB.
template <class T>
__global__ __launch_bounds__(kJoinThreads) void JoinUnits(const __grid_constant__ MojoAttentionArgs a,
                                                          const __grid_constant__ Work work, int teams, int rows) {
  constexpr int kQuads = kOut / 4, kShares = kJoinThreads / kQuads;
  __shared__ __align__(16) float totals[kShares * kOut];
  __shared__ float2 states[kShares];
  WaitForPrevious();
  LetNextStart();
  const int heads = static_cast<int>(a.heads), each = kRows / rows, unit = blockIdx.x / each;
  const int batch = unit / work.row_tiles, tile = unit % work.row_tiles;
  const Sequence s = SequenceOf(a, batch);
  const int quota = Quota(FindSequence(a, INT_MAX).begin, teams);
  const int first = s.begin / quota;
  const int parts = (s.begin + s.pairs - 1) / quota - first + 1;
  if (parts == 1) return;
  const int share = threadIdx.x / kQuads, quad = threadIdx.x % kQuads;
  const int from = parts * share / kShares, count = parts * (share + 1) / kShares - from;
  const int first_row = static_cast<int>(blockIdx.x) % each * rows;
  for (int own = first_row; own < first_row + rows; ++own) {
    const int at = tile * kRows + own;
    if (at >= heads * static_cast<int>(a.queries)) return;
    // The first team's part is the second of its block, those of the others are their first ones.
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

// MeanOfEmpty is a block for each sequence: it writes the mean of all values where a query sees no key.
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

// Keys are read from present_key where there is a past, which then has the added ones too.
const void* LatentsOf(const MojoAttentionArgs& a) {
  return a.past > 0 || a.past_length != nullptr ? a.present_key : a.k;
}
size_t StepOf(const MojoAttentionArgs& a) { return LatentsOf(a) == a.k ? a.k_steps.batch : a.room * kWidth; }
size_t TokensOf(const MojoAttentionArgs& a) { return LatentsOf(a) == a.k ? a.added : a.room; }

// RowTiles are the units of a sequence, TeamsOf the teams of a call: as many as find work and room, at most.
size_t RowTiles(const MojoAttentionArgs& a) { return DivideUp(RowsOf(a), kRows); }
size_t TeamsOf(const MojoAttentionArgs& a) {
  const size_t pairs = a.batch * std::max<size_t>(1, DivideUp(a.room, 2 * kKeys));
  return std::max<size_t>(1, std::min(pairs, TheDevice().multiprocessors / RowTiles(a)));
}

void Divide(const MojoAttentionArgs& a, Room<256>* room, Work* work) {
  const size_t rows = TeamsOf(a) * RowTiles(a) * 2 * kRows;
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
  const size_t teams = TeamsOf(a);
  const auto blocks = static_cast<unsigned>(teams * RowTiles(a));
  if (cudaError_t e = Launch(kernel, blocks, kThreads, kBytes, stream, a, work)) return e;
  // Blocks that fit beside each other, where a row takes one.
  const size_t units = a.batch * RowTiles(a), most = 4 * static_cast<size_t>(TheDevice().multiprocessors);
  int joined_rows = 1;
  while (joined_rows < kRows && units * kRows / joined_rows > most) joined_rows *= 2;
  const auto joins = static_cast<unsigned>(units * kRows / joined_rows);
  const cudaError_t error =
      Launch(JoinUnits<T>, joins, kJoinThreads, 0, stream, a, work, static_cast<int>(teams), joined_rows);
  if (error != cudaSuccess) return error;
  // Without padding each query sees a key, its own at least.
  if (!a.empty_mean || (a.key_valid == nullptr && a.queries <= a.added)) return cudaSuccess;
  return Launch(MeanOfEmpty<T>, static_cast<unsigned>(a.batch), kMeanThreads, 0, stream, a, work);
}

// HasKernels tells whether the device runs the kernels; they are empty where they were compiled for another capability.
bool HasKernels() {
  if (TheDevice().capability != 90) return false;
  static const bool has = [] {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, AttendLatents<BFloat>) == cudaSuccess && attributes.ptxVersion >= 90 &&
           HasTensorMaps();
  }();
  return has;
}

bool HasForm(const MojoAttentionArgs& a) {
  return a.type != kMojoFloat32 && a.key_heads == 1 && a.width == kWidth && a.value_width == kOut &&
         a.bias == nullptr && a.sink == nullptr && a.softcap == 0 && a.window == 0 && a.scale > 0;
}

}  // namespace

bool AttentionLatentTakes(const MojoAttentionArgs& a) {
  if (!HasForm(a) || !HasKernels()) return false;
  // The rows of a sequence have to lie together.
  const void* const latents = LatentsOf(a);
  const bool lies = a.q_steps.head == kWidth && (a.queries == 1 || a.q_steps.row == a.heads * kWidth) &&
                    (a.batch == 1 || a.q_steps.batch == RowsOf(a) * kWidth) &&
                    (latents != a.k || a.k_steps.row == kWidth);
  const bool aligned = Aligned(a.q, 16) && Aligned(latents, 16) && Aligned(a.y, 16) && StepOf(a) % 8 == 0 &&
                       a.y_steps.batch % 8 == 0 && a.y_steps.head % 8 == 0 && a.y_steps.row % 8 == 0;
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
