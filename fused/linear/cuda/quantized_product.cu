// Products of quantized weights with activations.
//
// Few rows of activations go one way (quantized_rows.cuh), whose floor is the bytes of the weights at 4.6 TB/s (H200).
// More go through tiles of 64 of them and 32 rows of weights a warp: activations are in shared memory for all warps of
// a block, and weights go from memory into each warp's own registers there too, where 64 products are made of each.
#include "linear/cuda/quantized_product.cuh"

#include "linear/cuda/quantized_rows.cuh"

namespace mojo {
namespace {

constexpr int kFewTiles = kFewTokens / 8, kSomeTiles = kSomeTokens / 8;
constexpr int kFewWarps = 16, kSomeWarps = 8;
constexpr int kTileWarps = 4;
constexpr int kTileStages = 3;
constexpr int kTileUnits = 2;  // of a stage

// Form is the kernels' other parameters of a call.
struct Form {
  RowsCall call;
  size_t panels;  // of one expert
};

Form FormOf(const QuantizedProduct& p) {
  Form f = {};
  f.call.form = ToForm(p.weights);
  f.call.type = p.type;
  f.call.rounding = p.rounding;
  f.call.parts = Parts(p.type, p.rounding);
  f.panels = DivideUp(p.weights.n, kPanelRows);
  return f;
}

// QuantizedPlace is the tokens and weights that a block multiplies.
struct QuantizedPlace {
  int expert;
  size_t first;  // row of x, or place of a choice
  int count;

  // Find returns false without work.
  __device__ __forceinline__ bool Find(const QuantizedProduct& p, unsigned index, int tokens) {
    expert = 0;
    if (p.kind == kQuantizedLinear) {
      first = static_cast<size_t>(index) * tokens;
      count = static_cast<int>(p.rows - first < static_cast<size_t>(tokens) ? p.rows - first : tokens);
      return true;
    }
    if (index >= static_cast<unsigned>(__ldcg(p.plan.tile_count))) return false;
    const int4 tile = __ldcg(reinterpret_cast<const int4*>(p.plan.tiles + index));
    const int before = (static_cast<int>(index) - tile.y) * tokens;
    expert = tile.x;
    first = tile.z + before;
    count = min(tile.w - before, tokens);
    return true;
  }

