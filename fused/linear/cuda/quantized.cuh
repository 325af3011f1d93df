// Quantized weights as operands of mma.sync.
//
// Rows are in panels of 16. A block is 32 columns of a panel in 256 bytes, or 512 with 8-bit codes. A warp multiplies
// one unit at a time: a block of each of two panels, with tokens as columns. A lane has 16 bytes of each 256: four
// columns of four rows in the low halves, and the columns 16 further in the high halves. The instruction's rows g and g
// + 8 are rows 4t and 4t + 1 of panel g / 4 in one multiplication, and 4t + 2 and 4t + 3 in the next (t = g % 4); its
// adjacent columns are the lane's four. So codes become operands in the registers that they are loaded into, and a lane
// needs only the factors of its four rows.
//
// Operands are the codes minus their middle, which bfloat16 holds exactly. Activations that bfloat16 cannot hold are
// split into a sum of up to three parts. So products are exact. The products of a block are summed before they are
// multiplied by its factor, in float32 as the definition has it.
#pragma once

#include <cuda_fp8.h>

#include "cuda/mma.cuh"

namespace mojo {

constexpr int kPanelRows = 16;
constexpr int kBlockColumns = 32;

// TimesPlus rounds once.
__device__ __forceinline__ __nv_bfloat162 TimesPlus(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __hfma2(a, b, c);
}

// Codes<kCode>::Widen makes operands from a lane's codes of one row: out[0] and out[1] of the first four columns,
// out[2] and out[3] of the columns 16 further. With 8-bit codes, high has the latter; else they are the high halves of
// low.
template <Code kCode>
struct Codes;

template <>
struct Codes<Code::kInt4> {
  static constexpr int kBytes = 256;  // of a block
  static constexpr int kMiddle = 8;

  // Centered moves a code into the last bits of a number whose unit they are, and takes that number and 8 off it.
  static __device__ __forceinline__ uint32_t Centered(uint32_t v) {
    return ToWord(Plus(ToTwo<BFloat>((v & 0x000f000f) | 0x43004300), ToTwo<BFloat>(0xc308c308)));  // 128, -136
  }
  static __device__ __forceinline__ void Widen(uint32_t low, uint32_t, uint32_t (&out)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t two = __byte_perm(low, 0, i == 0 ? 0x4140 : 0x4342);
      out[i] = Centered(two);
      out[2 + i] = Centered(two >> 4);
    }
  }
};

template <>
struct Codes<Code::kInt8> {
  static constexpr int kBytes = 512;
  static constexpr int kMiddle = 128;

  static __device__ __forceinline__ uint32_t Centered(uint32_t v) {
    // The halves of the code on their own: 16 * (128 + high) - 2304 + (128 + low), each step exact.
    const auto low = ToTwo<BFloat>((v & 0x000f000f) | 0x43004300),
               high = ToTwo<BFloat>((v >> 4 & 0x000f000f) | 0x43004300);
    return ToWord(Plus(low, TimesPlus(high, ToTwo<BFloat>(0x41804180), ToTwo<BFloat>(0xc510c510))));
  }
  static __device__ __forceinline__ void Widen(uint32_t low, uint32_t high, uint32_t (&out)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      out[i] = Centered(__byte_perm(low, 0, i == 0 ? 0x4140 : 0x4342));
      out[2 + i] = Centered(__byte_perm(high, 0, i == 0 ? 0x4140 : 0x4342));
    }
  }
};

template <>
struct Codes<Code::kE2m1> {
  static constexpr int kBytes = 256;
  static constexpr int kMiddle = 0;

  // The bits of the number go to the sign, the last exponent bit and the first mantissa bit of the wider type; a factor
  // of 2^126 corrects the exponent.
  static __device__ __forceinline__ void Widen(uint32_t low, uint32_t, uint32_t (&out)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t two = __byte_perm(low, 0, i == 0 ? 0x4140 : 0x4342);
      const auto missing = ToTwo<BFloat>(0x7e807e80);
      out[i] = ToWord(Times(ToTwo<BFloat>((two & 0x000f000f) * 0x1040 & 0x81c081c0), missing));
      out[2 + i] = ToWord(Times(ToTwo<BFloat>((two & 0x00f000f0) * 0x104 & 0x81c081c0), missing));
    }
  }
};

