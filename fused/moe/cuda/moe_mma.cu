// MoE of more tokens, on any device with mma.sync for 16 bit numbers (compute capability 8.0).
//
// Four launches: the plan, two products, the sum of each token's choices. On compute capability 9.0 moe_wgmma.cu does
// the products, except narrow tiles of [depth, rows].
//
// A block multiplies a tile: 128 rows of an expert's matrix by up to kTokens of its choices. The rows are the first
// operand and the choices the second, whose columns come in eights, so that few choices cost few multiplications, and a
// tile is as wide as most experts need: weights are then read once. Tiles of one expert that share rows run one after
// another, and read them from L2.
//
// The floor is the greater of 6 * hidden * inner bytes for each chosen expert, and as many operations for each choice.
// The two blocks of a multiprocessor have 96 KB of weights in flight.
#include "moe/cuda/moe_tile.cuh"

namespace mojo {
namespace {

// MultiplyTile. Registers: 76, 96 and 124 for tiles of 32, 64 and 128 tokens, so that two blocks run on a
// multiprocessor; shared memory 80, 96 and 96 KB.
template <class T, int kTokens, Product kProduct, bool kInOut>
__global__ __launch_bounds__(kTileThreads, 2) void MultiplyTile(const __grid_constant__ MojoMoEArgs a,
                                                                const __grid_constant__ MoEWork work, int row_blocks) {
  extern __shared__ __align__(128) char memory[];
  constexpr int kStages = Stages(kTokens), kColumns = kTokens / 16;  // eights of tokens of a warp
  Place place;
  if (!place.Begin(work, row_blocks, kTokens, kProduct)) return;
  const Source<kTokens, kProduct, kInOut> source(a, work, place);
  const int lane = threadIdx.x % 32, rows_warp = threadIdx.x / 64, tokens_warp = threadIdx.x / 32 % 2;
  const uint32_t shared = SharedAddress(memory);
  const int steps = source.Steps();
  BeginTile<kTokens, kProduct, kStages - 1>(source, shared);
  float sum[2][kColumns][4] = {};
  // Warps take pairs of eights by turns, so that few tokens are shared too.
  const auto column = [&](int c) { return (c / 2 * 2 + tokens_warp) * 16 + c % 2 * 8; };
  const int columns = (place.count - tokens_warp * 16 + 31) / 32 * 2;  // that hold a token
  int stage = 0;
  for (int k = 0; k < steps; ++k) {
    WaitForGroups<kStages - 2>();
    __syncthreads();
    const int next = k + kStages - 1;
    if (next < steps) source.Start(shared + (stage == 0 ? kStages - 1 : stage - 1) * StageBytes(kTokens), next);
    EndGroup();
    const uint32_t rows = shared + stage * StageBytes(kTokens), tokens = rows + kRowBytes;
    stage = stage == kStages - 1 ? 0 : stage + 1;
    if (columns <= 0) continue;
#pragma unroll
    for (int part = 0; part < kTileDeep / 16; ++part) {
      uint32_t left[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int row = rows_warp * 32 + m * 16;
        if (kInOut) {
          LoadTransposed(left[m], rows + Swapped(part * 16 + lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2, 16));
        } else {
          LoadMatrices(left[m], rows + Swapped(row + lane % 16, part * 2 + lane / 16, 8));
        }
      }
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        if (c >= columns) break;
        uint32_t right[4];
        LoadMatrices(right, tokens + Swapped(column(c) + lane / 16 * 8 + lane % 8, part * 2 + lane / 8 % 2, 8));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          Multiply<T>(sum[m][c], left[m], right[0], right[1]);
          Multiply<T>(sum[m][c + 1], left[m], right[2], right[3]);
        }
      }
    }
  }
  WaitForGroups<0>();
  __syncthreads();
  const float* const sums = PutSums(memory, sum, rows_warp * 32, column);
  if constexpr (kProduct == kDown) {
    StoreOutputs<T>(a, work, place, sums);
  } else {
    StoreActivated<T, kInOut>(a, work, place, sums);
  }
}

// Combine adds up the outputs of each token's choices in their order, eight numbers a thread.
template <class T>
__global__ __launch_bounds__(kTileThreads) void Combine(const __grid_constant__ MojoMoEArgs a,
                                                        const __grid_constant__ MoEWork work) {
  WaitForPrevious();
  LetNextStart();
  const size_t n = static_cast<size_t>(blockIdx.x) * kTileThreads + threadIdx.x, pieces = a.hidden / 8;
  if (n >= a.tokens * pieces) return;
  const size_t token = n / pieces, h = n % pieces * 8;
  float sum[8] = {};
#pragma unroll 4
  for (size_t j = 0; j < a.top_k; ++j) {
    const size_t choice = token * a.top_k + j, at = choice * a.hidden + h;
    if (ChosenExpert(a, choice) < 0) continue;
    float v[8];
    if (work.wide) {
      const float4* p = reinterpret_cast<const float4*>(static_cast<const float*>(work.outputs) + at);
      const float4 low = p[0], high = p[1];
      v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
      v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
      ToFloats(LoadPack<8>(static_cast<const T*>(work.outputs) + at), v);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += v[i];
  }
  StorePack(static_cast<T*>(a.y) + token * a.hidden + h, PackFloats<T>(sum));
}

template <class T, int kTokens, Product kProduct, bool kInOut>
cudaError_t RunTiles(const MojoMoEArgs& a, const MoEWork& work, unsigned blocks, int row_blocks, cudaStream_t stream) {
  const auto kernel = MultiplyTile<T, kTokens, kProduct, kInOut>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SharedBytes(kTokens)))
    return e;
  return Launch(kernel, blocks, kTileThreads, SharedBytes(kTokens), stream, a, work, row_blocks);
}

