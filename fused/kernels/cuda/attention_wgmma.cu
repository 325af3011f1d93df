// Attention of many queries on compute capability 9.0, with its copies and wgmma.
//
// A block takes tiles by turns, the longest first. A tile's 128 rows are some queries of the heads that share keys, so
// that few keys are hidden from some of them. One warp copies: the rows, then keys and values, tile by tile from the
// last one that a row sees, through a ring. Each of two warpgroups has 64 rows; their scores, exponents and sums stay
// in registers. The exponents of a tile of keys are made while the values of the tile before are multiplied, and the
// warpgroups take turns to begin products, so that one's exponents fall into the other's products.
#include <algorithm>

#include "cuda/attention.cuh"
#include "cuda/hopper.cuh"
#include "cuda/tensor_map.h"

namespace mojo {
namespace {

constexpr int kGroup = 128;     // threads of a warpgroup
constexpr int kGroups = 2;      // warpgroups that multiply
constexpr int kGroupRows = 64;  // rows of a warpgroup
constexpr int kRows = kGroups * kGroupRows;
constexpr int kThreads = (kGroups + 1) * kGroup;

constexpr int kMeanThreads = 1024;

// Work is what a kernel needs beyond the arguments.
struct Work {
  CUtensorMap q, k, v;
  int members;   // heads whose rows are in a tile, all that share keys or one
  int queries;   // of a tile
  int parts;     // tiles for the heads that share keys
  int columns;   // tiles of the same queries
  int lines;     // tiles of the same heads
  int all;       // tiles in all
  float factor;  // of the scores, for PowerOfTwo
  float bend;    // softcap: of the scores, for their tanh; else 0
  float* means;  // [pairs, value_width], for rows that see no key; null: zeros
};

// Form is how a block for heads of kWidth numbers works.
template <int kKeyWidth, int kValueWidth, int kTileKeys, int kRing, int kRowRing>
struct Form {
  static constexpr int kWidth = kKeyWidth, kOut = kValueWidth, kKeys = kTileKeys, kStages = kRing,
                       kRowStages = kRowRing;
  static constexpr int kRowBytes = kRows * kWidth * 2, kKeyBytes = kKeys * kWidth * 2, kValueBytes = kKeys * kOut * 2;
  static constexpr int kWords = (kKeys + 31) / 32;  // of bits for keys
  static constexpr int kKeysAt = kRowStages * kRowBytes, kValuesAt = kKeysAt + kStages * kKeyBytes,
                       kValidAt = kValuesAt + kStages * kValueBytes, kRowsFull = kValidAt + kStages * 16,
                       kRowsFree = kRowsFull + kRowStages * 8, kKeysFull = kRowsFree + kRowStages * 8,
                       kKeysFree = kKeysFull + kStages * 8, kValuesFull = kKeysFree + kStages * 8,
                       kValuesFree = kValuesFull + kStages * 8, kBytes = kValuesFree + kStages * 8;
  static_assert(kKeys % 16 == 0 && kWords <= 4 && kBytes <= 227 * 1024, "a multiplication's depth; shared memory");
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Registers of a thread that multiplies, and of one that does not.
constexpr int kMost = 232, kFewest = 40;

// Tanh is off by at most 2^-11 of its result for bfloat16, which rounds more than that away, and by 2^-22 for float16.
template <class T>
__device__ __forceinline__ float Tanh(float x) {
  if constexpr (std::is_same<T, BFloat>::value) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  } else {
    return 1 - __fdividef(2, PowerOfTwo(2 * kLog2E * x) + 1);
  }
}

// Ring finds the stage of the n-th thing that goes through a ring of so many, and the parity of its phase.
template <int kStages>
struct Ring {
  static_assert((kStages & (kStages - 1)) == 0, "a remainder is some bits");
  static __device__ __forceinline__ int Stage(int n) { return n % kStages; }
  static __device__ __forceinline__ uint32_t Parity(int n) { return n / kStages % 2; }
};

// Tile is which rows a block has. Row r is the query r / members of the tile's, of the head r % members.
struct Tile {
  Pair pair;
  int member;  // the first head, of those of the pair
  int query;   // the first one

