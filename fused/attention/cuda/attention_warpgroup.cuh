// The warpgroups of attention of many queries on compute capability 9.0; attention_tile.cuh describes their work.
#pragma once

#include "attention/cuda/attention_tile.cuh"

namespace mojo {
namespace warpgroup {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Tanh is off by at most 2^-11 of its result for bfloat16, whose rounding error is larger, and by 2^-22 for float16.
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

// HideInvalid does the same with the keys whose bit is 0. One lane reads the words: it frees the stage, too.
template <int kWords, int kColumns>
__device__ __forceinline__ void HideInvalid(const uint32_t* words, float (&s)[kColumns][4]) {
  uint32_t own[kWords];
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    own[w] = threadIdx.x % 32 == 0 ? words[w] : 0;
    own[w] = __shfl_sync(~0u, own[w], 0);
  }
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const uint32_t bits = own[j / 4] >> (threadIdx.x % 4 * 2 + j % 4 * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((bits >> i % 2 & 1) == 0) s[j][i] = -INFINITY;
    }
  }
}

// Soften turns scores into exponentials and updates the rows' maxima and sums. The caller must multiply earlier totals
// by fade.
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

// StoreRow stores a row in which each of four lanes has two numbers of each eight. They swap so that each stores 16
// bytes.
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

// Attend is one warpgroup, with its 64 rows of each of the block's tiles, which are a Tile or like it.
template <class T, class F, class OneTile>
__device__ __forceinline__ void Attend(const typename OneTile::Args& a, const Work& work, char* memory) {
  constexpr int kColumns = F::kKeys / 8;
  typedef Ring<F::kStages> Keys;
  typedef Ring<F::kRowStages> Rows;
  const uint32_t shared = SharedAddress(memory);
  // A shuffle, so that the compiler knows that the value is uniform in a warp.
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
  for (int round = 0; OneTile::Has(work, memory, round); ++round) {
    OneTile tile(a, work, memory, round);
    const Span by_all{tile.See(a, tile.query + last_query).begin, tile.See(a, tile.query + first_query).end};
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
      // 0 times junk may be NaN.
      const Span filled{tile.Filled().begin - n * F::kKeys, tile.Filled().end - n * F::kKeys};
      if (tile.MayHoldJunk(a) && (filled.begin > 0 || filled.end < F::kKeys)) {
        const int before = max(filled.begin, 0), kept = min(filled.end, F::kKeys) - before;
        const int pieces = (F::kKeys - kept) * 8;
#pragma unroll 1
        for (int i = threadIdx.x % kGroup; i < pieces * (F::kOut / 64); i += kGroup) {
          const int piece = i % pieces, to = piece < before * 8 ? piece : piece + kept * 8;
          *reinterpret_cast<uint4*>(memory + from + i / pieces * F::kKeys * 128 + to * 16) = make_uint4(0, 0, 0, 0);
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
    // Finishes scores once they are computed; their keys are free then.
    const auto end_scores = [&](int n, int at) {
      Arrived(s);
      if (!tile.IsMasked(a)) free_keys(at);
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
        const Span one = tile.See(a, tile.query + query[0]), two = tile.See(a, tile.query + query[1]);
        const int from = first + lane % 4 * 2;
        Hide({{one.begin - from, one.end - from}, {two.begin - from, two.end - from}}, s);
      }
      if (tile.IsMasked(a)) {
        HideInvalid<F::kWords>(reinterpret_cast<const uint32_t*>(memory + F::kValidAt + Keys::Stage(at) * 16), s);
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
    const Span seen = tile.Tiles(a, work);
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
      // Computed again, so that it takes no registers meanwhile.
      asm volatile("" : "+r"(round));
      tile = OneTile(a, work, memory, round);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = tile.query + query[r], head = tile.Head(a, row + 8 * r - query[r] * work.members);
      float total = sum[r] + __shfl_xor_sync(~0u, sum[r], 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const float sink = SinkScore(a.sink, head);
      const float top = most[r] * work.factor, base = fmaxf(top, sink), before = PowerOfTwo(top - base);
      float factor = before / (total * before + PowerOfTwo(sink - base));
      if (most[r] == -INFINITY) {
        const float* const mean = tile.Mean(work);
        const bool has = mean != nullptr && sink == -INFINITY;
#pragma unroll
        for (int j = 0; j < F::kOut / 8; ++j) {
          const float2 two = has ? *reinterpret_cast<const float2*>(mean + lane % 4 * 2 + j * 8) : make_float2(0, 0);
          o[j][2 * r] = two.x;
          o[j][2 * r + 1] = two.y;
        }
        factor = 1;
      }
      const bool is = query[r] < work.queries && i < tile.Queries(a);
      StoreRow<T>(o, r, factor, is, tile.template Result<T>(a, head, i));
    }
  }
}

// RunBlock is a block of kThreads. load is each of its kLoaders warps that copy, of which kFillers fill a stage of
// keys, or of values. A thread that multiplies has kMost registers, and another kFewest.
template <class T, class F, class OneTile, int kMost = 232, int kFewest = 40, class Loads>
__device__ __forceinline__ void RunBlock(const typename OneTile::Args& a, const Work& work, char* memory,
                                         const Loads& load) {
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
      InitBarrier(shared + F::kKeysFull + s * 8, OneTile::kFillers);
      InitBarrier(shared + F::kKeysFree + s * 8, kWarps);
      InitBarrier(shared + F::kValuesFull + s * 8, OneTile::kFillers);
      InitBarrier(shared + F::kValuesFree + s * 8, kWarps);
    }
    ShowBarriers();
  }
  __syncthreads();
  WaitForPrevious();
  if (threadIdx.x >= kGroups * kGroup) {
    GiveRegisters<kFewest>();
    if (threadIdx.x < kGroups * kGroup + 32 * OneTile::kLoaders) load();
  } else {
    TakeRegisters<kMost>();
    Attend<T, F, OneTile>(a, work, memory);
  }
}

#endif

}  // namespace warpgroup
}  // namespace mojo