  // RowOf is the row of x of token number i.
  __device__ __forceinline__ size_t RowOf(const QuantizedProduct& p, int i) const {
    if (p.kind != kQuantizedGateUp) return first + i;
    return static_cast<size_t>(__ldcg(p.plan.choice + first + i)) / p.moe.top_k;
  }
};

// PanelOf is the panel of pair number n that this lane reads: of the pair's first 16 rows or of its last. In halves,
// these are gates and those their ups.
__device__ __forceinline__ size_t PanelOf(const QuantizedProduct& p, const Form& f, int expert, size_t n) {
  const bool halves = p.kind == kQuantizedGateUp && p.moe.packing == Packing::kHalves, last = threadIdx.x % 32 >= 16;
  const size_t panel = halves ? n + (last ? f.panels / 2 : 0) : 2 * n + last;
  return expert * f.panels + (panel < f.panels ? panel : f.panels - 1);
}

// StorePair stores results of a pair, [token][row] with a stride of kPairRows + 1 in shared memory, by threads from
// first on, step of them.
__device__ __forceinline__ void StorePair(const QuantizedProduct& p, const QuantizedPlace& place, size_t pair,
                                          const float* out, int first, int step) {
  const size_t n = p.weights.n;
  if (p.kind == kQuantizedGateUp) {
    const bool gated = p.moe.packing != Packing::kNone, turns = p.moe.packing == Packing::kInterleaved;
    const int width = gated ? kPanelRows : kPairRows;
    for (int at = first; at < width * place.count; at += step) {
      const int i = at % width, token = at / width;
      const size_t inner = pair * width + i;
      if (inner >= p.moe.inner) continue;
      const float* const of = out + token * (kPairRows + 1);
      float gate = of[turns ? 2 * i : i], up = !gated ? 0 : of[turns ? 2 * i + 1 : kPanelRows + i];
      if (p.bias != nullptr) {
        const float* const bias = static_cast<const float*>(p.bias) + place.expert * n;
        gate += bias[GateRow(p.moe, inner)];
        if (gated) up += bias[UpRow(p.moe, inner)];
      }
      PutNumber(p.y, (place.first + token) * p.moe.inner + inner, p.y_type, Activated(p.moe, gate, up));
    }
    return;
  }
  for (int at = first; at < kPairRows * place.count; at += step) {
    const int token = at / kPairRows;
    const size_t row = pair * kPairRows + at % kPairRows;
    if (row >= n) continue;
    float v = out[token * (kPairRows + 1) + at % kPairRows];
    if (p.kind == kQuantizedLinear) {
      if (p.bias != nullptr) v += Number(p.bias, row, p.y_type);
      PutNumber(p.y, (place.first + token) * n + row, p.y_type, v);
    } else {
      const int choice = __ldcg(p.plan.choice + place.first + token);
      if (p.bias != nullptr) v += static_cast<const float*>(p.bias)[place.expert * n + row];
      static_cast<float*>(p.y)[choice * n + row] = v * Number(p.moe.weights, choice, p.moe.weights_type);
    }
  }
}

// MultiplyFew: a block multiplies a pair of panels with up to 8 * kTiles tokens. Registers: 128.
template <int kTiles, bool kPlain>
__global__ __launch_bounds__(32 * (kTiles == 1 ? kFewWarps : kSomeWarps),
                             kTiles == 1 ? 1 : 2) void MultiplyFew(const __grid_constant__ QuantizedProduct p,
                                                                   const __grid_constant__ Form f) {
  extern __shared__ __align__(128) char memory[];
  WaitForPrevious();
  LetNextStart();
  QuantizedPlace place;
  if (!place.Find(p, blockIdx.y, 8 * kTiles)) return;
  const char* tokens[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int i = tile * 8 + threadIdx.x % 32 / 4;
    tokens[tile] = nullptr;
    if (i < place.count) {
      tokens[tile] = static_cast<const char*>(p.x) + place.RowOf(p, i) * p.weights.k * (p.type == kMojoFloat32 ? 4 : 2);
    }
  }
  float* const out = RowsResults<kTiles>(f.call.slot, memory);
  MultiplyRows<kTiles, kPlain>(f.call, PanelOf(p, f, place.expert, blockIdx.x), tokens, memory, out);
  StorePair(p, place, blockIdx.x, out, threadIdx.x, blockDim.x);
}

// PrepareRows: four columns a thread, eight of which have a block. Registers: 32.
__global__ __launch_bounds__(256) void PrepareRows(const __grid_constant__ QuantizedProduct p,
                                                   const __grid_constant__ Prepared to, int parts, int fine) {
  WaitForPrevious();
  LetNextStart();
  const size_t blocks = p.weights.k / kBlockColumns, at = static_cast<size_t>(blockIdx.x) * 256 + threadIdx.x;
  const size_t row = at / 8 / blocks, block = at / 8 % blocks, from = row * p.weights.k + block * 32 + at % 8 * 4;
  const bool is = row < p.rows;
  float v[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (is) v[i] = Number(p.x, from + i, p.type);
  }
  if (to.sums != nullptr) {
    const float half = GroupSum((v[0] + v[1]) + (v[2] + v[3]), 4), other = __shfl_xor_sync(0xffffffffu, half, 4);
    if (is && fine && at % 4 == 0) to.sums[(2 * block + at % 8 / 4) * to.stride + row] = half;
    if (is && !fine && at % 8 == 0) to.sums[block * to.stride + row] = half + other;
  }
  if (p.rounding != Activations::kFloat) {
    float greatest = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
#pragma unroll
    for (int i = 1; i < 8; i *= 2) greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, i));
    const float step = RoundBlock(greatest, p.rounding, v);
    if (is && at % 8 == 0) to.steps[block * to.stride + row] = step;
  }
  if (!is) return;
#pragma unroll
  for (int part = 0; part < 3; ++part) {
    if (part >= parts) break;
    *reinterpret_cast<uint2*>(static_cast<char*>(const_cast<void*>(to.parts[part])) + from * 2) =
        make_uint2(TwoParts(v[0], v[1]), TwoParts(v[2], v[3]));
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = Rest(v[i]);
  }
}

// Swizzled is the offset of a 16-byte piece in a row of 128 bytes: eight bytes of four adjacent rows are in different
// banks.
__device__ __forceinline__ int Swizzled(int row, int piece) { return row * 128 + (piece ^ (row & 3) << 1) * 16; }