// Middle is the code that operands have as 0.
inline int Middle(Code code) {
  return code == Code::kInt4   ? Codes<Code::kInt4>::kMiddle
         : code == Code::kInt8 ? Codes<Code::kInt8>::kMiddle
                               : Codes<Code::kE2m1>::kMiddle;
}

// OfExponent is 2^(e - 127), NaN for 255.
__device__ __forceinline__ float OfExponent(uint32_t e) {
  return __uint_as_float(e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : e << 23);
}

// NumberOfE2M1 is the number of a 4-bit code.
__device__ __forceinline__ float NumberOfE2M1(uint32_t code) {
  const uint32_t size = code & 7;
  const float number =
      size < 2 ? 0.5f * static_cast<float>(size) : __uint_as_float(((size >> 1) + 126) << 23 | (size & 1) << 22);
  return (code & 8) != 0 ? -number : number;
}

// Widened is two numbers of e2m1 times factor: a code's bits, of the lower half of the first and third byte or of the
// upper one, go where bfloat16 has its sign, the last of its exponent and the first of its mantissa. factor has the
// 2^126 that this lacks.
__device__ __forceinline__ uint32_t Widened(uint32_t codes, int half, uint32_t factor) {
  const uint32_t spread = half == 0 ? (codes & 0x000f000f) * 0x1040 : (codes & 0x00f000f0) * 0x0104;
  return ToWord(Times(ToTwo<BFloat>(spread & 0x81c081c0), ToTwo<BFloat>(factor)));
}

// kGreat are the exponent bits above which bfloat16 cannot hold the factor.
constexpr uint32_t kGreat = 0x80808080;

// FactorsOf is 2^(e - 127) times 2^126 of a few rows, each in both halves; exponents is a byte e of each, up to 128.
template <int kRows>
__device__ __forceinline__ void FactorsOf(uint32_t exponents, uint32_t (&factors)[kRows]) {
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    factors[row] = __byte_perm(exponents, 0, 0x4040 + row * 0x0101) * 0x80 + 0x3f003f00;
  }
}

// Widen makes operands of half a unit: its first 16 columns are in the lower halves of bytes. codes are the codes of
// four rows, and further has the same a byte further.
__device__ __forceinline__ void Widen(const uint32_t (&codes)[4], const uint32_t (&further)[4], int half,
                                      const uint32_t (&factors)[4], uint32_t (&out)[2][4]) {
#pragma unroll
  for (int row = 0; row < 4; ++row) {
    out[row / 2][row % 2] = Widened(codes[row], half, factors[row]);
    out[row / 2][2 + row % 2] = Widened(further[row], half, factors[row]);
  }
}

// FactorBytes is the size of one factor.
__host__ __device__ __forceinline__ int FactorBytes(MojoScales kind) {
  return kind == kMojoFloatScales ? 4 : kind == kMojoHalfScales ? 2 : 1;
}

// Factors makes the factors of four rows from loaded data: four numbers, and with two levels four halves of super.
__device__ __forceinline__ void Factors(MojoScales kind, const char* loaded, const char* super, float (&out)[4]) {
  if (kind == kMojoFloatScales) {
    const float4 v = *reinterpret_cast<const float4*>(loaded);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    return;
  }
  if (kind == kMojoHalfScales || kind == kMojoTwofoldScales) {
    const uint2 v = *reinterpret_cast<const uint2*>(kind == kMojoHalfScales ? loaded : super);
    const float2 a = ToFloats(ToTwo<Half>(v.x)), b = ToFloats(ToTwo<Half>(v.y));
    out[0] = a.x, out[1] = a.y, out[2] = b.x, out[3] = b.y;
    if (kind == kMojoHalfScales) return;
  }
  const uint32_t word = *reinterpret_cast<const uint32_t*>(loaded);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t byte = word >> 8 * i & 255;
    out[i] = kind == kMojoExponentScales ? OfExponent(byte) : out[i] * static_cast<float>(static_cast<int8_t>(byte));
  }
}

