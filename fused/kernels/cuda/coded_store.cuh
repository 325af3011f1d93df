// What becomes of the sums of quantised weights and activations on compute capability 9.0.
//
// A lane has four rows of a panel, 4t to 4t + 3: sum[m][c] is of rows 4t + 2m and the next, and of the tokens 8c +
// 2 * (lane % 4) and the next.
#ifndef MOJO_KERNELS_CUDA_CODED_STORE_CUH_
#define MOJO_KERNELS_CUDA_CODED_STORE_CUH_

#include "cuda/coded_load.cuh"

namespace mojo {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// StoreProducts adds the bias, multiplies with the tokens' weights where there are experts, and stores.
template <int kTokens>
__device__ __forceinline__ void StoreProducts(const HopperCall& a, const Place& place, const int2* choices,
                                              const float (&sum)[2][kTokens / 8][4]) {
  const CodedProduct& p = a.p;
  const int lane = threadIdx.x % 32, quad = lane / 4 % 4 * 4;
  const int panel = PanelOf(a, place.row_block, threadIdx.x / 32 * 2 + lane / 16);
  if (panel < 0) return;
  const size_t row = static_cast<size_t>(panel) * kPanelRows + quad, n = p.weights.n;
  if (row >= n) return;
  const bool linear = p.kind == kCodedLinear;
  float bias[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (p.bias == nullptr || row + i >= n) continue;
    bias[i] =
        linear ? Number(p.bias, row + i, p.y_type) : static_cast<const float*>(p.bias)[place.expert * n + row + i];
  }
#pragma unroll
  for (int c = 0; c < kTokens / 8; ++c) {
    if (c * 8 >= place.count) break;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = c * 8 + lane % 4 * 2 + i;
      if (token >= place.count) continue;
      float v[4] = {sum[0][c][i] + bias[0], sum[0][c][i + 2] + bias[1], sum[1][c][i] + bias[2],
                    sum[1][c][i + 2] + bias[3]};
      size_t at = place.first + token;
      if (!linear) {
        const float weight = __int_as_float(choices[token].y);
        at = choices[token].x;
#pragma unroll
        for (int j = 0; j < 4; ++j) v[j] *= weight;
      }
      at = at * n + row;
      if (a.narrow) {
#pragma unroll 1
        for (int j = 0; j < 4; ++j) {
          if (row + j < n) PutNumber(p.y, at + j, p.y_type, v[0]);
          v[0] = v[1], v[1] = v[2], v[2] = v[3];
        }
      } else if (p.y_type == kMojoFloat32) {
        StorePack(static_cast<float*>(p.y) + at, PackFloats<float>(v));
      } else {
        const Pack<Half, 4> half = PackFloats<Half>(v);
        Pack<BFloat, 4> pack = PackFloats<BFloat>(v);
        if (p.y_type == kMojoFloat16) pack.words[0] = half.words[0], pack.words[1] = half.words[1];
        StorePack(static_cast<BFloat*>(p.y) + at, pack);
      }
    }
  }
}

// PairUp puts two gates and their ups of two tokens side by side, [pair * 2 + token], and counts the pairs that the
// lane is left with from 0 on in its panel. In halves, a lane and the one 16 further have four gates and their ups.
template <int kTokens>
__device__ __forceinline__ void PairUp(const HopperCall& a, const float (&sum)[2][kTokens / 8][4], int c,
                                       float (&gate)[4], float (&up)[4]) {
  const bool last = threadIdx.x % 32 >= 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int pair = i / 2, token = i % 2;
    if (!a.halves) {
      gate[i] = sum[pair][c][token];
      up[i] = sum[pair][c][token + 2];
    } else {
      const float other = __shfl_xor_sync(0xffffffffu, last ? sum[0][c][i] : sum[1][c][i], 16);
      gate[i] = last ? other : sum[0][c][i];
      up[i] = last ? sum[1][c][i] : other;
    }
  }
}

// StoreActivated adds the biases, activates, and stores what the second product reads.
template <bool kEightBits, int kTokens>
__device__ __forceinline__ void StoreActivated(const HopperCall& a, const Place& place, char* memory,
                                               float (&sum)[2][kTokens / 8][4]) {
  typedef Layout<kEightBits, kTokens> L;
  const CodedProduct& p = a.p;
  const MojoMoEArgs& m = p.moe;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane / 4 % 4 * 4, last = lane / 16;
  const int inner = static_cast<int>(m.inner);
  // The first of two pairs.
  const int pair = a.halves ? (place.row_block * (kPlacePanels / 2) + warp) * kPanelRows + quad + 2 * last
                            : ((place.row_block * kPlacePanels + warp * 2 + last) * kPanelRows + quad) / 2;
  const bool is = pair < inner;
  float gate_bias[2] = {}, up_bias[2] = {};
  if (p.bias != nullptr && is) {
    const float* const bias = static_cast<const float*>(p.bias) + place.expert * p.weights.n;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      gate_bias[i] = bias[GateRow(m, pair + i)];
      up_bias[i] = bias[UpRow(m, pair + i)];
    }
  }
  float* const greatest = reinterpret_cast<float*>(memory + L::kGreatestAt);  // [warp][token]
#pragma unroll
  for (int c = 0; c < kTokens / 8; ++c) {
    if (c * 8 >= place.count) break;
    float gate[4], up[4];
    PairUp<kTokens>(a, sum, c, gate, up);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      gate[i] += gate_bias[i / 2];
      up[i] += up_bias[i / 2];
    }
    Activate4(m, gate, up);
    const int token = c * 8 + lane % 4 * 2;
    if constexpr (kEightBits) {
      float most[2] = {fmaxf(fabsf(gate[0]), fabsf(gate[2])), fmaxf(fabsf(gate[1]), fabsf(gate[3]))};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!is) most[i] = 0;
#pragma unroll
        for (int step = 4; step < 32; step *= 2) most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], step));
        if (lane < 4) greatest[warp * kTokens + token + i] = most[i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[0][c][i] = gate[i];
    } else {
      BFloat* const to = static_cast<BFloat*>(a.to.numbers) + static_cast<size_t>(place.first + token) * inner;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (is && token + i % 2 < place.count)
          to[i % 2 * inner + SwappedColumn(pair + i / 2)] = FromFloat<BFloat>(gate[i]);
      }
    }
  }
  if constexpr (kEightBits) {
    WaitForGroup<2 * kGroup>(2);
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
        for (int w = 0; w < 8; ++w) most = fmaxf(most, greatest[w * kTokens + token]);
        const float factor = FactorOfBlock(most);
        const size_t at = place.first + token;
        if (is) {
          *reinterpret_cast<uint16_t*>(static_cast<char*>(a.to.numbers) + at * inner + pair) =
              EightBits(sum[0][c][i] * factor, sum[0][c][i + 2] * factor);
        }
        if (warp == 0 && lane < 4) a.to.steps[at * blocks + place.row_block] = most / 448.0f;
      }
    }
    WaitForGroup<2 * kGroup>(2);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_CODED_STORE_CUH_
