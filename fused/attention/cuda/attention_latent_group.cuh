// The warps of a block of attention_latent.cu: the one that copies, and the two warpgroups that multiply.
#pragma once

#include "attention/cuda/attention_latent_work.cuh"
#include "attention/cuda/attention_warpgroup.cuh"

namespace mojo {
namespace latent {

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

// Each warpgroup has one named barrier. The two exchange data by mbarriers at which all threads arrive: with named
// barriers the kernel is 3 % faster, but racecheck cannot follow those.
constexpr int kOwnBarrier = 1;

// FreeOf and FullOf are the barriers of a half, or a part, of a key tile. The last part, which has no values, belongs
// to the half of the other warpgroup, which finishes it later: its memory is reused for the weights.
__device__ __forceinline__ uint32_t FreeOf(uint32_t shared, int tile, int half) {
  return shared + kKeysFree + (tile * 2 + half) * 8;
}
__device__ __forceinline__ uint32_t FullOf(uint32_t shared, int tile, int part) {
  return shared + kKeysFull + (tile * kParts + part) * 8;
}

// Load is the warp that copies all data of the block.
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
  const int first_row;  // of the row tile
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
  // Weights points to the weights of a tile for the other warpgroup.
  __device__ __forceinline__ char* Weights(int tile) const {
    return memory + kKeysAt + tile * kTileBytes + (kParts - 1) * kPartBytes + threadIdx.x % kGroup * 16;
  }
  __device__ __forceinline__ void Free(int tile, int half) const {
    if (lane == 0) Arrive(FreeOf(shared, tile, half));
  }

  // Scores multiplies rows and keys of the n-th pair, in the order in which parts arrive.
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

  // HideKeys hides the scores of keys that rows do not see. Keys past the length may hold anything: they become zeros.
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

  // Base is the exponent that weights are relative to.
  __device__ __forceinline__ float Base(float top) const { return top == -INFINITY ? 0.0f : top * work.factor; }
  // Raise updates the rows' greatest scores, and writes the factors that rescale the earlier sums.
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

  // First and Second are the work of the two warpgroups on the scores of a pair.
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

  // Store writes the sums of a segment.
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

}  // namespace latent
}  // namespace mojo