// Part is v with the 8 significand bits that bfloat16 holds, and Rest is the remainder. A float32 number is the sum of
// three parts of successive rests; a float16 number or a 16-bit integer is the sum of two.
__device__ __forceinline__ float Part(float v) { return __uint_as_float(__float_as_uint(v) & 0xffff0000u); }
__device__ __forceinline__ float Rest(float v) {
  const float part = Part(v);
  return v == part ? 0 : v - part;
}
// TwoParts is the parts of two numbers as an operand has them.
__device__ __forceinline__ uint32_t TwoParts(float a, float b) {
  return __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x7632);
}

// Parts is how many parts activations have.
__host__ __device__ __forceinline__ int Parts(MojoType type, Activations rounding) {
  if (rounding != Activations::kFloat) return rounding == Activations::kInt16 ? 2 : 1;
  return type == kMojoFloat32 ? 3 : type == kMojoFloat16 ? 2 : 1;
}

// Limit is the greatest integer that activations are rounded to.
__device__ __forceinline__ float Limit(Activations rounding) {
  return rounding == Activations::kInt16 ? 32767.0f : 127.0f;
}

// RoundBlock rounds numbers of a block whose greatest magnitude is given to integers, and returns their step.
template <int kCount>
__device__ __forceinline__ float RoundBlock(float greatest, Activations rounding, float (&v)[kCount]) {
  const float limit = Limit(rounding), factor = greatest < 0x1p-100f ? 0 : limit / greatest;
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] = rintf(v[i] * factor);
  return greatest / limit;
}

// FactorOfBlock scales the activations of a block before they are rounded to e4m3, and EightBits rounds two of them.
// The rounded numbers represent greatest / 448 times their value.
__device__ __forceinline__ float FactorOfBlock(float greatest) { return greatest < 0x1p-100f ? 0 : 448.0f / greatest; }
__device__ __forceinline__ uint16_t EightBits(float a, float b) {
  return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
}

// QuantizedForm is the kernels' layout of weights, and the properties of activations that they need.
struct QuantizedForm {
  const char *codes, *scale, *minus, *super_scale, *super_minus;
  Code code;
  MojoScales scales;
  int bytes;    // of a block's codes
  int units;    // blocks of 32 columns
  int fine;     // factors are of 16 columns
  int summed;   // sums of activations take part
  float shift;  // the middle of the codes minus the code of 0

  // FactorsAt and SuperAt are the first byte of four rows' factors, from row on; block counts 32 columns.
  __device__ __forceinline__ size_t FactorsAt(size_t panel, int block, int row) const {
    const size_t blocks = static_cast<size_t>(units) << fine;
    return ((panel * blocks + (static_cast<size_t>(block) << fine)) * kPanelRows + row) * FactorBytes(scales);
  }
  __device__ __forceinline__ size_t SuperAt(size_t panel, int block, int row) const {
    return ((panel * (units / 8) + block / 8) * kPanelRows + row) * 2;
  }
};

// AreAligned reports whether the arrays have the alignment that MojoQuantizedWeights states.
inline bool AreAligned(const MojoQuantizedWeights& w) {
  return AllAligned(16, w.codes, w.scale, w.minus, w.super_scale, w.super_minus);
}

