// Shared parts of the MoE kernels.
//
// A choice is one expert of one token: number token * top_k + slot. moe_plan.cu sorts the choices: those with the same
// expert are adjacent, in places 0, 1, ... A pair is a gate and its up; with mojo::Packing::kNone there is only the
// gate.
#pragma once

#include "common/room.h"
#include "cuda/common.cuh"
#if defined(__CUDACC__)
#include "cuda/activation.cuh"
#endif

namespace mojo {

// MoETile is the part of one expert's choices that a block multiplies at once. An expert's tiles are adjacent in the
// list: this one is number (its index - first_tile).
struct alignas(16) MoETile {
  int expert;
  int first_tile;  // of the expert
  int start;       // the expert's first place
  int count;       // the expert's choices
};

// MoEPlan is the choices sorted by expert, in device memory.
struct MoEPlan {
  int* choice;     // [choices]: the choice in a place
  float* weight;   // [choices]: its token's weight of it
  MoETile* tiles;  // [MostTiles]
  int* tile_count;
  int* begun;  // [2]: places of the first and the second product that blocks took, beyond their first ones
};

// MostTiles bounds the number of tiles of this width that choices are cut into.
inline size_t MostTiles(size_t choices, size_t experts, size_t tile) {
  return choices / tile + (choices < experts ? choices : experts);
}

// The most experts that PlanMoE takes: a counter for each is in shared memory.
constexpr size_t kMostPlannedExperts = 4096;

// MoEWork is the layout of the scratch memory for the tiled kernels.
struct MoEWork {
  MoEPlan plan;
  void* activated;  // [choices, inner] of x_type, by place
  void* outputs;    // [choices, hidden] by choice, times the token's weight: of x_type, or float
  int wide;         // outputs are float
};

// The launches of the MoE implementations; MojoCudaMoE chooses.
cudaError_t PlanMoE(const MojoMoEArgs& a, size_t tile, const MoEPlan& plan, cudaStream_t stream);
bool SmallMoETakes(const MojoMoEArgs& a);
size_t SmallMoEScratch(const MojoMoEArgs& a);
cudaError_t SmallMoE(const MojoMoEArgs& a, cudaStream_t stream);
// TiledMoETakes reports whether the tiled kernels take a call, with the tile size and kernel of its config.
bool TiledMoETakes(const MojoMoEArgs& a);
size_t TiledMoEScratch(const MojoMoEArgs& a);
cudaError_t TiledMoE(const MojoMoEArgs& a, cudaStream_t stream);
size_t GenericMoEScratch(const MojoMoEArgs& a);
cudaError_t GenericMoE(const MojoMoEArgs& a, cudaStream_t stream);

// Packed is the width of the first product.
__host__ __device__ __forceinline__ size_t Packed(const MojoMoEArgs& a) {
  return a.packing == Packing::kNone ? a.inner : 2 * a.inner;
}

// WideLoads reports whether the matrices are of 16 bit numbers, as x is, in 16 byte pieces.
inline bool WideLoads(const MojoMoEArgs& a) {
  return a.x_type == a.expert_type && a.x_type != kMojoFloat32 && a.hidden % 8 == 0 && a.inner % 8 == 0 &&
         a.hidden > 0 && a.inner > 0 && AllAligned(16, a.x, a.gate_up, a.down, a.y);
}

#if defined(__CUDACC__)

// ChosenExpert is the expert of a choice, or -1 if it has none or the id is invalid.
__device__ __forceinline__ int ChosenExpert(const MojoMoEArgs& a, size_t choice) {
  const int64_t id = a.ids[choice];
  return static_cast<uint64_t>(id) < a.experts ? static_cast<int>(id) : -1;
}

// Activated is the activation of a gate and its up, with bias. A NaN stays NaN.
__device__ __forceinline__ float Activated(const MojoMoEArgs& a, float gate, float up) {
  if (a.gate.limit > 0) {
    gate = gate > a.gate.limit ? a.gate.limit : gate;
    up = up > a.gate.limit ? a.gate.limit : up < -a.gate.limit ? -a.gate.limit : up;
  }
  float v;
  switch (a.gate.activation) {
    case Activation::kSilu: v = gate / (1.0f + __expf(-a.gate.alpha * gate)); break;
    case Activation::kGelu: v = 0.5f * gate * (1.0f + erff(gate * 0.70710678f)); break;
    case Activation::kGeluTanh:
      v = 0.5f * gate * (1.0f + tanhf(0.79788456f * (gate + 0.044715f * gate * gate * gate)));
      break;
    default:
      v = gate < 0 ? 0 : gate;
      if (a.gate.activation == Activation::kRelu2) v *= v;
  }
  return a.packing == Packing::kNone ? v : v * (up + a.gate.up_offset);
}

// ActivateInTurn activates gates and their ups. One long piece of code does it for the pairs in turn: inlined for each
// of them, the activations would be most of a kernel.
template <int kPairs>
__device__ __forceinline__ void ActivateInTurn(const MojoMoEArgs& a, float (&gate)[kPairs], float (&up)[kPairs]) {
#pragma unroll 1
  for (int i = 0; i < kPairs; ++i) {
    const float v = Activated(a, gate[0], up[0]);
#pragma unroll
    for (int j = 1; j < kPairs; ++j) gate[j - 1] = gate[j], up[j - 1] = up[j];
    gate[kPairs - 1] = v;
  }
}

// ActivatePairs is ActivateInTurn, and fast for the usual activation.
template <int kPairs>
__device__ __forceinline__ void ActivatePairs(const MojoMoEArgs& a, float (&gate)[kPairs], float (&up)[kPairs]) {
  if (a.gate.activation == Activation::kSilu && a.packing != Packing::kNone) {
    const float limit = a.gate.limit > 0 ? a.gate.limit : __int_as_float(0x7f800000);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const float g = gate[i] > limit ? limit : gate[i], below = up[i] > limit ? limit : up[i];
      const float u = below < -limit ? -limit : below;
      gate[i] = Over<false>(g, 1.0f + ExpOf<false>(-a.gate.alpha * g)) * (u + a.gate.up_offset);
    }
    return;
  }
  ActivateInTurn(a, gate, up);
}

// GateRow and UpRow are the rows of pair i in the first product, as a matrix of [packed, hidden].
__device__ __forceinline__ size_t GateRow(const MojoMoEArgs& a, size_t i) {
  return a.packing == Packing::kInterleaved ? 2 * i : i;
}
__device__ __forceinline__ size_t UpRow(const MojoMoEArgs& a, size_t i) {
  return a.packing == Packing::kInterleaved ? 2 * i + 1 : a.inner + i;
}

// Bounded keeps a finite number finite in T, whose range may be small.
template <class T>
__device__ __forceinline__ float Bounded(float v) {
  return v;
}
template <>
__device__ __forceinline__ float Bounded<Half>(float v) {
  return isinf(v) ? v : fminf(fmaxf(v, -65504.0f), 65504.0f) + (v - v);
}

// LoadWeights loads 16 bytes that no other block reads.
__device__ __forceinline__ uint4 LoadWeights(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

#endif  // __CUDACC__

}  // namespace mojo