// HopperTakes reports whether HopperTile takes a call: its matrices are at least as large as a stage.
bool HopperTakes(const MojoMoEArgs& a) { return a.hidden >= kTileDeep && a.inner >= kTileDeep && HasHopperTile(); }

// TileTokens is the width of tiles: up to twice an expert's average, so that few experts need more than one. On Hopper
// the bounds are measured: MultiplyTile is faster there for few tokens of deep matrices, and wide tiles are faster if
// matrices are [depth, rows], even for one token. A call's config overrides this.
int TileTokens(const MojoMoEArgs& a) {
  if (a.config.tile != 0) return a.config.tile;
  const size_t average = a.tokens * a.top_k / a.experts;
  if (!HopperTakes(a)) return average <= 16 ? 32 : average <= 44 ? 64 : 128;
  if (a.gate_up_in_out || a.down_in_out) return average < 2 ? 128 : 256;
  if (a.inner >= 2048 && average <= 8) return 32;
  return average <= 36 ? 64 : average <= 96 ? 128 : 256;
}

// ByHopper reports whether HopperTile handles tiles of this width.
bool ByHopper(const MojoMoEArgs& a, int tokens) {
  return tokens >= 64 && a.config.kernel != kMojoMma && HopperTakes(a);
}

// HasTiles reports whether the tiles of a call's config exist.
bool HasTiles(const MojoMoEArgs& a) {
  switch (a.config.tile) {
    case 0: return a.config.kernel == kMojoAnyKernel;
    case 32: return a.config.kernel == kMojoMma;
    case 64:
    case 128: return a.config.kernel == kMojoMma || (a.config.kernel == kMojoWgmma && HopperTakes(a));
    case 256: return a.config.kernel == kMojoWgmma && HopperTakes(a);
    default: return false;
  }
}

template <class T, Product kProduct, bool kInOut>
cudaError_t RunProduct(const MojoMoEArgs& a, const MoEWork& work, int tokens, cudaStream_t stream) {
  const int row_blocks = static_cast<int>(DivideUp(kProduct == kDown ? a.hidden : Packed(a), kTileRows));
  const unsigned blocks = static_cast<unsigned>(MostTiles(a.tokens * a.top_k, a.experts, tokens) * row_blocks);
  if (ByHopper(a, tokens)) return HopperTile(a, work, kProduct, tokens, stream);
  const auto run = tokens == 32   ? RunTiles<T, 32, kProduct, kInOut>
                   : tokens == 64 ? RunTiles<T, 64, kProduct, kInOut>
                                  : RunTiles<T, 128, kProduct, kInOut>;
  return run(a, work, blocks, row_blocks, stream);
}

// Larger outputs of choices are rounded to y's type: they would not stay in L2.
constexpr size_t kWideBytes = size_t{40} << 20;

MoEWork Divide(const MojoMoEArgs& a, Room<256>* room) {
  MoEWork work;
  const size_t choices = a.tokens * a.top_k;
  work.wide = choices * a.hidden * 4 <= kWideBytes;
  work.plan.choice = room->Take<int>(choices);
  work.plan.weight = room->Take<float>(choices);
  work.plan.tiles = room->Take<MoETile>(MostTiles(choices, a.experts, TileTokens(a)));
  work.plan.tile_count = room->Take<int>(1);
  work.plan.begun = room->Take<int>(2);
  work.activated = room->Take<uint16_t>(choices * a.inner);
  work.outputs = room->Take<uint16_t>(choices * a.hidden * (work.wide ? 2 : 1));
  return work;
}

template <class T>
cudaError_t Run(const MojoMoEArgs& a, cudaStream_t stream) {
  Room<256> room{static_cast<char*>(a.scratch)};
  const MoEWork work = Divide(a, &room);
  const int tokens = TileTokens(a);
  if (cudaError_t e = PlanMoE(a, tokens, work.plan, stream)) return e;
  const bool in_out = a.gate_up_in_out != 0;
  const auto first = in_out ? RunProduct<T, kGateUp, true> : RunProduct<T, kGateUp, false>;
  if (cudaError_t e = first(a, work, tokens, stream)) return e;
  const auto second = a.down_in_out ? RunProduct<T, kDown, true> : RunProduct<T, kDown, false>;
  if (cudaError_t e = second(a, work, tokens, stream)) return e;
  return Launch(Combine<T>, static_cast<unsigned>(DivideUp(a.tokens * (a.hidden / 8), kTileThreads)), kTileThreads, 0,
                stream, a, work);
}

}  // namespace

bool TiledMoETakes(const MojoMoEArgs& a) {
  constexpr size_t kMost = size_t{1} << 30;
  const size_t choices = a.tokens * a.top_k, pieces = a.hidden / 8;  // places are ints
  return WideLoads(a) && HasTiles(a) && a.experts <= kMostPlannedExperts && choices <= kMost && pieces <= kMost / 8 &&
         a.inner <= kMost / 8 && a.tokens * pieces <= kMost && choices * (a.inner / 8) <= kMost &&
         Packed(a) * pieces <= kMost &&
         MostTiles(a.tokens * a.top_k, a.experts, TileTokens(a)) *
                 DivideUp(a.hidden > Packed(a) ? a.hidden : Packed(a), kTileRows) <=
             kMost;
}

size_t TiledMoEScratch(const MojoMoEArgs& a) {
  Room<256> room;
  Divide(a, &room);
  return room.used;
}

cudaError_t TiledMoE(const MojoMoEArgs& a, cudaStream_t stream) {
  return a.x_type == kMojoBFloat16 ? Run<BFloat>(a, stream) : Run<Half>(a, stream);
}

}  // namespace mojo