// ToForm is the form of weights.
inline QuantizedForm ToForm(const MojoQuantizedWeights& w) {
  QuantizedForm f = {};
  f.codes = static_cast<const char*>(w.codes);
  f.scale = static_cast<const char*>(w.scale);
  f.minus = static_cast<const char*>(w.minus);
  f.super_scale = static_cast<const char*>(w.super_scale);
  f.super_minus = static_cast<const char*>(w.super_minus);
  f.code = w.code;
  f.scales = w.scales;
  f.bytes = w.code == Code::kInt8 || w.code == Code::kE4m3 ? Codes<Code::kInt8>::kBytes : Codes<Code::kInt4>::kBytes;
  f.units = static_cast<int>(w.k / kBlockColumns);
  f.fine = w.block == 16;
  f.shift = static_cast<float>(Middle(w.code) - w.zero);
  f.summed = w.minus != nullptr || f.shift != 0;
  return f;
}

// Slot is the place, in a stage of a shared memory ring, of a thread's loaded part of a unit. Each thread reads only
// the data that it copied itself, so threads do not wait for each other.
struct Slot {
  int scale, minus, super_scale, super_minus, x, bytes;  // offsets, in a stage; codes come first
};

// LaySlots divides a stage; x_bytes is a thread's bytes of activations.
inline Slot LaySlots(const QuantizedForm& f, int threads, int x_bytes) {
  const int factors = 4 * FactorBytes(f.scales) << f.fine;
  const bool twofold = f.scales == kMojoTwofoldScales;
  Slot s;
  s.scale = f.bytes / 16 * threads;
  s.minus = s.scale + factors * threads;
  s.super_scale = s.minus + (f.minus != nullptr ? factors * threads : 0);
  s.super_minus = s.super_scale + (twofold ? 8 * threads : 0);
  s.x = s.super_minus + (twofold && f.minus != nullptr ? 8 * threads : 0);
  s.x = (s.x + 15) / 16 * 16;
  s.bytes = s.x + x_bytes * threads;
  return s;
}

// CopyFactors copies the factors of four rows, and of both halves of a block if the factors are fine.
__device__ __forceinline__ void CopyFactors(const QuantizedForm& f, char* to, const char* from) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 1 && !f.fine) return;
    const char* const at = from + half * kPanelRows * FactorBytes(f.scales);
    char* const place = to + half * 4 * FactorBytes(f.scales);
    if (f.scales == kMojoFloatScales) {
      Copy(SharedAddress(place), at, true);
    } else if (f.scales == kMojoHalfScales) {
      CopyFew<8>(SharedAddress(place), at);
    } else {
      CopyFew<4>(SharedAddress(place), at);
    }
  }
}

// Reader walks a lane through the units of two panels.
struct Reader {
  const char* codes;    // of block 0
  size_t scale, super;  // the bytes of block 0
  int step;             // of factors, from a block to the next

  __device__ __forceinline__ Reader(const QuantizedForm& f, size_t panel) {
    const int lane = threadIdx.x % 32;
    const int quad = lane / 4 % 4 * 4;  // the first of the lane's four rows
    codes = f.codes + panel * f.units * f.bytes + lane % 4 * 64 + quad * 4;
    scale = f.FactorsAt(panel, 0, quad);
    super = f.SuperAt(panel, 0, quad);
    step = kPanelRows * FactorBytes(f.scales) << f.fine;
  }

  // Start copies a unit's codes and factors into the thread's place of a stage.
  __device__ __forceinline__ void Start(const QuantizedForm& f, const Slot& slot, char* stage, int block) const {
    const int n = threadIdx.x, factors = 4 * FactorBytes(f.scales) << f.fine;
    const char* const from = codes + static_cast<size_t>(block) * f.bytes;
    Copy(SharedAddress(stage + n * 16), from, true);
    if (f.code == Code::kInt8) Copy(SharedAddress(stage + (blockDim.x + n) * 16), from + 256, true);
    CopyFactors(f, stage + slot.scale + n * factors, f.scale + scale + static_cast<size_t>(block) * step);
    if (f.minus != nullptr)
      CopyFactors(f, stage + slot.minus + n * factors, f.minus + scale + static_cast<size_t>(block) * step);
    if (f.scales == kMojoTwofoldScales) {
      const size_t at = super + static_cast<size_t>(block / 8) * (2 * kPanelRows);
      CopyFew<8>(SharedAddress(stage + slot.super_scale + n * 8), f.super_scale + at);
      if (f.minus != nullptr) CopyFew<8>(SharedAddress(stage + slot.super_minus + n * 8), f.super_minus + at);
    }
  }
};