  __device__ __forceinline__ Tile(const MojoAttentionArgs& a, const Work& work, int index)
      : Tile(a, work, index, index / work.columns) {}
  // Tiles are the tiles of keys that its rows see.
  template <class F>
  __device__ __forceinline__ Span Tiles(const MojoAttentionArgs& a, const Work& work) const {
    const int last = min(query + work.queries, static_cast<int>(a.queries)) - 1;
    const int begin = Seen(a, pair, query).begin / F::kKeys;
    return {begin, max((Seen(a, pair, last).end + F::kKeys - 1) / F::kKeys, begin)};
  }

 private:
  __device__ __forceinline__ Tile(const MojoAttentionArgs& a, const Work& work, int index, int line)
      : Tile(a, work, line, index - line * work.columns, work.columns / work.parts) {}
  __device__ __forceinline__ Tile(const MojoAttentionArgs& a, const Work& work, int line, int column, int pairs)
      : pair(a, work.parts > 1 ? column % pairs : column), member(work.parts > 1 ? column / pairs : 0) {
    query = (a.causal ? work.lines - 1 - line : line) * work.queries;
  }
};

// TileOf is a block's tile of a round. Every other round goes backward, so that no block has the longest of all.
__device__ __forceinline__ int TileOf(int round) {
  return static_cast<int>(round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x));
}

// Load is one warp, which copies all that the block needs.
template <class F>
__device__ __forceinline__ void Load(const MojoAttentionArgs& a, const Work& work, char* memory) {
  typedef Ring<F::kStages> Keys;
  typedef Ring<F::kRowStages> Rows;
  const uint32_t shared = SharedAddress(memory);
  const int lane = threadIdx.x % 32;
  int at = 0;  // tiles of keys before
  for (int round = 0; round * static_cast<int>(gridDim.x) < work.all; ++round) {
    const int index = TileOf(round);
    if (index >= work.all) continue;
    const Tile tile(a, work, index);
    const Span seen = tile.Tiles<F>(a, work);
    const auto load_keys = [&](int n, int at) {
      const int stage = Keys::Stage(at);
      uint32_t bits[F::kWords];
      if (a.key_valid != nullptr) {
#pragma unroll
        for (int w = 0; w < F::kWords; ++w) {
          const int key = n * F::kKeys + w * 32 + lane;
          bits[w] = __ballot_sync(~0u, key < tile.pair.length && Valid(a, tile.pair, key));
        }
      }
      if (lane != 0) return;
      WaitForPhase(shared + F::kKeysFree + stage * 8, Keys::Parity(at) ^ 1);
      if (a.key_valid != nullptr) {
        uint32_t* const to = reinterpret_cast<uint32_t*>(memory + F::kValidAt + stage * 16);
#pragma unroll
        for (int w = 0; w < F::kWords; ++w) to[w] = bits[w];
      }
      const uint32_t full = shared + F::kKeysFull + stage * 8;
      ArriveExpecting(full, F::kKeyBytes);
      CopyBox(shared + F::kKeysAt + stage * F::kKeyBytes, &work.k, full, 0, n * F::kKeys, 0, tile.pair.head,
              tile.pair.batch, kStayNormal);
    };
    const auto load_values = [&](int n, int at) {
      if (lane != 0) return;
      const int stage = Keys::Stage(at);
      WaitForPhase(shared + F::kValuesFree + stage * 8, Keys::Parity(at) ^ 1);
      const uint32_t full = shared + F::kValuesFull + stage * 8;
      ArriveExpecting(full, F::kValueBytes);
      CopyBox(shared + F::kValuesAt + stage * F::kValueBytes, &work.v, full, 0, n * F::kKeys, 0, tile.pair.head,
              tile.pair.batch, kStayNormal);
    };
    if (lane == 0) {
      const int stage = Rows::Stage(round);
      WaitForPhase(shared + F::kRowsFree + stage * 8, Rows::Parity(round) ^ 1);
      const uint32_t full = shared + F::kRowsFull + stage * 8;
      ArriveExpecting(full, work.queries * work.members * F::kWidth * 2);
      for (int part = 0; part < F::kWidth / 64; ++part) {
        CopyBox(shared + stage * F::kRowBytes + part * kRows * 128, &work.q, full, part * 64, tile.member, tile.query,
                tile.pair.head, tile.pair.batch, kStayNormal);
      }
    }
    if (seen.begin == seen.end) continue;
    load_keys(seen.end - 1, at);
#pragma unroll 1
    for (int n = seen.end - 2; n >= seen.begin; --n, ++at) {
      load_keys(n, at + 1);
      load_values(n + 1, at);
    }
    load_values(seen.begin, at++);
  }
  LetNextStart();
}

// Hide makes -infinity of the scores of keys outside of a row's span, which is counted from the lane's first one.
template <int kColumns>
__device__ __forceinline__ void Hide(const Span (&seen)[2], float (&s)[kColumns][4]) {
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!seen[i / 2].Has(8 * j + i % 2)) s[j][i] = -INFINITY;
    }
  }
}