// MultiplyMany: a block multiplies a pair of panels for each of its warps with up to kTileTokens tokens.
// Registers: 160.
template <bool kPlain>
__global__ __launch_bounds__(32 * kTileWarps,
                             kPlain ? 4 : 3) void MultiplyMany(const __grid_constant__ QuantizedProduct p,
                                                               const __grid_constant__ Form all,
                                                               const __grid_constant__ Prepared x, int stage_bytes,
                                                               unsigned pairs) {
  extern __shared__ __align__(128) char memory[];
  constexpr int kTiles = kTileTokens / 8, kPartBytes = kTileTokens * 128;
  WaitForPrevious();
  LetNextStart();
  // Tiles of tokens are next to each other, so that their weights come from L2.
  QuantizedPlace place;
  if (!place.Find(p, blockIdx.x, kTileTokens)) return;
  const RowsCall& call = all.call;
  const QuantizedForm& f = call.form;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const bool rounded = !kPlain && call.rounding != Activations::kFloat;
  const bool summed = !kPlain && f.summed, fine = !kPlain && f.fine;
  const int most = kPlain ? 1 : call.parts;
  const size_t pair = static_cast<size_t>(blockIdx.y) * warps + warp;
  const Reader reader(f, PanelOf(p, all, place.expert, pair));
  const int rows_bytes = most * kPartBytes, steps = (f.units + kTileUnits - 1) / kTileUnits;
  int* const rows = reinterpret_cast<int*>(memory + kTileStages * stage_bytes);
  for (int i = threadIdx.x; i < kTileTokens; i += blockDim.x) {
    rows[i] = static_cast<int>(place.RowOf(p, i < place.count ? i : place.count - 1));
  }
  __syncthreads();
  const auto start = [&](int stage, int step) {
    char* const to = memory + stage * stage_bytes;
    if (step < steps) {
      for (int i = threadIdx.x; i < most * (kPartBytes / 16); i += blockDim.x) {
        const int part = i / (kPartBytes / 16), at = i % (kPartBytes / 16) / 8, piece = i % 8;
        const size_t column = static_cast<size_t>(step) * (kTileUnits * kBlockColumns) + piece * 8;
        const bool is = at < place.count && column < p.weights.k;
        const size_t from = is ? rows[at] * p.weights.k + column : 0;
        Copy(SharedAddress(to + part * kPartBytes + Swizzled(at, piece)),
             static_cast<const char*>(x.parts[part]) + from * 2, is);
      }
#pragma unroll
      for (int u = 0; u < kTileUnits; ++u) {
        const int unit = step * kTileUnits + u;
        if (unit < f.units) reader.Start(f, call.slot, to + rows_bytes + u * call.slot.bytes, unit);
      }
    }
    EndGroup();
  };
  float sum[kTiles][4][2] = {};
#pragma unroll
  for (int i = 0; i < kTileStages - 1; ++i) start(i, i);
  int stage = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    WaitForGroups<kTileStages - 2>();
    __syncthreads();
    start(stage == 0 ? kTileStages - 1 : stage - 1, step + kTileStages - 1);
    const char* const from = memory + stage * stage_bytes;
    stage = stage == kTileStages - 1 ? 0 : stage + 1;
#pragma unroll 1
    for (int u = 0; u < kTileUnits; ++u) {
      const int unit = step * kTileUnits + u;
      if (unit >= f.units) break;
      const char* const slots = from + rows_bytes + u * call.slot.bytes;
      Unit weights;
      weights.LoadCodes(f, slots);
#pragma unroll 1
      for (int half = 0; half <= static_cast<int>(fine); ++half) {
        weights.LoadFactors(f, call.slot, slots, half, summed);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          if (tile * 8 >= place.count) break;
          uint32_t parts[kPlain ? 1 : 3][4] = {};
#pragma unroll
          for (int part = 0; part < (kPlain ? 1 : 3); ++part) {
            if (part >= most) break;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int piece = u * 4 + ((i + half) & 1) * 2 + lane % 4 / 2;
              const uint2 v = *reinterpret_cast<const uint2*>(from + part * kPartBytes +
                                                              Swizzled(tile * 8 + lane / 4, piece) + lane % 2 * 8);
              parts[part][2 * i] = v.x;
              parts[part][2 * i + 1] = v.y;
            }
          }
          float of_steps[2] = {}, sums[2] = {};
          const auto two = [&](const float* of, int block, float (&out)[2]) {
            const float* const at = of + static_cast<size_t>(block) * x.stride;
            out[0] = at[rows[tile * 8 + lane % 4 * 2]];
            out[1] = at[rows[tile * 8 + lane % 4 * 2 + 1]];
          };
          if (rounded) two(x.steps, unit, of_steps);
          if (summed) two(x.sums, (unit << f.fine) + half, sums);
          weights.Add(parts, most, fine, rounded, summed, of_steps, sums, sum[tile]);
        }
        if (fine) weights.NextHalf();
      }
    }
  }
  WaitForGroups<0>();
  __syncthreads();
  // Each warp's results are separate.
  float* const out = reinterpret_cast<float*>(memory) + warp * kTileTokens * (kPairRows + 1);
