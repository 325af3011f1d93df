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

// WriteCodes has blocks [tokens, key heads, keys and values]. The first of the tokens that are written to a block of
// the pool works for all of them. It finds the slots of few tokens itself.
//
// Registers: 56. Shared memory: 1.7 KB.
template <class T, class C>
__global__ __launch_bounds__(kThreads, 4) void WriteCodes(const __grid_constant__ Params p, const int* found) {
  __shared__ unsigned across[kThreads / 32];
  __shared__ NewRows added;
  WaitForPrevious();
  LetNextStart();
  if (p.concurrent) {
    added.Clear<kThreads>();
    added.Find<kThreads, true>(p, Sequence(p, min(static_cast<int>(threadIdx.x), static_cast<int>(p.sequences) - 1)));
  }
  const int* const slots = p.concurrent ? added.slot : found;
  const int token = blockIdx.x, head = blockIdx.y, tokens = static_cast<int>(p.tokens), lane = threadIdx.x % 32,
            warp = threadIdx.x / 32, block = static_cast<int>(p.block);
  const int own = slots[token];
  if (own < 0) return;
  const int at = own / block;
  const auto is_same = [&](int t) { return t >= 0 && t < tokens && slots[t] >= 0 && slots[t] / block == at; };
  if (is_same(token - 1)) return;
  bool earlier = false;
  for (int t = threadIdx.x; t < token; t += kThreads) earlier = earlier || is_same(t);
  if (__syncthreads_or(earlier)) return;
  const bool of_keys = blockIdx.z == 0;
  const int width = static_cast<int>(of_keys ? p.width : p.value_width);
  const size_t step = p.key_heads * width;
  const T* const from = static_cast<const T*>(of_keys ? p.k : p.v) + head * width;
  C* const to = static_cast<C*>(of_keys ? p.key_cache_out : p.value_cache_out) + at * p.block * step + head * width;
  float* const scale = (of_keys ? p.key_scale_out : p.value_scale_out) + at * p.key_heads + head;
  // Each visits the new rows of the block, a warp a row.
  const auto each = [&](auto visit) {
    for (int base = token; base < tokens; base += kThreads) {
      const int first = base + warp * 32;
      unsigned rows = __ballot_sync(0xffffffffu, is_same(first + lane));
      for (; rows != 0; rows &= rows - 1) visit(first + __ffs(rows) - 1);
    }
  };
  bool starts = false;
  unsigned greatest = 0;  // the bits of NaN exceed all others
  each([&](int t) {
    starts = starts || slots[t] % block == 0;
    for (int d = lane; d < width; d += 32) {
      greatest = max(greatest, __float_as_uint(ToFloat(from[t * step + d])) & 0x7fffffffu);
    }
  });
#pragma unroll
  for (int i = 16; i > 0; i /= 2) greatest = max(greatest, __shfl_xor_sync(0xffffffffu, greatest, i));
  if (lane == 0) across[warp] = greatest;
  const bool over = __syncthreads_or(starts);
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) greatest = max(greatest, across[w]);
  constexpr bool kInt8 = std::is_same<C, Int8Code>::value;
  const float least = LeastScale(__uint_as_float(greatest), kInt8 ? 127 : 448, kInt8 ? 7 : 9);
  const float old = over ? kLeast : *scale, now = least != least || least > old ? least : old;
  __syncthreads();  // all have read the scale
  if (over || now > old) {
    const float factor = old / now;
    for (int row = warp; row < block; row += kThreads / 32) {
      for (int d = lane; d < width; d += 32) {
        C& code = to[row * step + d];
        code = over ? C{} : Encoded(C{}, Exact(C{}, ToFloat(code)) * factor);
      }
    }
    __syncthreads();
  }
  each([&](int t) {
    C* const row = to + slots[t] % block * step;
    for (int d = lane; d < width; d += 32) row[d] = Encoded(C{}, __fdiv_rn(ToFloat(from[t * step + d]), now));
  });
  if (threadIdx.x == 0) *scale = now;
}

template <class T>
cudaError_t Run(const Params& p, int* slots, cudaStream_t stream) {
  const auto kernel = p.float8 ? WriteCodes<T, E4M3Code> : WriteCodes<T, Int8Code>;
  const dim3 grid(static_cast<unsigned>(p.tokens), static_cast<unsigned>(p.key_heads), 2);
  return Launch(kernel, grid, kThreads, 0, stream, p, static_cast<const int*>(slots));
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