// HideInvalid does the same with the keys whose bit is 0.
template <int kColumns>
__device__ __forceinline__ void HideInvalid(const uint32_t* words, float (&s)[kColumns][4]) {
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const uint32_t bits = words[j / 4] >> (threadIdx.x % 4 * 2 + j % 4 * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((bits >> i % 2 & 1) == 0) s[j][i] = -INFINITY;
    }
  }
}

// Soften makes the exponents of scores, and brings the rows' maxima and sums up to date. What was summed up before is
// to be multiplied by fade.
template <int kColumns>
__device__ __forceinline__ void Soften(float factor, float (&s)[kColumns][4], float (&most)[2], float (&sum)[2],
                                       float (&fade)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = most[r];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) top = fmaxf(top, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    const float base = top == -INFINITY ? 0.0f : top * factor;
    fade[r] = PowerOfTwo(most[r] * factor - base);
    most[r] = top;
    float added = 0;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        s[j][i] = PowerOfTwo(fmaf(s[j][i], factor, -base));
        added += s[j][i];
      }
    }
    sum[r] = fmaf(sum[r], fade[r], added);
  }
}

template <class T, int kColumns>
__device__ __forceinline__ void RoundSums(const float (&s)[kColumns][4], uint32_t (&p)[kColumns / 2][4]) {
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Two<T> two = FromFloats<T>(s[j][2 * r], s[j][2 * r + 1]);
      memcpy(&p[j / 2][j % 2 * 2 + r], &two, 4);
    }
  }
}

// StoreRow stores a row that four lanes have two numbers of each eight of. They swap so that each stores 16 bytes.
template <class T, int kColumns>
__device__ __forceinline__ void StoreRow(const float (&o)[kColumns][4], int r, float factor, bool is, T* to) {
  const bool odd = threadIdx.x % 2 != 0, high = threadIdx.x % 4 >= 2;
#pragma unroll
  for (int j = 0; j < kColumns; j += 4) {
    uint32_t w[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const Two<T> two = FromFloats<T>(o[j + c][2 * r] * factor, o[j + c][2 * r + 1] * factor);
      memcpy(&w[c], &two, 4);
    }
    const uint32_t a0 = high ? w[2] : w[0], a1 = high ? w[3] : w[1];
    const uint32_t b0 = __shfl_xor_sync(~0u, high ? w[0] : w[2], 2), b1 = __shfl_xor_sync(~0u, high ? w[1] : w[3], 2);
    const uint32_t own = odd ? a1 : a0, far = odd ? b1 : b0;
    const uint32_t near = __shfl_xor_sync(~0u, odd ? a0 : a1, 1), last = __shfl_xor_sync(~0u, odd ? b0 : b1, 1);
    const uint32_t x0 = odd ? near : own, x1 = odd ? own : near, x2 = odd ? last : far, x3 = odd ? far : last;
    Pack<T, 8> pack;
    pack.words[0] = high ? x2 : x0, pack.words[1] = high ? x3 : x1;
    pack.words[2] = high ? x0 : x2, pack.words[3] = high ? x1 : x3;
    if (is) StorePack(to + j * 8 + threadIdx.x % 4 * 8, pack);
  }
}

