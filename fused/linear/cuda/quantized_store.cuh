// The use of the sums of quantized weights and activations on compute capability 9.0.
//
// A lane has four rows of a panel, 4t to 4t + 3: sum[m][c] is of rows 4t + 2m and the next, and of the tokens 8c + 2 *
// (lane % 4) and the next.
#pragma once

#include "linear/cuda/quantized_load.cuh"

namespace mojo {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// StoreProducts adds the bias, multiplies by the tokens' weights if there are experts, and stores.
template <bool kEightBits, int kTokens, QuantizedKind kKind>
__device__ __forceinline__ void StoreProducts(const HopperCall& a, const Place& place, const int2* choices,
                                              const Sums<kEightBits, kTokens>& sum) {
  constexpr int kRows = 2 * StageLayout<kEightBits, kTokens>::kOperands;  // of a lane
  const QuantizedProduct& p = a.p;
  const LaneRows<kRows / 2> of;
  const int lane = threadIdx.x % 32, panel = PanelOf(a, place.row_block, of.Slot());
  if (panel < 0) return;
  const uint32_t row = static_cast<uint32_t>(panel) * kPanelRows + of.row, n = static_cast<uint32_t>(p.weights.n);
  if (row >= n) return;
  float bias[kRows] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    if (p.bias == nullptr || row + i >= n) continue;
    bias[i] = kKind == kQuantizedLinear
                  ? Number(p.bias, row + i, p.y_type)
                  : static_cast<const float*>(p.bias)[static_cast<size_t>(place.expert) * n + row + i];
  }
  const uint32_t size = p.y_type == kMojoFloat32 ? 4 : 2;
  char* const y = static_cast<char*>(p.y) + static_cast<size_t>(row) * size;
#pragma unroll
  for (int c = 0; c < kTokens / 8; ++c) {
    if (c * 8 >= place.count) break;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = c * 8 + lane % 4 * 2 + i;
      if (token >= place.count) continue;
      float v[kRows];
#pragma unroll
      for (int j = 0; j < kRows; ++j) v[j] = sum[j / 2][c][i + j % 2 * 2] + bias[j];
      uint32_t at = place.first + token;
      if (kKind == kQuantizedOutputs) {
        const int2 choice = choices[token];
        at = choice.x;
#pragma unroll
        for (int j = 0; j < kRows; ++j) v[j] *= __int_as_float(choice.y);
      }
      char* const to = y + static_cast<uint64_t>(at) * (n * size);
      if (a.narrow) {
#pragma unroll 1
        for (int j = 0; j < kRows; ++j) {
          if (row + j < n) PutNumber(to, j, p.y_type, v[0]);
#pragma unroll
          for (int next = 1; next < kRows; ++next) v[next - 1] = v[next];
        }
      } else if (p.y_type == kMojoFloat32) {
        StorePack(reinterpret_cast<float*>(to), PackFloats<float>(v));
      } else if (kKind == kQuantizedLinear && p.y_type == kMojoFloat16) {
        StorePack(reinterpret_cast<Half*>(to), PackFloats<Half>(v));
      } else {
        StorePack(reinterpret_cast<BFloat*>(to), PackFloats<BFloat>(v));
      }
    }
  }
}

// PairUp puts gates and their ups of two tokens side by side, [pair * 2 + token]. There are as many pairs as operands:
// the pairs of the lane's rows or, in halves, half of the pairs of this lane and of the lane 16 further.
template <int kOperands, int kTokens>
__device__ __forceinline__ void PairUp(const HopperCall& a, const float (&sum)[kOperands][kTokens / 8][4], int c,
                                       float (&gate)[2 * kOperands], float (&up)[2 * kOperands]) {
  const bool last = threadIdx.x % 32 >= 16;
#pragma unroll
  for (int i = 0; i < 2 * kOperands; ++i) {
    const int pair = i / 2, token = i % 2;
    if (!a.halves) {
      gate[i] = sum[pair][c][token];
      up[i] = sum[pair][c][token + 2];
    } else {
      const float first = sum[0][c][i], second = kOperands == 2 ? sum[kOperands - 1][c][i] : sum[0][c][i + 2];
      const float other = __shfl_xor_sync(0xffffffffu, last ? first : second, 16);
      gate[i] = last ? other : first;
      up[i] = last ? second : other;
    }
  }
}

