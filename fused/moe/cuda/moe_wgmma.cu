// The products of experts on compute capability 9.0: a persistent grouped GEMM with tensor maps and wgmma.
//
// As many blocks as fit on the device take output tiles from a counter, so it does not matter how long each takes. Some
// threads of a block load (moe_load.cuh) and two warpgroups multiply: 64 rows of weights each, with all choices of the
// tile at once, both read from shared memory. While they store a tile, the loading threads go on with the next.
//
// The floor is the greater of reading the weights of each chosen expert once, 6 * hidden * inner bytes, and 3 * hidden
// * inner multiply-adds for each choice on the tensor cores.
#include "moe/cuda/moe_load.cuh"

namespace mojo {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// MultiplySteps multiplies a tile of at most 8 * kColumns choices, from the ring's stage on, and frees its stages.
template <class T, int kTokens, Product kProduct, bool kInOut, int kColumns>
__device__ __forceinline__ void MultiplySteps(uint32_t shared, int steps, Ring<Form<kTokens>::kStages>* ring,
                                              float (&sum)[kTokens / 8][4]) {
  typedef Form<kTokens> F;
  const uint32_t full = shared + F::kFullAt, free = shared + F::kFreeAt;
  const int group = threadIdx.x / kGroup;
  const bool first_lane = threadIdx.x % 32 == 0;
  uint32_t before = 0;
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
    WaitForPhase(full + ring->stage * 8, ring->parity);
    if (kProduct != kDown) SeeCopies();
    const uint32_t rows = shared + ring->stage * F::kStageBytes;
    const uint64_t left = kInOut ? TurnedDescriptor(rows + group * 2 * kTurnedBytes, kTurnedBytes)
                                 : Descriptor(rows + group * 64 * 128),
                   right = Descriptor(rows + kRowBytes);
    BeginMultiply();
#pragma unroll
    for (int part = 0; part < kTileDeep / 16; ++part) {
      MultiplyGroup<T, kInOut>(Columns<kColumns>(), sum, left + part * (kInOut ? kTurnedDeeper : kDeeper),
                               right + part * kDeeper, k + part);
    }
    EndMultiply();
    // The multiplication before this one has ended then.
    WaitForMultiply<1>();
    if (k > 0 && first_lane) Arrive(before);
    before = free + ring->stage * 8;
    ring->Advance();
  }
  WaitForMultiply<0>();
  if (first_lane) Arrive(before);
}

// MultiplyChoices multiplies a tile by as few columns, from kColumns on, as hold its choices.
template <class T, int kTokens, Product kProduct, bool kInOut, int kColumns>
__device__ __forceinline__ void MultiplyChoices(int count, uint32_t shared, int steps,
                                                Ring<Form<kTokens>::kStages>* ring, float (&sum)[kTokens / 8][4]) {
  if constexpr (8 * kColumns < kTokens) {
    constexpr int kMore = kTokens == 64 ? 2 * kColumns : kColumns + 2;
    if (count > 8 * kColumns)
      return MultiplyChoices<T, kTokens, kProduct, kInOut, kMore>(count, shared, steps, ring, sum);
  }
  MultiplySteps<T, kTokens, kProduct, kInOut, kColumns>(shared, steps, ring, sum);
}