// Attend is one warpgroup, with its 64 rows of each of the block's tiles.
template <class T, class F>
__device__ __forceinline__ void Attend(const MojoAttentionArgs& a, const Work& work, char* memory) {
  constexpr int kColumns = F::kKeys / 8;
  typedef Ring<F::kStages> Keys;
  typedef Ring<F::kRowStages> Rows;
  const uint32_t shared = SharedAddress(memory);
  // By a shuffle, so that the compiler knows that a warp has one.
  const int group = __shfl_sync(~0u, threadIdx.x / kGroup, 0), lane = threadIdx.x % 32;
  // The thread's two rows: their queries, from the tile's first on, and heads. The warpgroup's first and last queries.
  const int row = group * kGroupRows + threadIdx.x % kGroup / 32 * 16 + lane / 4;
  const int query[] = {row / work.members, (row + 8) / work.members};
  const int first_query = group * kGroupRows / work.members;
  const int last_query = (group * kGroupRows + kGroupRows - 1) / work.members;
  float s[kColumns][4], o[F::kOut / 8][4], most[2], sum[2], fade[2];
  uint32_t p[kColumns / 2][4];
  int at = 0;  // tiles of keys before

  const auto wait_for_keys = [&](int at) {
    WaitForPhase(shared + F::kKeysFull + Keys::Stage(at) * 8, Keys::Parity(at));
  };
  const auto wait_for_values = [&](int at) {
    WaitForPhase(shared + F::kValuesFull + Keys::Stage(at) * 8, Keys::Parity(at));
  };
  const auto free_keys = [&](int at) {
    if (lane == 0) Arrive(shared + F::kKeysFree + Keys::Stage(at) * 8);
  };
  const auto free_values = [&](int at) {
    if (lane == 0) Arrive(shared + F::kValuesFree + Keys::Stage(at) * 8);
  };
  // The first one's turn.
  if (group == kGroups - 1) EnterGroup<2 * kGroup>(2);
  for (int round = 0; round * static_cast<int>(gridDim.x) < work.all; ++round) {
    if (TileOf(round) >= work.all) continue;
    Tile tile(a, work, TileOf(round));
    const Span by_all{Seen(a, tile.pair, tile.query + last_query).begin,
                      Seen(a, tile.pair, tile.query + first_query).end};
    const auto begin_scores = [&](int at) {
      const uint64_t rows = Descriptor(shared + Rows::Stage(round) * F::kRowBytes + group * kGroupRows * 128);
      const uint64_t keys = Descriptor(shared + F::kKeysAt + Keys::Stage(at) * F::kKeyBytes);
      BeginMultiply();
#pragma unroll
      for (int d = 0; d < F::kWidth / 16; ++d) {
        MultiplyGroup<T, 0>(Columns<kColumns>(), s, rows + (d / 4 * kRows * 128 >> 4) + d % 4 * kDeeper,
                            keys + (d / 4 * F::kKeys * 128 >> 4) + d % 4 * kDeeper, d);
      }
      EndMultiply();
    };
    const auto begin_values = [&](int n, int at, bool add) {
      wait_for_values(at);
      const uint32_t from = F::kValuesAt + Keys::Stage(at) * F::kValueBytes;
      // Rows of a buffer that nobody has filled may hold anything, and 0 times that may be NaN.
      if (a.past_length != nullptr && (n + 1) * F::kKeys > tile.pair.length) {
        const int first = tile.pair.length - n * F::kKeys, pieces = (F::kKeys - first) * 8;
#pragma unroll 1
        for (int i = threadIdx.x % kGroup; i < pieces * (F::kOut / 64); i += kGroup) {
          const int line = i / pieces * F::kKeys + first;
          *reinterpret_cast<uint4*>(memory + from + line * 128 + i % pieces * 16) = make_uint4(0, 0, 0, 0);
        }
        SeeCopies();
        WaitForGroup<kGroup>(2 + kGroups + group);
      }
      const uint64_t values = WideTurnedDescriptor(shared + from, F::kKeys * 128);
      BeginMultiply();
#pragma unroll
      for (int d = 0; d < F::kKeys / 16; ++d) {
        MultiplyKept<T>(Columns<F::kOut / 8>(), o, p[d], values + d * kWideTurnedDeeper, d > 0 || add);
      }
      EndMultiply();
    };
    // What is done with scores once they are there; their keys are not needed any more.
    const auto end_scores = [&](int n, int at) {
      Arrived(s);
      if (a.key_valid == nullptr) free_keys(at);
      if (work.bend != 0) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            s[j][i] = Tanh<T>(s[j][i] * work.bend);
          }
        }
      }
      const int first = n * F::kKeys;
      if (first < by_all.begin || first + F::kKeys > by_all.end) {
        const Span one = Seen(a, tile.pair, tile.query + query[0]), two = Seen(a, tile.pair, tile.query + query[1]);
        const int from = first + lane % 4 * 2;
        Hide({{one.begin - from, one.end - from}, {two.begin - from, two.end - from}}, s);
      }
      if (a.key_valid != nullptr) {
        HideInvalid(reinterpret_cast<const uint32_t*>(memory + F::kValidAt + Keys::Stage(at) * 16), s);
        __syncwarp();
        free_keys(at);
      }
      Soften(work.factor, s, most, sum, fade);
    };
    const auto free_rows = [&] {
      if (lane == 0) Arrive(shared + F::kRowsFree + Rows::Stage(round) * 8);
    };
    const auto end_values = [&](int at) {
      WaitForMultiply<0>();
      Arrived(o);
      free_values(at);
    };