#pragma unroll
  for (int i = 0; i < 8 * kTiles; ++i) {
    const int token = i / 8 * 8 + lane % 4 * 2 + i % 2, row = lane / 4 * 4 + i % 8 / 2;
    out[token * (kPairRows + 1) + row] = sum[i / 8][i % 8 / 2][i % 2];
  }
  __syncthreads();
  if (pair < pairs) StorePair(p, place, pair, out, lane, 32);
}

// Pairs is the number of panel pairs of a product.
size_t Pairs(const QuantizedProduct& p) {
  const size_t panels = DivideUp(p.weights.n, kPanelRows);
  return p.kind == kQuantizedGateUp && p.moe.packing == Packing::kHalves ? panels / 2 : DivideUp(panels, 2);
}

// Groups is the most tiles of tokens.
size_t Groups(const QuantizedProduct& p, size_t tokens) {
  if (p.kind == kQuantizedLinear) return DivideUp(p.rows, tokens);
  return MostTiles(p.moe.tokens * p.moe.top_k, p.moe.experts, tokens);
}

// Allow lets a kernel's launches use all available shared memory. Another thread could lower a limit set for one launch
// before that launch starts.
template <class Kernel>
cudaError_t Allow(Kernel kernel) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, TheDevice().shared_bytes);
}

template <int kTiles, bool kPlain>
cudaError_t Few(const QuantizedProduct& p, Form f, cudaStream_t stream) {
  // With many blocks, fewer warps each let more blocks run at once.
  const size_t pairs = Pairs(p), groups = Groups(p, 8 * kTiles);
  int warps = kTiles == 1 ? kFewWarps : kSomeWarps;
  if (kTiles == 1 && pairs * groups > static_cast<size_t>(TheDevice().multiprocessors)) warps /= 2;
  while (warps > 2 && warps / 2 >= f.call.form.units) warps /= 2;
  const auto shared_bytes = [&] {
    f.call.slot = LaySlots(f.call.form, 32 * warps, kTiles * XBytes(p.type));
    return RowsBytes<kTiles>(f.call.slot, warps);
  };
  while (warps > 1 && shared_bytes() > static_cast<size_t>(TheDevice().shared_bytes)) warps /= 2;
  const size_t shared = shared_bytes();
  const auto kernel = MultiplyFew<kTiles, kPlain>;
  if (cudaError_t e = Allow(kernel)) return e;
  return Launch(kernel, dim3(static_cast<unsigned>(pairs), static_cast<unsigned>(groups)), 32 * warps, shared, stream,
                p, f);
}

}  // namespace

cudaError_t QuantizedRows(const QuantizedProduct& p, int tokens, cudaStream_t stream) {
  const Form f = FormOf(p);
  if (!f.call.Plain()) return Few<kFewTiles, false>(p, f, stream);
  return tokens == kSomeTokens ? Few<kSomeTiles, true>(p, f, stream) : Few<kFewTiles, true>(p, f, stream);
}

Prepared DividePrepared(const QuantizedProduct& p, bool aligned, Room<256>* room) {
  Prepared x = {};
  x.stride = static_cast<int>(DivideUp(p.rows, kTileTokens) * kTileTokens);
  const bool is_operand = p.type == kMojoBFloat16 && p.rounding == Activations::kFloat && aligned;
  const int parts = is_operand ? 0 : Parts(p.type, p.rounding);
  for (int i = 0; i < parts; ++i) x.parts[i] = room->Take<uint16_t>(p.rows * p.weights.k);
  const size_t blocks = p.weights.k / kBlockColumns;
  if (p.rounding != Activations::kFloat) x.steps = room->Take<float>(blocks * x.stride);
  if (ToForm(p.weights).summed) {
    x.sums = room->Take<float>(p.weights.k / p.weights.block * x.stride);
  }
  return x;
}

