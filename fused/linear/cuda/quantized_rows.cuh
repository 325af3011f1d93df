// A product of quantized weights with a few tokens. The floor is one read of the weights; on an H200 it takes three to
// five times as long, bound by instructions: some 250 of a warp for each unit of bfloat16 and MXFP4.
//
// A block has a unit's 32 rows. Its warps take turns along them, each with its own stages in flight from memory; at the
// end their sums are added in the order of the warps. Activations are read from L2, and every warp rounds them or
// splits them into parts itself, without another launch.
//
// A warp has kRowStages - 1 times 512 bytes in flight (1 KB with 8-bit codes), 16 warps 40 KB.
#pragma once

#include "linear/cuda/quantized.cuh"

namespace mojo {

constexpr int kPairRows = 2 * kPanelRows;
constexpr int kRowStages = 6;

// LoadedBlock is a lane's part of one token's block: four columns, and the four 16 further. kPlain is for activations
// that are operands unchanged, and for weights with only block factors.
template <bool kPlain>
struct LoadedBlock {
  static constexpr int kMost = kPlain ? 1 : 3;
  uint32_t parts[kMost][4];
  float step, sums[2];  // the same for the four lanes of a token

  __device__ __forceinline__ void NextHalf() {
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      parts[p][0] = parts[p][2];
      parts[p][1] = parts[p][3];
    }
    sums[0] = sums[1];
  }

  // Make converts copied activations; all lanes of the warp take part.
  __device__ __forceinline__ void Make(const char* loaded, MojoType type, Activations rounding, int count,
                                       bool summed) {
    if (kPlain) {
      const uint4 v = *reinterpret_cast<const uint4*>(loaded);
      parts[0][0] = v.x, parts[0][1] = v.y, parts[0][2] = v.z, parts[0][3] = v.w;
      return;
    }
    float v[8];
    if (type == kMojoFloat32) {
      const float4 a = *reinterpret_cast<const float4*>(loaded), b = *reinterpret_cast<const float4*>(loaded + 16);
      v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    } else if (type == kMojoFloat16) {
      ToFloats(LoadPack<8>(reinterpret_cast<const Half*>(loaded)), v);
    } else {
      ToFloats(LoadPack<8>(reinterpret_cast<const BFloat*>(loaded)), v);
    }
    if (summed) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sums[half] = GroupSum((v[4 * half] + v[4 * half + 1]) + (v[4 * half + 2] + v[4 * half + 3]), 4);
      }
    }
    if (rounding != Activations::kFloat) {
      float greatest = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) greatest = fmaxf(greatest, fabsf(v[i]));
      greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 1));
      greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 2));
      step = RoundBlock(greatest, rounding, v);
    }
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if (p >= count) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        parts[p][i] = TwoParts(v[2 * i], v[2 * i + 1]);
        v[2 * i] = Rest(v[2 * i]);
        v[2 * i + 1] = Rest(v[2 * i + 1]);
      }
    }
  }
};

// RowsCall is the parameters of MultiplyRows.
struct RowsCall {
  QuantizedForm form;
  Slot slot;
  MojoType type;  // of activations
  Activations rounding;
  int parts;

  // Plain reports whether the kPlain kernels can take the call.
  bool Plain() const { return type == kMojoBFloat16 && rounding == Activations::kFloat && !form.summed && !form.fine; }
};

// XBytes is a thread's bytes of one token's block.
inline int XBytes(MojoType type) { return type == kMojoFloat32 ? 32 : 16; }