#pragma unroll
    for (int r = 0; r < 2; ++r) most[r] = -INFINITY, sum[r] = 0;
    const Span seen = tile.Tiles<F>(a, work);
    WaitForPhase(shared + F::kRowsFull + Rows::Stage(round) * 8, Rows::Parity(round));
    if (seen.begin < seen.end) {
      wait_for_keys(at);
      begin_scores(at);
      WaitForMultiply<0>();
      end_scores(seen.end - 1, at);
      RoundSums<T>(s, p);
      bool add = false;
#pragma unroll 1
      for (int n = seen.end - 2; n >= seen.begin; --n, ++at) {
        wait_for_keys(at + 1);
        WaitForGroup<2 * kGroup>(2 + group);
        begin_scores(at + 1);
        begin_values(n + 1, at, add);
        EnterGroup<2 * kGroup>(2 + (group + 1) % kGroups);
        WaitForMultiply<1>();
        end_scores(n, at + 1);
        end_values(at);
        RoundSums<T>(s, p);
#pragma unroll
        for (int j = 0; j < F::kOut / 8; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) o[j][i] *= fade[i / 2];
        }
        add = true;
      }
      free_rows();
      begin_values(seen.begin, at, add);
      end_values(at);
      ++at;
    } else {
      free_rows();
    }
    if constexpr (F::kOut == 256) {
      // Found once more, so that it takes no registers meanwhile.
      asm volatile("" : "+r"(round));
      tile = Tile(a, work, TileOf(round));
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = tile.query + query[r],
                head = tile.pair.HeadOfMember(a, tile.member + row + 8 * r - query[r] * work.members);
      float total = sum[r] + __shfl_xor_sync(~0u, sum[r], 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const float sink = a.sink != nullptr ? __ldg(a.sink + head) * kLog2E : -INFINITY;
      const float top = most[r] * work.factor, base = fmaxf(top, sink), before = PowerOfTwo(top - base);
      float factor = before / (total * before + PowerOfTwo(sink - base));
      if (most[r] == -INFINITY) {
        const float* const mean = work.means + tile.pair.number * F::kOut + lane % 4 * 2;
        const bool has = work.means != nullptr && sink == -INFINITY;
#pragma unroll
        for (int j = 0; j < F::kOut / 8; ++j) {
          const float2 two = has ? *reinterpret_cast<const float2*>(mean + j * 8) : make_float2(0, 0);
          o[j][2 * r] = two.x;
          o[j][2 * r + 1] = two.y;
        }
        factor = 1;
      }
      T* const y = static_cast<T*>(a.y) + tile.pair.batch * a.y_steps.batch + head * a.y_steps.head + i * a.y_steps.row;
      const bool is = query[r] < work.queries && i < static_cast<int>(a.queries);
      StoreRow<T>(o, r, factor, is, y);
    }
  }
}