// Store adds the biases, activates or weighs, and stores a warpgroup's sums. They go through shared memory in
// chunks of tokens, so that each store is a part of a token's row. Lanes have sums of rows lane / 4 and that plus
// 8 of their warp's 16, of the tokens 2 * (lane % 4) and the next of each column.
template <class T, int kTokens, Product kProduct, bool kInOut>
__device__ __forceinline__ void Store(const MojoMoEArgs& a, const MoEWork& work, const Place& place, char* memory,
                                      const float (&bias)[2], const float (&sum)[kTokens / 8][4]) {
  typedef Form<kTokens> F;
  const int group = threadIdx.x / kGroup, n = threadIdx.x % kGroup, lane = n % 32, barrier = 2 + group;
  float* const chunks = reinterpret_cast<float*>(memory + F::kChunksAt + group * F::kChunks * F::kChunkBytes);
  const int2* const choices = reinterpret_cast<const int2*>(memory + F::kChoicesAt) + group * kTokens;
  const int width = static_cast<int>(kProduct == kDown ? a.hidden : a.inner);
  const bool gated = kProduct == kGateUp && a.packing != Packing::kNone;
  const bool turns = kInOut && a.packing == Packing::kInterleaved;
  const int begin =
      gated ? place.row_block * 64 + group * 32 + n % 8 * 4 : place.row_block * kTileRows + group * 64 + n % 8 * 8;
  // Of the first four numbers of a thread.
  const int four = !gated || turns ? n % 8 * 8 : kInOut ? n % 8 * 4 : n % 8 / 2 * 16 + n % 2 * 4;
#pragma unroll
  for (int c = 0; c < kTokens / 8; c += kChunk / 8) {
    if (c * 8 >= place.count) break;
    float* const out = chunks + c / 2 % F::kChunks * (F::kChunkBytes / 4);
    if (F::kChunks == 1 && c > 0) WaitForGroup<kGroup>(barrier);
#pragma unroll
    for (int j = 0; j < kChunk / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[(j * 8 + lane % 4 * 2 + i % 2) * kChunkStride + n / 32 * 16 + i / 2 * 8 + lane / 4] =
            sum[c + j][i] + bias[i / 2];
      }
    }
    WaitForGroup<kGroup>(barrier);
    const int token = c * 8 + n / 8;
    if (token >= place.count || begin >= width) continue;
    const float* const in = out + n / 8 * kChunkStride + four;
    if constexpr (kProduct == kGateUp) {
      const size_t at = static_cast<size_t>(place.first + token) * a.inner + begin;
#pragma unroll 1
      for (int half = 0; half < (gated ? 1 : 2); ++half) {
        float v[4], up[4];
        LoadPairs(in + half * 4, gated, turns, kInOut ? 32 : 8, v, up);
        ActivatePairs(a, v, up);
        StoreBounded<T>(work.activated, at + half * 4, v);
      }
    } else {
      const int2 choice = choices[token];
      const float weight = __int_as_float(choice.y);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 v = *reinterpret_cast<const float4*>(in + half * 4);
        const float y[4] = {v.x * weight, v.y * weight, v.z * weight, v.w * weight};
        const size_t at = static_cast<size_t>(choice.x) * a.hidden + begin + half * 4;
        if (work.wide) {
          StoreFour<float>(work.outputs, at, y);
        } else {
          StoreFour<T>(work.outputs, at, y);
        }
      }
    }
  }
}

// BiasRow is the row of a group's bias, or -1 without a bias.
template <Product kProduct, bool kInOut>
__device__ __forceinline__ int BiasRow(const MojoMoEArgs& a, const Place& place, int group, int row) {
  const int height = static_cast<int>(kProduct == kDown ? a.hidden : Packed(a)), inner = static_cast<int>(a.inner);
  if (kProduct == kGateUp && a.packing != Packing::kNone && !(kInOut && a.packing == Packing::kInterleaved)) {
    const int pair = place.row_block * 64 + group * 32 + (kInOut ? row % 32 : row / 16 * 8 + row % 8);
    const bool gate = kInOut ? row < 32 : row % 16 < 8;
    return pair < inner ? static_cast<int>(gate ? GateRow(a, pair) : UpRow(a, pair)) : -1;
  }
  const int number = place.row_block * kTileRows + group * 64 + row;
  return number < height ? number : -1;
}