// Unit is a lane's part of a unit, in registers. Where factors are of 16 columns, its halves are taken one after the
// other, for (half = 0; half <= fine; ++half): LoadFactors, Add for all tokens, then NextHalf.
struct Unit {
  uint32_t low[2][4], high[2][4];  // operands of rows 4t and 4t + 1, and of 4t + 2 and 4t + 3
  float factor[4];                 // of four rows
  float offset[4];                 // multiplies sums of activations

  template <Code kCode>
  __device__ __forceinline__ void Widen(const uint4& first, const uint4& last) {
    const uint32_t a[4] = {first.x, first.y, first.z, first.w}, b[4] = {last.x, last.y, last.z, last.w};
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      uint32_t out[4];
      Codes<kCode>::Widen(a[row], b[row], out);
      low[row / 2][row % 2] = out[0];
      low[row / 2][row % 2 + 2] = out[1];
      high[row / 2][row % 2] = out[2];
      high[row / 2][row % 2 + 2] = out[3];
    }
  }

  // LoadCodes takes operands from the thread's place.
  __device__ __forceinline__ void LoadCodes(const QuantizedForm& f, const char* stage) {
    const int n = threadIdx.x;
    const uint4 codes = *reinterpret_cast<const uint4*>(stage + n * 16);
    if (f.code == Code::kE2m1) {
      Widen<Code::kE2m1>(codes, codes);
    } else if (f.code == Code::kInt4) {
      Widen<Code::kInt4>(codes, codes);
    } else {
      Widen<Code::kInt8>(codes, *reinterpret_cast<const uint4*>(stage + (blockDim.x + n) * 16));
    }
  }

  __device__ __forceinline__ void LoadFactors(const QuantizedForm& f, const Slot& slot, const char* stage, int half,
                                              bool summed) {
    const int n = threadIdx.x, size = 4 * FactorBytes(f.scales), at = ((n << f.fine) + half) * size;
    Factors(f.scales, stage + slot.scale + at, stage + slot.super_scale + n * 8, factor);
    if (!summed) return;
    float minus[4] = {};
    if (f.minus != nullptr) Factors(f.scales, stage + slot.minus + at, stage + slot.super_minus + n * 8, minus);
#pragma unroll
    for (int row = 0; row < 4; ++row) offset[row] = minus[row] + factor[row] * f.shift;
  }

  __device__ __forceinline__ void NextHalf() {
#pragma unroll
    for (int i = 0; i < 8; ++i) low[i / 4][i % 4] = high[i / 4][i % 4];
  }

  // Add adds the products with the parts of eight tokens, and with sums of two of them: sum is of rows 4t to 4t + 3 and
  // the lane's two tokens. parts have the same columns as Widen's out. steps are the values of one unit of the tokens'
  // integers.
  template <int kMost>
  __device__ __forceinline__ void Add(const uint32_t (&parts)[kMost][4], int count, bool fine, bool rounded,
                                      bool summed, const float (&steps)[2], const float (&sums)[2],
                                      float (&sum)[4][2]) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      float product[4] = {};
#pragma unroll
      for (int p = kMost - 1; p >= 0; --p) {
        if (p >= count) continue;
        Multiply<BFloat>(product, low[m], parts[p][0], parts[p][1]);
        if (!fine) Multiply<BFloat>(product, high[m], parts[p][2], parts[p][3]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 2 * m + i / 2, token = i % 2;
        if (rounded) product[i] *= steps[token];
        sum[row][token] += factor[row] * product[i];
        if (summed) sum[row][token] += offset[row] * sums[token];
      }
    }
  }
};

}  // namespace mojo