#endif

// WarpGroupAttention. Registers: 168; a thread that multiplies has 232. Shared memory: 160 to 224 KB, see Form.
template <class T, class F>
__global__ void __launch_bounds__(kThreads, 1)
    WarpGroupAttention(const __grid_constant__ MojoAttentionArgs a, const __grid_constant__ Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  if (threadIdx.x == 0) {
    PrefetchMap(&work.q);
    PrefetchMap(&work.k);
    PrefetchMap(&work.v);
    const uint32_t shared = SharedAddress(memory);
    constexpr int kWarps = kGroups * kGroup / 32;
    for (int s = 0; s < F::kRowStages; ++s) {
      InitBarrier(shared + F::kRowsFull + s * 8, 1);
      InitBarrier(shared + F::kRowsFree + s * 8, kWarps);
    }
    for (int s = 0; s < F::kStages; ++s) {
      InitBarrier(shared + F::kKeysFull + s * 8, 1);
      InitBarrier(shared + F::kKeysFree + s * 8, kWarps);
      InitBarrier(shared + F::kValuesFull + s * 8, 1);
      InitBarrier(shared + F::kValuesFree + s * 8, kWarps);
    }
    ShowBarriers();
  }
  __syncthreads();
  WaitForPrevious();
  if (threadIdx.x >= kGroups * kGroup) {
    GiveRegisters<kFewest>();
    if (threadIdx.x < kGroups * kGroup + 32) Load<F>(a, work, memory);
  } else {
    TakeRegisters<kMost>();
    Attend<T, F>(a, work, memory);
  }
#endif
}