// StoreActivated adds the biases, activates, and stores the input of the second product.
template <bool kEightBits, int kTokens>
__device__ __forceinline__ void StoreActivated(const HopperCall& a, const Place& place, char* memory,
                                               Sums<kEightBits, kTokens>& sum) {
  typedef StageLayout<kEightBits, kTokens> L;
  constexpr int kPairs = L::kOperands;  // of a lane
  const QuantizedProduct& p = a.p;
  const MojoMoEArgs& m = p.moe;
  const LaneRows<L::kOperands> of;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int inner = static_cast<int>(m.inner);
  // The first of the lane's pairs.
  const int pair = a.halves ? (place.row_block * (kPlacePanels / 2) + of.pair) * kPanelRows + of.row + kPairs * of.last
                            : ((place.row_block * kPlacePanels + of.Slot()) * kPanelRows + of.row) / 2;
  const bool is = pair < inner;
  float gate_bias[kPairs] = {}, up_bias[kPairs] = {};
  if (p.bias != nullptr && is) {
    const float* const bias = static_cast<const float*>(p.bias) + place.expert * p.weights.n;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      gate_bias[i] = bias[GateRow(m, pair + i)];
      up_bias[i] = bias[UpRow(m, pair + i)];
    }
  }
  float* const greatest = reinterpret_cast<float*>(memory + L::kGreatestAt);  // [warp][token]
  // bfloat16: the pair's place in the lane's first token, and the number of tokens from there on. If there are two
  // pairs, the first is even, and the column after an even one is 8 further.
  BFloat* to = static_cast<BFloat*>(a.to.numbers) + static_cast<size_t>(place.first + lane % 4 * 2) * inner +
               SwappedColumn(pair);
  const int left = is ? place.count - lane % 4 * 2 : 0;
#pragma unroll
  for (int c = 0; c < kTokens / 8; ++c) {
    if (c * 8 >= place.count) break;
    float gate[2 * kPairs], up[2 * kPairs];
    PairUp<kPairs, kTokens>(a, sum, c, gate, up);
#pragma unroll
    for (int i = 0; i < 2 * kPairs; ++i) {
      gate[i] += gate_bias[i / 2];
      up[i] += up_bias[i / 2];
    }
    ActivatePairs(m, gate, up);
    const int token = c * 8 + lane % 4 * 2;
    if constexpr (kEightBits) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float most = is ? fabsf(gate[i]) : 0;
        if (is && kPairs == 2) most = fmaxf(most, fabsf(gate[2 * kPairs - 2 + i]));
#pragma unroll
        for (int step = 4; step < 32; step *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
        if (lane < 4) greatest[warp * kTokens + token + i] = most;
      }
#pragma unroll
      for (int i = 0; i < 2 * kPairs; ++i) sum[0][c][i] = gate[i];
    } else {
#pragma unroll
      for (int i = 0; i < 2 * kPairs; ++i) {
        if (c * 8 + i % 2 < left) to[i % 2 * inner + i / 2 * 8] = FromFloat<BFloat>(gate[i]);
      }
      to += 8 * inner;
    }
  }
  if constexpr (kEightBits) {
    WaitForGroup<L::kMultipliers>(2);
    const size_t blocks = inner / 128;
#pragma unroll
    for (int c = 0; c < kTokens / 8; ++c) {
      if (c * 8 >= place.count) break;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = c * 8 + lane % 4 * 2 + i;
        if (token >= place.count) continue;
        float most = 0;
#pragma unroll
        for (int w = 0; w < L::kMultipliers / 32; ++w) most = fmaxf(most, greatest[w * kTokens + token]);
        const float factor = FactorOfBlock(most);
        const size_t at = place.first + token;
        const uint16_t two = EightBits(sum[0][c][i] * factor, kPairs == 2 ? sum[0][c][i + 2] * factor : 0);
        char* const to_pair = static_cast<char*>(a.to.numbers) + at * inner + pair;
        if (is && kPairs == 2) *reinterpret_cast<uint16_t*>(to_pair) = two;
        if (is && kPairs == 1) *to_pair = static_cast<char>(two);
        if (warp == 0 && lane < 4) a.to.steps[at * blocks + place.row_block] = most / 448.0f;
      }
    }
    WaitForGroup<L::kMultipliers>(2);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace mojo