cudaError_t QuantizedTiles(const QuantizedProduct& p, const Prepared& given, cudaStream_t stream) {
  Form f = FormOf(p);
  Prepared x = given;
  const bool prepared = x.parts[0] != nullptr;
  if (prepared || x.sums != nullptr) {
    const size_t threads = p.rows * (p.weights.k / 4);
    const cudaError_t e = Launch(PrepareRows, static_cast<unsigned>(DivideUp(threads, 256)), 256, 0, stream, p, x,
                                 prepared ? f.call.parts : 0, f.call.form.fine);
    if (e != cudaSuccess) return e;
  }
  if (!prepared) x.parts[0] = p.x;
  const size_t pairs = Pairs(p), groups = Groups(p, kTileTokens);
  f.call.slot = LaySlots(f.call.form, 32 * kTileWarps, 0);
  const int bytes = f.call.parts * kTileTokens * 128 + kTileUnits * f.call.slot.bytes;
  const size_t stages = static_cast<size_t>(kTileStages) * bytes + kTileTokens * sizeof(int);
  const size_t results = sizeof(float) * kTileWarps * kTileTokens * (kPairRows + 1);
  const size_t shared = stages > results ? stages : results;
  const auto kernel = !prepared && f.call.Plain() ? MultiplyMany<true> : MultiplyMany<false>;
  if (cudaError_t e = Allow(kernel)) return e;
  const dim3 grid(static_cast<unsigned>(groups), static_cast<unsigned>(DivideUp(pairs, kTileWarps)));
  return Launch(kernel, grid, 32 * kTileWarps, shared, stream, p, f, x, bytes, static_cast<unsigned>(pairs));
}

// Kernels and tiles are chosen only from shapes and types, as measured on an H100 (docs/benchmarks/gpu.md).
namespace {

constexpr size_t kFewRows = 8, kSomeRows = 64;  // of Linear
constexpr size_t kFewChoices = 8;               // of an expert, on average

// HopperTile is the tile of QuantizedHopper for matrices with this average number of activation rows. Wide tiles avoid
// reading weights twice, if there are still enough places to fill the device.
int HopperTile(const QuantizedProduct& p, size_t average) {
  if (p.weights.code != Code::kE4m3) return average <= 8 ? 16 : average <= 16 ? 32 : 128;
  const size_t places = DivideUp(p.rows, 128) * DivideUp(p.weights.n, 256);
  const bool wide =
      p.kind == kQuantizedLinear ? places >= static_cast<size_t>(TheDevice().multiprocessors) : average >= 64;
  return wide ? 128 : 64;
}

}  // namespace

QuantizedConfig ConfigOfExperts(const QuantizedProduct& first, const QuantizedProduct& second) {
  const MojoMoEArgs& m = first.moe;
  const size_t average = m.tokens * m.top_k / m.experts;
  const bool same = first.weights.code == second.weights.code;
  const MojoMoEConfig& asked = m.config;
  const auto may = [&](MojoMoEKernel kernel) { return asked.kernel == kMojoAnyKernel || asked.kernel == kernel; };
  if (may(kMojoFew) && same && DirectTakes(first) && DirectTakes(second)) return {kQuantizedDirect, kFewTokens, 0};
  if (may(kMojoWgmma) && same && HopperTakes(first) && HopperTakes(second)) {
    return {kQuantizedHopper, asked.tile > 0 ? asked.tile : HopperTile(first, average), asked.split};
  }
  const bool few = asked.tile > 0 ? asked.tile == kFewTokens : average <= kFewChoices && Aligned(m.x, 16);
  return {few ? kQuantizedRows : kQuantizedTiles, few ? kFewTokens : kTileTokens, 0};
}

QuantizedConfig ConfigOfLinear(const QuantizedProduct& p) {
  if (DirectTakes(p)) return {kQuantizedDirect, kFewTokens, 0};
  if (HopperTakes(p)) return {kQuantizedHopper, HopperTile(p, p.rows), 0};
  const bool few = p.rows <= kSomeRows && Aligned(p.x, 16);
  return {few ? kQuantizedRows : kQuantizedTiles, !few ? kTileTokens : p.rows > kFewRows ? kSomeTokens : kFewTokens, 0};
}

}  // namespace mojo