// MeanValues is a block for each pair: the mean of its values. Threads add up 8 columns of some keys each.
//
// Registers: 32. Shared memory: 32 KB.
template <class T>
__global__ void __launch_bounds__(kMeanThreads)
    MeanValues(const __grid_constant__ MojoAttentionArgs a, const T* values, MojoHeadSteps steps, float* means) {
  __shared__ float sums[kMeanThreads * 8];
  WaitForPrevious();
  LetNextStart();
  const Pair pair(a, blockIdx.x);
  const int width = static_cast<int>(a.value_width), columns = width / 8, lines = kMeanThreads / columns;
  const int column = threadIdx.x % columns;
  const T* const from = values + pair.batch * steps.batch + pair.head * steps.head + column * 8;
  float sum[8] = {};
  for (int j = threadIdx.x / columns; j < pair.length; j += lines) {
    float row[8];
    ToFloats(LoadPack<8>(from + j * steps.row), row);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += row[i];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[threadIdx.x * 8 + i] = sum[i];
  __syncthreads();
  for (int i = threadIdx.x; i < width; i += kMeanThreads) {
    float all = 0;
    for (int line = 0; line < lines; ++line) all += sums[line * width + i];
    means[pair.number * width + i] = all / max(pair.length, 1);
  }
}

typedef Form<64, 64, 128, 4, 2> Form64;
typedef Form<128, 128, 128, 2, 2> Form128;
typedef Form<192, 128, 128, 2, 1> Form192;
typedef Form<256, 256, 80, 2, 1> Form256;

// Source is where keys or values are read.
struct Source {
  const void* data;
  MojoHeadSteps steps;
  size_t rows;
};

// HasPast tells whether keys are read from present_key, which then has the past and the added ones.
bool HasPast(const MojoAttentionArgs& a) { return a.past > 0 || a.past_length != nullptr; }

Source SourceOf(const MojoAttentionArgs& a, const void* added, const MojoHeadSteps& steps, const void* present,
                size_t width) {
  if (!HasPast(a)) return {added, steps, a.added};
  return {present, {a.key_heads * a.room * width, a.room * width, width}, a.room};
}
Source KeysOf(const MojoAttentionArgs& a) { return SourceOf(a, a.k, a.k_steps, a.present_key, a.width); }
Source ValuesOf(const MojoAttentionArgs& a) { return SourceOf(a, a.v, a.v_steps, a.present_value, a.value_width); }

// Step is a dimension's step in bytes, or any where there is one of it.
size_t Step(size_t count, size_t elements) { return count > 1 ? elements * 2 : 16; }

// MakeKeyMap makes the map of keys or values. A box is rows of a head, as parts of 64 numbers.
cudaError_t MakeKeyMap(CUtensorMap* map, const Source& from, const MojoAttentionArgs& a, size_t width, unsigned rows) {
  const Extent extents[] = {{64, 0, 64},
                            {from.rows, Step(from.rows, from.steps.row), rows},
                            {width / 64, 128, static_cast<unsigned>(width / 64)},
                            {a.key_heads, Step(a.key_heads, from.steps.head), 1},
                            {a.batch, Step(a.batch, from.steps.batch), 1}};
  return MakeTensorMap(map, from.data, extents, 5);
}

// HasMeans tells whether a row may get the mean of all values.
bool HasMeans(const MojoAttentionArgs& a) { return a.empty_mean && (a.key_valid != nullptr || a.queries > a.added); }

// MakeRowMap makes the map of q. A box is 64 numbers of members of the heads that share keys, of queries.
cudaError_t MakeRowMap(CUtensorMap* map, const MojoAttentionArgs& a, int members, int queries) {
  const size_t group = a.heads / a.key_heads, step = a.q_steps.head;
  const Extent extents[] = {{a.width, 0, 64},
                            {group, Step(group, a.cyclic ? step * a.key_heads : step), static_cast<unsigned>(members)},
                            {a.queries, Step(a.queries, a.q_steps.row), static_cast<unsigned>(queries)},
                            {a.key_heads, Step(a.key_heads, a.cyclic ? step : step * group), 1},
                            {a.batch, Step(a.batch, a.q_steps.batch), 1}};
  return MakeTensorMap(map, a.q, extents, 5);
}

// Copied tells whether boxes of a tensor can be copied, or its rows stored by 16 bytes.
bool Copied(const Source& from, size_t batch, size_t heads) {
  const auto fits = [](size_t count, size_t elements) { return count <= 1 || (elements > 0 && elements % 8 == 0); };
  return Aligned(from.data, 16) && fits(batch, from.steps.batch) && fits(heads, from.steps.head) &&
         fits(from.rows, from.steps.row);
}

template <class T, class F>
cudaError_t LaunchForm(const MojoAttentionArgs& a, cudaStream_t stream) {
  const Source keys = KeysOf(a), values = ValuesOf(a);
  const size_t group = a.heads / a.key_heads;
  Work work = {};
  work.members = group <= 16 ? static_cast<int>(group) : 1;
  work.queries = kRows / work.members;
  work.parts = static_cast<int>(group) / work.members;
  work.columns = static_cast<int>(PairsOf(a)) * work.parts;
  work.lines = static_cast<int>(DivideUp(a.queries, work.queries));
  work.all = work.lines * work.columns;
  work.factor = (a.softcap > 0 ? a.softcap : a.scale) * kLog2E;
  work.bend = a.softcap > 0 ? a.scale / a.softcap : 0;
  if (cudaError_t e = MakeRowMap(&work.q, a, work.members, work.queries)) return e;
  if (cudaError_t e = MakeKeyMap(&work.k, keys, a, a.width, F::kKeys)) return e;
  if (cudaError_t e = MakeKeyMap(&work.v, values, a, a.value_width, F::kKeys)) return e;
  if (HasMeans(a)) {
    work.means = static_cast<float*>(a.scratch);
    const cudaError_t e = Launch(MeanValues<T>, static_cast<unsigned>(PairsOf(a)), kMeanThreads, 0, stream, a,
                                 static_cast<const T*>(values.data), values.steps, work.means);
    if (e != cudaSuccess) return e;
  }
  const auto kernel = WarpGroupAttention<T, F>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, F::kBytes)) return e;
  // A block for each tile takes longer to begin, which long tiles do not mind, but none waits for another.
  const bool longest = a.window == 0 && keys.rows > 8192;
  const int blocks = longest ? work.all : std::min(work.all, TheDevice().multiprocessors);
  return Launch(kernel, static_cast<unsigned>(blocks), kThreads, F::kBytes, stream, a, work);
}