// MultiplyRows computes the products of 32 rows, 16 of each of two panels, with up to 8 * kTiles tokens. panel belongs
// to the half warp. tokens are the rows of the tokens that this lane loads (lane / 4 of each eight), or null. The whole
// block calls it. Results go to out in shared memory, [token][row] with a stride of kPairRows + 1, before a barrier.
template <int kTiles, bool kPlain>
__device__ __forceinline__ void MultiplyRows(const RowsCall& a, size_t panel, const char* const (&tokens)[kTiles],
                                             char* memory, float* out) {
  constexpr int kSums = kTiles * 8;  // of a lane
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const bool wide = !kPlain && a.type == kMojoFloat32, rounded = !kPlain && a.rounding != Activations::kFloat;
  const bool summed = !kPlain && a.form.summed, fine = !kPlain && a.form.fine;
  const int size = wide ? 4 : 2, x_bytes = wide ? 32 : 16;
  const QuantizedForm& f = a.form;
  const Reader reader(f, panel);
  const auto start = [&](int stage, int unit) {
    if (unit < f.units) {
      char* const to = memory + stage * a.slot.bytes;
      reader.Start(f, a.slot, to, unit);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tokens[tile] == nullptr) continue;
        char* const x = to + a.slot.x + (tile * blockDim.x + threadIdx.x) * x_bytes;
        const char* const from = tokens[tile] + (unit * kBlockColumns + lane % 4 * 4) * size;
        if (wide) {
          Copy(SharedAddress(x), from, true);
          Copy(SharedAddress(x + 16), from + 64, true);
        } else {
          CopyFew<8>(SharedAddress(x), from);
          CopyFew<8>(SharedAddress(x + 8), from + 32);
        }
      }
    }
    EndGroup();
  };
  // Lanes without a token have zeros.
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tokens[tile] != nullptr) continue;
    for (int i = 0; i < kRowStages * x_bytes / 16; ++i) {
      char* const stage = memory + i / (x_bytes / 16) * a.slot.bytes + i % (x_bytes / 16) * 16;
      *reinterpret_cast<uint4*>(stage + a.slot.x + (tile * blockDim.x + threadIdx.x) * x_bytes) =
          make_uint4(0, 0, 0, 0);
    }
  }
  float sum[kTiles][4][2] = {};
#pragma unroll
  for (int i = 0; i < kRowStages - 1; ++i) start(i, warp + i * warps);
  int stage = 0;
#pragma unroll 1
  for (int unit = warp; unit < f.units; unit += warps) {
    WaitForGroups<kRowStages - 2>();
    const char* const from = memory + stage * a.slot.bytes;
    Unit weights;
    weights.LoadCodes(f, from);
    start(stage == 0 ? kRowStages - 1 : stage - 1, unit + (kRowStages - 1) * warps);
    stage = stage == kRowStages - 1 ? 0 : stage + 1;
#pragma unroll 1
    for (int half = 0; half <= static_cast<int>(fine); ++half) {
      weights.LoadFactors(f, a.slot, from, half, summed);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        LoadedBlock<kPlain> x;
        x.Make(from + a.slot.x + (tile * blockDim.x + threadIdx.x) * x_bytes, a.type, a.rounding, a.parts, summed);
        if (half == 1) x.NextHalf();
        float steps[2] = {}, sums[2] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int of = lane % 4 * 8 + i * 4;  // a lane of the token that the products are of
          if (rounded) steps[i] = __shfl_sync(0xffffffffu, x.step, of);
          if (summed) sums[i] = __shfl_sync(0xffffffffu, fine ? x.sums[0] : x.sums[0] + x.sums[1], of);
        }
        weights.Add(x.parts, kPlain ? 1 : a.parts, fine, rounded, summed, steps, sums, sum[tile]);
      }
      if (fine) weights.NextHalf();
    }
  }
  WaitForGroups<0>();
  __syncthreads();
  float* const all = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int i = 0; i < kSums; ++i) all[(warp * kSums + i) * 32 + lane] = sum[i / 8][i % 8 / 2][i % 2];
  __syncthreads();
  for (int at = threadIdx.x; at < kPairRows * 8 * kTiles; at += blockDim.x) {
    const int row = at % kPairRows, token = at / kPairRows;
    const int from = row / 4 * 4 + token % 8 / 2, i = token / 8 * 8 + row % 4 * 2 + token % 2;
    float total = 0;
    for (int w = 0; w < warps; ++w) total += all[(w * kSums + i) * 32 + from];
    out[token * (kPairRows + 1) + row] = total;
  }
  __syncthreads();
}

// RowsBytes is the shared memory of a block with this many warps: the stages, or later the sums, and the results.
template <int kTiles>
inline size_t RowsBytes(const Slot& slot, int warps) {
  const size_t stages = static_cast<size_t>(kRowStages) * slot.bytes, sums = size_t{1024} * kTiles * warps;
  return (stages > sums ? stages : sums) + sizeof(float) * 8 * kTiles * (kPairRows + 1);
}
// RowsResults is the address of the results.
template <int kTiles>
__device__ __forceinline__ float* RowsResults(const Slot& slot, char* memory) {
  const int stages = kRowStages * slot.bytes, sums = 1024 * kTiles * static_cast<int>(blockDim.x / 32);
  return reinterpret_cast<float*>(memory + (stages > sums ? stages : sums));
}

}  // namespace mojo