// MultiplyPlaces multiplies and stores the loaded places until the loader marks the end.
template <class T, int kTokens, Product kProduct, bool kInOut>
__device__ __forceinline__ void MultiplyPlaces(const MojoMoEArgs& a, const MoEWork& work, char* memory) {
  typedef Form<kTokens> F;
  const uint32_t shared = SharedAddress(memory);
  const int group = threadIdx.x / kGroup, n = threadIdx.x % kGroup, lane = n % 32, steps = Steps(a, kProduct);
  WaitForPrevious();
  Ring<F::kStages> ring;
  for (;;) {
    WaitForPhase(shared + F::kFullAt + ring.stage * 8, ring.parity);
    const Place place = reinterpret_cast<const Place*>(memory + F::kPlacesAt)[ring.stage];
    if (place.count == 0) return;
    // The stores need more data, which arrives during the multiplication.
    constexpr int kOwn = (kTokens + kGroup - 1) / kGroup;
    int2 own[kOwn];
    float bias[2] = {};
    if constexpr (kProduct == kDown) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const bool is = n + i * kGroup < place.count;
        const int at = is ? place.first + n + i * kGroup : place.first;
        own[i] = make_int2(__ldcg(work.plan.choice + at), __float_as_int(__ldcg(work.plan.weight + at)));
      }
    }
    const void* const biases = kProduct == kDown ? a.down_bias : a.gate_up_bias;
    if (biases != nullptr) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = BiasRow<kProduct, kInOut>(a, place, group, n / 32 * 16 + i * 8 + lane / 4);
        const size_t expert_at = place.expert * (kProduct == kDown ? a.hidden : Packed(a));
        if (row >= 0) bias[i] = Number(biases, expert_at + row, a.expert_type);
      }
    }
    float sum[kTokens / 8][4];
    constexpr int kFewest = kTokens == 64 ? 2 : kTokens / 16;
    MultiplyChoices<T, kTokens, kProduct, kInOut, kFewest>(place.count, shared, steps, &ring, sum);
    // The group's chunks and choices are free once all of its threads are here.
    WaitForGroup<kGroup>(2 + group);
    if constexpr (kProduct == kDown) {
      int2* const choices = reinterpret_cast<int2*>(memory + F::kChoicesAt) + group * kTokens;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (n + i * kGroup < kTokens) choices[n + i * kGroup] = own[i];
      }
    }
    Store<T, kTokens, kProduct, kInOut>(a, work, place, memory, bias, sum);
  }
}

#endif

// WarpGroupTile. Registers: 96 for tiles of 64 tokens, of which two blocks run on a multiprocessor; 168 for wider
// ones, of which a thread that loads keeps 72 and one that multiplies has 216. Shared memory: see Form. A step of
// 128 x 256 reads 48 KB from L2 for 4.2 million operations.
template <class T, int kTokens, Product kProduct, bool kInOut>
__global__ void __launch_bounds__(Form<kTokens>::kThreads, Form<kTokens>::kBlocks)
    WarpGroupTile(const __grid_constant__ MojoMoEArgs a, const __grid_constant__ MoEWork work,
                  const __grid_constant__ Maps maps, int row_blocks) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  typedef Form<kTokens> F;
  if (threadIdx.x == 0) {
    PrefetchMap(&maps.rows);
    const uint32_t shared = SharedAddress(memory);
    for (int s = 0; s < F::kStages; ++s) {
      InitBarrier(shared + F::kFullAt + s * 8, kProduct == kDown ? 1 : F::kLoaders + 1);
      InitBarrier(shared + F::kFreeAt + s * 8, 2 * kGroup / 32);
    }
    ShowBarriers();
  }
  __syncthreads();
  if (threadIdx.x >= 2 * kGroup) {
    if constexpr (F::kBlocks == 1) GiveRegisters<72>();
    if constexpr (kProduct != kDown) {
      LoadGathered<kTokens, kInOut>(a, work, maps, row_blocks, memory);
    } else if (threadIdx.x == 2 * kGroup) {
      LoadSorted<kTokens, kInOut>(a, work, maps, row_blocks, memory);
    } else {
      WaitForPrevious();
    }
  } else {
    if constexpr (F::kBlocks == 1) TakeRegisters<216>();
    MultiplyPlaces<T, kTokens, kProduct, kInOut>(a, work, memory);
  }
#endif
}