template <class T>
cudaError_t LaunchType(const MojoAttentionArgs& a, cudaStream_t stream) {
  return a.width == 64    ? LaunchForm<T, Form64>(a, stream)
         : a.width == 128 ? LaunchForm<T, Form128>(a, stream)
         : a.width == 192 ? LaunchForm<T, Form192>(a, stream)
                          : LaunchForm<T, Form256>(a, stream);
}

// HasKernels tells whether the device runs the kernels; they are empty where they were compiled for another capability.
bool HasKernels() {
  if (TheDevice().capability != 90) return false;
  static const bool has = [] {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, WarpGroupAttention<BFloat, Form128>) == cudaSuccess &&
           attributes.ptxVersion >= 90 && HasTensorMaps();
  }();
  return has;
}

}  // namespace

bool AttentionWgmmaTakes(const MojoAttentionArgs& a) {
  const bool square = a.width == a.value_width && (a.width == 64 || a.width == 128 || a.width == 256);
  if (a.type == kMojoFloat32 || a.bias != nullptr || !(square || (a.width == 192 && a.value_width == 128)))
    return false;
  const Source keys = KeysOf(a), values = ValuesOf(a);
  // Maxima are those of the scores before they are multiplied by scale.
  if (!(a.scale > 0) || a.queries == 0 || keys.rows == 0 || !HasKernels()) return false;
  constexpr size_t kMost = size_t{1} << 30;
  return keys.data != nullptr && values.data != nullptr && keys.rows + a.queries < kMost &&
         a.batch * a.heads * a.queries < kMost && Copied({a.q, a.q_steps, a.queries}, a.batch, a.heads) &&
         Copied({a.y, a.y_steps, a.queries}, a.batch, a.heads) && Copied(keys, a.batch, a.key_heads) &&
         Copied(values, a.batch, a.key_heads);
}

// The pointers may not be known yet.
size_t AttentionWgmmaScratch(const MojoAttentionArgs& a) {
  return a.empty_mean ? PairsOf(a) * a.value_width * sizeof(float) : 0;
}

cudaError_t AttentionWgmma(const MojoAttentionArgs& a, cudaStream_t stream) {
  return a.type == kMojoBFloat16 ? LaunchType<BFloat>(a, stream) : LaunchType<Half>(a, stream);
}

}  // namespace mojo
