// Prompts over pools of codes on compute capability 9.0: the warps that copy widen the codes to the type of the
// queries, times their scales, and write the stages as tensor map copies would. A code has fewer bits than the 16-bit
// types, so nothing is rounded if its scale is a power of two and the number is in the type's range.
//
// The floor is that of attention_tile.cuh. A code takes about five instructions of a copying warp, which is more than
// the products of its tile take: the kernel needs 1.9 times the time of WarpGroupPrompts without codes (H200).
#pragma once

#include "attention/cuda/paged_codes.cuh"
#include "attention/cuda/paged_warpgroup.cuh"

namespace mojo {
namespace paged {

constexpr int kWidenedRows = 8;  // of a box of codes

// kBoxes is a warp's boxes of a tile of keys. Each of the four warps has a ring of that many.
template <class F>
constexpr int kBoxes = F::kKeys / (2 * kWidenedRows);
template <class F>
constexpr int kRingBytes = kBoxes<F> * kWidenedRows * F::kWidth;
template <class F>
constexpr int kRingsAt = F::kBytes + 2 * F::kRowStages * kSlotBytes;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Widening multiplies pairs of codes by a scale.
template <class T, class C>
struct Widening;

template <class C>
struct Widening<BFloat, C> {
  Two<BFloat> high, low;  // the scale in two parts

  __device__ __forceinline__ explicit Widening(float scale) {
    high = Twice(FromFloat<BFloat>(scale));
    low = Twice(FromFloat<BFloat>(scale - ToFloat(high.x)));
  }
  __device__ __forceinline__ uint32_t operator()(uint32_t pair) const {
    const Two<BFloat> codes = ToTwo<BFloat>(pair);
    return ToWord(__hfma2(codes, high, __hmul2(codes, low)));
  }
};

// The greatest of float16 may be a little less than the code of its neighbors.
template <class C>
struct Widening<Half, C> {
  float scale;

  __device__ __forceinline__ explicit Widening(float scale) : scale(scale * Pairs<Half, C>::kFactor) {}
  __device__ __forceinline__ uint32_t operator()(uint32_t pair) const {
    const float2 codes = ToFloats(ToTwo<Half>(pair));
    return Packed<Half>(Clamped(codes.x * scale), Clamped(codes.y * scale));
  }
  static __device__ __forceinline__ float Clamped(float v) { return fminf(fmaxf(v, -65504.0f), 65504.0f); }
};

// WidenBoxes fills a stage from a pool of codes. Boxes have kWidenedRows rows. Their codes are copied a tile of keys
// ahead, to a ring of the warp's boxes.
template <class T, class C, class F>
struct WidenBoxes {
  const Params& p;
  char* memory;
  uint32_t ring;  // of the warp
  float ahead;    // the scale of the lane's box of the next tile

  __device__ __forceinline__ WidenBoxes(const Params& p, char* memory)
      : p(p),
        memory(memory),
        ring(SharedAddress(memory) + kRingsAt<F> + threadIdx.x % warpgroup::kGroup / 32 * kRingBytes<F>) {}

  __device__ __forceinline__ void Begin(bool of_keys, int half, int key_head, int row) {
    static_assert(F::kWidth == F::kOut, "a ring for either");
    ahead = Scale(of_keys, key_head, row);
#pragma unroll 1
    for (int box = 0; box < kBoxes<F>; ++box) {
      Copy(of_keys, key_head, box, __shfl_sync(~0u, row, 2 * box + half));
    }
  }
  template <int, class Wait>
  __device__ __forceinline__ void Fill(const Boxes& b, int next, const Wait& wait) {
    const float scale = ahead;
    ahead = Scale(b.of_keys, b.key_head, next);
    wait();
#pragma unroll 1
    for (int box = 0; box < kBoxes<F>; ++box) {
      const int number = 2 * box + b.half;
      const int row = __shfl_sync(~0u, b.row, number), then = __shfl_sync(~0u, next, number);
      const Widening<T, C> widen(__shfl_sync(~0u, scale, number));
      WaitForGroups<kBoxes<F> - 1>();
      if (row >= 0) Widen(b.to + number * kWidenedRows * 128, box, widen);
      Copy(b.of_keys, b.key_head, box, then);
    }
    SeeCopies();
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(b.full);
  }

 private:
  // A lane has every 32nd of the pieces of 8 codes of a box, which it copies and widens itself.
  struct Pieces {
    static constexpr int kRow = F::kWidth / 8, kSteps = kRow * kWidenedRows / 32, kStepRows = 32 / kRow;
    int row, column;
    uint32_t at;  // in the ring

    __device__ __forceinline__ Pieces(uint32_t ring, int box)
        : row(threadIdx.x % 32 / kRow),
          column(threadIdx.x % kRow),
          at(ring + box * kSteps * 256 + threadIdx.x % 32 * 8) {}
  };

  __device__ __forceinline__ float Scale(bool of_keys, int key_head, int row) const {
    const float* const scales = of_keys ? p.key_scale_out : p.value_scale_out;
    return row < 0 ? 0 : __ldg(scales + ColumnOf(p, row) * p.key_heads + key_head);
  }
  // Copy starts the copy of a box to its place in the ring.
  __device__ __forceinline__ void Copy(bool of_keys, int key_head, int box, int row) const {
    const Pieces pieces(ring, box);
    const int step = static_cast<int>(p.key_heads) * F::kWidth;
    const char* const from = static_cast<const char*>(of_keys ? p.key_cache_out : p.value_cache_out) +
                             static_cast<int64_t>(row + pieces.row) * step + key_head * F::kWidth + pieces.column * 8;
#pragma unroll
    for (int s = 0; s < pieces.kSteps && row >= 0; ++s) {
      CopyFew<8>(pieces.at + s * 256, from + s * pieces.kStepRows * step);
    }
    EndGroup();
  }
  // Widen writes a box to its place in the stage. The steps go side by side, since a warp has little else to do.
  __device__ __forceinline__ void Widen(int to, int box, const Widening<T, C>& widen) const {
    typedef Pairs<T, C> P;
    const Pieces pieces(ring, box);
    constexpr int kSteps = Pieces::kSteps;
    uint32_t codes[kSteps][2], wide[kSteps][4];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(codes[s][0]), "=r"(codes[s][1])
                   : "r"(pieces.at + s * 256));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint32_t four = codes[s][i / 2];
        wide[s][i] = i % 2 == 0 ? P::template Get<0, 1>(four) : P::template Get<2, 3>(four);
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) wide[s][i] = widen(wide[s][i]);
    }
    char* const column = memory + to + pieces.column / 8 * F::kKeys * 128;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int row = s * pieces.kStepRows + pieces.row;
      *reinterpret_cast<uint4*>(column + row * 128 + (pieces.column % 8 ^ row) * 16) =
          make_uint4(wide[s][0], wide[s][1], wide[s][2], wide[s][3]);
    }
  }
};

#endif

}  // namespace paged
}  // namespace mojo