// MakeMaps makes the maps of a product.
cudaError_t MakeMaps(const MojoMoEArgs& a, const MoEWork& work, Product product, bool in_out, Maps* maps) {
  const size_t depth = product == kDown ? a.inner : a.hidden, height = product == kDown ? a.hidden : Packed(a);
  const void* const matrix = product == kDown ? a.down : a.gate_up;
  const size_t line = depth * 2, bytes = height * line;
  const bool gated = product != kDown && a.packing != Packing::kNone, turns = a.packing == Packing::kInterleaved;
  const Extent turned[] = {{height, 0, 32}, {depth, height * 2, kTileDeep}, {a.experts, bytes, 1}};
  const Extent pairs[] = {{depth, 0, kTileDeep},
                          {8, (turns ? 2 : 1) * line, 8},
                          {2, turns ? line : a.inner * line, 2},
                          {a.inner / 8, (turns ? 16 : 8) * line, kTileRows / 16},
                          {a.experts, bytes, 1}};
  const Extent rows[] = {{depth, 0, kTileDeep}, {height, line, kTileRows}, {a.experts, bytes, 1}};
  const cudaError_t error = in_out  ? MakeTensorMap(&maps->rows, matrix, turned, 3)
                            : gated ? MakeTensorMap(&maps->rows, matrix, pairs, 5)
                                    : MakeTensorMap(&maps->rows, matrix, rows, 3);
  if (error != cudaSuccess || product != kDown) return error;
  const Extent tokens[] = {{depth, 0, kTileDeep}, {a.tokens * a.top_k, line, kBoxTokens}};
  return MakeTensorMap(&maps->tokens, work.activated, tokens, 2);
}

template <class T, int kTokens, bool kInOut>
cudaError_t LaunchProduct(const MojoMoEArgs& a, const MoEWork& work, Product product, cudaStream_t stream) {
  const auto kernel =
      product == kDown ? WarpGroupTile<T, kTokens, kDown, kInOut> : WarpGroupTile<T, kTokens, kGateUp, kInOut>;
  constexpr int kBytes = Form<kTokens>::kBytes;
  Maps maps = {};
  // Rows that few tiles read make way for outputs, which are read again soon.
  maps.rows_stay = kTokens < 256 || work.wide ? kStayFirst : kStayNormal;
  if (cudaError_t e = MakeMaps(a, work, product, kInOut, &maps)) return e;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes)) return e;
  const int row_blocks = static_cast<int>(DivideUp(product == kDown ? a.hidden : Packed(a), kTileRows));
  const size_t places = MostTiles(a.tokens * a.top_k, a.experts, kTokens) * row_blocks;
  const size_t blocks = static_cast<size_t>(TheDevice().multiprocessors) * Form<kTokens>::kBlocks;
  return Launch(kernel, static_cast<unsigned>(places < blocks ? places : blocks), Form<kTokens>::kThreads, kBytes,
                stream, a, work, maps, row_blocks);
}

template <class T, bool kInOut>
cudaError_t LaunchWidth(const MojoMoEArgs& a, const MoEWork& work, Product product, int tokens, cudaStream_t stream) {
  return tokens == 64    ? LaunchProduct<T, 64, kInOut>(a, work, product, stream)
         : tokens == 128 ? LaunchProduct<T, 128, kInOut>(a, work, product, stream)
                         : LaunchProduct<T, 256, kInOut>(a, work, product, stream);
}

}  // namespace

// The kernels are empty if compiled for another capability, or for a capability and later ones.
bool HasHopperTile() {
  if (TheDevice().capability != 90) return false;
  static const bool has = HasHopperCode(WarpGroupTile<BFloat, 128, kDown, false>);
  return has;
}

cudaError_t HopperTile(const MojoMoEArgs& a, const MoEWork& work, Product product, int tokens, cudaStream_t stream) {
  const bool in_out = product == kDown ? a.down_in_out : a.gate_up_in_out;
  if (a.x_type == kMojoBFloat16)
    return in_out ? LaunchWidth<BFloat, true>(a, work, product, tokens, stream)
                  : LaunchWidth<BFloat, false>(a, work, product, tokens, stream);
  return in_out ? LaunchWidth<Half, true>(a, work, product, tokens, stream)
                : LaunchWidth<Half, false>(a, work, product, tokens, stream);
}

}  // namespace mojo
