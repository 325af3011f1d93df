// QPagedAttention on CUDA: writes codes and scales, then attends as PagedAttention does.
//
// Bytes moved: the codes of all keys and values once for each group of heads, which is half of PagedAttention's bytes
// in decoding. A block is rounded again when a new row raises its scale, at most once for each power of two.
#include <algorithm>

#include "attention/cuda/paged_mma.cuh"

namespace mojo {
namespace paged {
namespace {

constexpr int kThreads = 256;
constexpr float kLeast = 0x1p-126f;

// FindSlots writes the row of the pool that each token is written to, or -1.
//
// Registers: 24. No shared memory.
__global__ __launch_bounds__(kThreads) void FindSlots(const __grid_constant__ Params p, int* slots) {
  WaitForPrevious();
  LetNextStart();
  const int token = blockIdx.x;
  const size_t row = SlotOf<kThreads>(p, token);
  if (threadIdx.x == 0) slots[token] = row < p.blocks * p.block ? static_cast<int>(row) : -1;
}

__device__ __forceinline__ Int8Code Encoded(Int8Code, float v) {
  return {static_cast<int8_t>(__float2int_rn(fminf(fmaxf(v, -128.0f), 127.0f)))};
}
// Three bits of the mantissa stay, and the bias of the exponent changes from 127 to 7. Numbers below 2^-6 are multiples
// of 2^-9, the spacing of float32 from 2^14 on.
__device__ __forceinline__ E4M3Code Encoded(E4M3Code, float v) {
  const float magnitude = fminf(fabsf(v), 448.0f);
  const unsigned bits = __float_as_uint(magnitude);
  const unsigned normal = ((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - 960u;
  const unsigned tiny = __float_as_uint(magnitude + 0x1p14f) - 0x46800000u;
  const unsigned code = v != v ? 0x7fu : magnitude < 0x1p-6f ? tiny : normal;
  return {static_cast<uint8_t>(code | (__float_as_uint(v) >> 24 & 0x80u))};
}

// Exact is the number of a code that ToFloat returned: it reads the codes of NaN as 480.
__device__ __forceinline__ float Exact(Int8Code, float v) { return v; }
__device__ __forceinline__ float Exact(E4M3Code, float v) { return fabsf(v) == 480 ? __uint_as_float(0x7fc00000u) : v; }

// LeastScale is the least power of two from 2^-126 on times which most is at least a magnitude, or NaN.
__device__ __forceinline__ float LeastScale(float magnitude, float most, int bits) {
  if (!(magnitude <= 3.40282347e38f)) return __uint_as_float(0x7fc00000u);
  // magnitude < 2^(exponent + 1); numbers below 2^-126 have the least scale anyway.
  const int exponent = static_cast<int>(__float_as_uint(magnitude) >> 23) - 127;
  const int power = max(exponent + 1 - bits, -126);
  const float scale = __uint_as_float(static_cast<unsigned>(power + 127) << 23);
  return magnitude > most * scale ? scale * 2 : scale;
}

constexpr int kSpan = 16;   // tokens of a block of WriteCodes that does not run beside another kernel
constexpr int kAtOnce = 4;  // rows that a warp reads before it uses them

// ReadVector, ReadCodes and WriteVector take four neighbors of a row, or one where four are not aligned.
template <class T>
__device__ __forceinline__ void ReadVector(const T* from, bool four, float (&v)[4]) {
  v[0] = v[1] = v[2] = v[3] = 0;
  if (four) {
    ToFloats(LoadPack<4>(from), v);
  } else {
    v[0] = ToFloat(*from);
  }
}
template <class C>
__device__ __forceinline__ void ReadCodes(const C* from, bool four, C (&c)[4]) {
  if (four) {
    memcpy(c, from, 4);
  } else {
    c[0] = *from;
  }
}
template <class C>
__device__ __forceinline__ void WriteVector(C* to, bool four, const C (&c)[4]) {
  if (four) {
    uint32_t word;
    memcpy(&word, c, 4);
    *reinterpret_cast<uint32_t*>(to) = word;
  } else {
    *to = c[0];
  }
}

// For 10.0 the compiler needs more registers than four blocks of a multiprocessor have.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int kWriters = 3;
#else
constexpr int kWriters = 4;
#endif

// WriteCodes has blocks [spans of tokens, key heads, keys and values]. The first of the tokens that are written to a
// block of the pool works for all of them. It finds the slots of few tokens itself.
//
// Registers: 64, with 10.0 80. Shared memory: 1.7 KB.
template <class T, class C>
__global__ __launch_bounds__(kThreads, kWriters) void WriteCodes(const __grid_constant__ Params p, const int* found,
                                                                 int span) {
  constexpr int kWarps = kThreads / 32;
  __shared__ unsigned across[kWarps];
  __shared__ NewRows added;
  WaitForPrevious();
  LetNextStart();
  if (p.concurrent) {
    added.Clear<kThreads>();
    const Sequence own(p, min(static_cast<int>(threadIdx.x), static_cast<int>(p.sequences) - 1));
    added.Find<kThreads, true>(p, NewRow(p, own));
  }
  const int* const slots = p.concurrent ? added.slot : found;
  const int head = blockIdx.y, tokens = static_cast<int>(p.tokens), lane = threadIdx.x % 32, warp = threadIdx.x / 32,
            block = static_cast<int>(p.block);
  const bool of_keys = blockIdx.z == 0;
  const int width = static_cast<int>(of_keys ? p.width : p.value_width);
  const size_t step = p.key_heads * width;
  const T* const from = static_cast<const T*>(of_keys ? p.k : p.v) + head * width;
  C* const pool = static_cast<C*>(of_keys ? p.key_cache_out : p.value_cache_out) + head * width;
  const bool four = width % 4 == 0 && reinterpret_cast<size_t>(from) % (4 * sizeof(T)) == 0 &&
                    reinterpret_cast<size_t>(pool) % 4 == 0;
  const int each = four ? 4 : 1;
  for (int token = blockIdx.x * span; token < min((static_cast<int>(blockIdx.x) + 1) * span, tokens); ++token) {
    const int own = slots[token];
    if (own < 0) continue;
    const int at = ColumnOf(p, own);
    const auto is_same = [&](int t) { return t >= 0 && t < tokens && slots[t] >= 0 && ColumnOf(p, slots[t]) == at; };
    if (is_same(token - 1)) continue;
    bool earlier = false;
    for (int t = threadIdx.x; t < token; t += kThreads) earlier = earlier || is_same(t);
    if (__syncthreads_or(earlier)) continue;
    C* const to = pool + at * p.block * step;
    float* const scale = (of_keys ? p.key_scale_out : p.value_scale_out) + at * p.key_heads + head;
    // VisitNew calls visit(t, d, v) with the numbers of the new rows of the block. Warps take tokens in turn.
    const auto visit_new = [&](auto visit) {
      for (int base = token; base < tokens; base += kThreads) {
        unsigned rows = __ballot_sync(0xffffffffu, is_same(base + warp + lane * kWarps));
        while (rows != 0) {
          int t[kAtOnce];
#pragma unroll
          for (int& one : t) {
            one = rows == 0 ? -1 : base + warp + (__ffs(rows) - 1) * kWarps;
            rows &= rows - 1;
          }
          for (int d = lane * each; d < width; d += 32 * each) {
            float v[kAtOnce][4];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) ReadVector(from + max(t[i], 0) * step + d, four, v[i]);
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
              if (t[i] >= 0) visit(t[i], d, v[i]);
            }
          }
        }
      }
    };
    bool starts = false;
    unsigned greatest = 0;  // the bits of NaN exceed all others
    visit_new([&](int t, int, const float (&v)[4]) {
      starts = starts || slots[t] == at * block;
#pragma unroll
      for (float one : v) greatest = max(greatest, __float_as_uint(one) & 0x7fffffffu);
    });
#pragma unroll
    for (int i = 16; i > 0; i /= 2) greatest = max(greatest, __shfl_xor_sync(0xffffffffu, greatest, i));
    if (lane == 0) across[warp] = greatest;
    const bool over = __syncthreads_or(starts);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) greatest = max(greatest, across[w]);
    constexpr bool kInt8 = std::is_same<C, Int8Code>::value;
    const float least = LeastScale(__uint_as_float(greatest), kInt8 ? 127 : 448, kInt8 ? 7 : 9);
    const float old = over ? kLeast : *scale, now = least != least || least > old ? least : old;
    __syncthreads();  // all have read the scale and the maxima
    if (over || now > old) {
      const float factor = old / now;
      for (int row = warp; row < block; row += kWarps) {
        for (int d = lane * each; d < width; d += 32 * each) {
          C codes[4] = {};
          if (!over) ReadCodes(to + row * step + d, four, codes);
#pragma unroll
          for (C& code : codes) code = over ? C{} : Encoded(C{}, Exact(C{}, ToFloat(code)) * factor);
          WriteVector(to + row * step + d, four, codes);
        }
      }
      __syncthreads();
    }
    visit_new([&](int t, int d, const float (&v)[4]) {
      C codes[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) codes[i] = Encoded(C{}, __fdiv_rn(v[i], now));
      WriteVector(to + (slots[t] - at * block) * step + d, four, codes);
    });
    if (threadIdx.x == 0) *scale = now;
  }
}

template <class T>
cudaError_t Run(const Params& p, int* slots, cudaStream_t stream) {
  const auto kernel = p.float8 ? WriteCodes<T, E4M3Code> : WriteCodes<T, Int8Code>;
  // Most blocks would have nothing to do if each had one token of a prompt.
  const int span = p.concurrent ? 1 : kSpan;
  const dim3 grid(static_cast<unsigned>(DivideUp(p.tokens, span)), static_cast<unsigned>(p.key_heads), 2);
  return Launch(kernel, grid, kThreads, 0, stream, p, static_cast<const int*>(slots), span);
}

cudaError_t Write(const Params& p, int* slots, cudaStream_t stream) {
  const size_t each = p.blocks * p.block * p.key_heads, scales = p.blocks * p.key_heads * sizeof(float);
  if (cudaError_t e = CopyPools({{p.key_cache_out, p.key_cache, each * p.width},
                                 {p.value_cache_out, p.value_cache, each * p.value_width},
                                 {p.key_scale_out, p.key_scale, scales},
                                 {p.value_scale_out, p.value_scale, scales}},
                                stream)) {
    return e;
  }
  if (p.tokens == 0 || p.key_heads == 0 || p.sequences == 0 || p.blocks * p.block == 0) return cudaSuccess;
  if (p.concurrent) return OfType(p.type, [&](auto t) { return Run<decltype(t)>(p, slots, stream); });
  if (cudaError_t e = Launch(FindSlots, dim3(static_cast<unsigned>(p.tokens)), kThreads, 0, stream, p, slots)) return e;
  return OfType(p.type, [&](auto t) { return Run<decltype(t)>(p, slots, stream); });
}

Params Divide(const MojoQPagedAttentionArgs& a, Room<256>* room, int** slots) {
  *slots = room->Take<int>(a.tokens);
  return Prepare(a, true, room);
}

}  // namespace

cudaError_t AttendCodesMma(const Params& p, cudaStream_t stream) {
  if (p.type == kMojoFloat16) return p.float8 ? Run<Half, E4M3Code>(p, stream) : Run<Half, Int8Code>(p, stream);
  return p.float8 ? Run<BFloat, E4M3Code>(p, stream) : Run<BFloat, Int8Code>(p, stream);
}

}  // namespace paged
}  // namespace mojo

using namespace mojo;

size_t MojoQPagedAttentionScratch(const MojoQPagedAttentionArgs* args) {
  Room<256> room;
  int* slots;
  paged::Divide(*args, &room, &slots);
  return room.used;
}

cudaError_t MojoCudaQPagedAttention(const MojoQPagedAttentionArgs* args, cudaStream_t stream) {
  const MojoQPagedAttentionArgs& a = *args;
  if (paged::IsTooLarge(a) || a.blocks * a.block > (size_t{1} << 30) || a.key_heads > 65535) {
    return cudaErrorInvalidValue;
  }
  Room<256> room{static_cast<char*>(a.scratch)};
  int* slots;
  const paged::Params p = paged::Divide(a, &room, &slots);
  if (cudaError_t e = paged::Write(p, slots, stream)) return e;
  return paged::Attend(p, paged::AttendCodesMma, paged::AttendCodesAny, stream);
}
