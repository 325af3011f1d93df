// LinearAttention on CUDA, token by token; linear_chunks.cu has prompts in chunks.
//
// Bytes moved by a decode step: past and present once, which are nearly all of it; the floor is those bytes over the
// memory bandwidth. The columns of a state depend on no other column, so a block takes kShortColumns of them through
// all tokens with its part of the state in registers. A token waits for one barrier, since
//   S^T q = D^T q + u (k . q)   with D the decayed state, S = D + k u^T
// lets D^T k and D^T q be added up together (fused_recurrent of flash-linear-attention takes two sums, one after the
// other), and the next token's numbers are fetched meanwhile.
#include "linearattention/cuda/linear_attention.cuh"
#include "linearattention/cuda/linear_chunks.h"
#include "linearattention/cuda/linear_long_keys.cuh"

namespace mojo {
namespace {

constexpr int kThreads = 128;                          // of a block of ShortKeys
constexpr int kShortColumns = 32;                      // of such a block: a line of memory of each row
constexpr int kGroups = kThreads * 4 / kShortColumns;  // of threads, each with every kGroups-th row of all columns

// Fetched is the part of a token that a thread fetches for its block: kEach numbers of q and k, and of decay if each
// row has one. They stay as they are stored, since to convert them is to wait for them.
template <class T, int kEach, bool kByChannel>
struct Fetched {
  T q[kEach], k[kEach], v[4];
  float decay[kByChannel ? kEach : 1], beta = 1;

  __device__ __forceinline__ void Read(const Params& p, int64_t row, int query, int head, int column) {
    const T* qs = static_cast<const T*>(p.q) + (row * p.q_heads + query) * p.key;
    const T* ks = static_cast<const T*>(p.k) + (row * p.k_heads + p.by_keys.Quotient(head)) * p.key;
    const T* vs = static_cast<const T*>(p.v) + (row * p.heads + head) * p.value;
    const float* decays = p.decay + (row * p.heads + head) * p.channels;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int r = threadIdx.x + kThreads * i;
      const bool there = r < p.key;
      q[i] = there ? qs[r] : FromFloat<T>(0);
      k[i] = there ? ks[r] : FromFloat<T>(0);
      if (kByChannel) decay[i] = there ? decays[r] : 0.0f;
    }
    if (!kByChannel) decay[0] = p.decay != nullptr ? decays[0] : 0.0f;
#pragma unroll
    for (int c = 0; c < 4; ++c) v[c] = column + c < p.value ? vs[column + c] : FromFloat<T>(0);
    if (p.beta != nullptr) beta = p.beta[row * p.beta_heads + (p.beta_heads == 1 ? 0 : head)];
  }
};

// Shared is the data of a token that the threads of a block share.
template <int kKeys>
struct Shared {
  float q[kKeys], k[kKeys], factor[kKeys];
  float sums[kThreads / 32][4];                                 // of each warp: q . q, k . k, k . q
  alignas(16) float products[kThreads / 32][2][kShortColumns];  // of each warp: D^T k and D^T q
};

// ShortKeys takes kShortColumns columns of a state of up to kGroups * kRows rows through all tokens.
//
// Registers: 168. Shared memory: two Shared, at most 8.5 KB.
template <class T, int kRows, bool kByChannel>
__global__ void __launch_bounds__(kThreads, kRows <= 8 ? 4 : 3) ShortKeys(const Params p) {
  constexpr int kKeys = kGroups * kRows, kEach = (kKeys + kThreads - 1) / kThreads, kWarpCount = kThreads / 32;
  __shared__ Shared<kEach * kThreads> shared[2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = threadIdx.x / 8;
  const int at = p.by_tiles.Quotient(blockIdx.x), batch = p.by_heads.Quotient(at);
  const int tile = blockIdx.x - at * p.tiles, head = at - batch * p.heads, query = p.by_queries.Quotient(head * p.each);
  const int column = tile * kShortColumns + lane % 8 * 4;
  const int64_t first = int64_t{batch} * p.tokens;
  const int64_t place = (int64_t{at} * p.key + group) * p.value + column, step = int64_t{kGroups} * p.value;
  const int rows = column < p.value ? p.key : 0;  // of the thread's columns
  // write stores the row of Y of a token and one of the state's queries.
  const auto write = [&](int t, int e, float4 row) {
    const float y[4] = {row.x, row.y, row.z, row.w};
    T* to = static_cast<T*>(p.y) + ((first + t) * p.y_heads + head * p.each + e) * p.value + column;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (column + c < p.value) to[c] = FromFloat<T>(y[c] * p.scale);
    }
  };
  // stage writes the fetched numbers of a token for the block, and its warp's sums.
  const auto stage = [&](const Fetched<T, kEach, kByChannel>& token, Shared<kEach * kThreads>* to) {
    float qq = 0, kk = 0, kq = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float q = ToFloat(token.q[i]), k = ToFloat(token.k[i]);
      to->q[threadIdx.x + kThreads * i] = q;
      to->k[threadIdx.x + kThreads * i] = k;
      if (kByChannel) to->factor[threadIdx.x + kThreads * i] = Factor(token.decay[i]);
      qq = fmaf(q, q, qq);
      kk = fmaf(k, k, kk);
      kq = fmaf(k, q, kq);
    }
    if (p.l2_norm) qq = WarpSum(qq), kk = WarpSum(kk);
    kq = WarpSum(kq);
    if (lane == 0) *reinterpret_cast<float4*>(to->sums[warp]) = make_float4(qq, kk, kq, 0);
  };

  WaitForPrevious();
  Fetched<T, kEach, kByChannel> now, next;
  if (p.tokens > 0) now.Read(p, first, query, head, column);
  float state[kRows][4] = {};
  const float* from = p.past + place;
  if (p.past != nullptr && p.vectors) {
#pragma unroll
    for (int i = 0; i < kRows; ++i, from += step) {
      if (group + kGroups * i < rows) {
        const float4 row = *reinterpret_cast<const float4*>(from);
        state[i][0] = row.x, state[i][1] = row.y, state[i][2] = row.z, state[i][3] = row.w;
      }
    }
  } else if (p.past != nullptr) {
#pragma unroll
    for (int i = 0; i < kRows; ++i, from += step) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (group + kGroups * i < rows && column + c < p.value) state[i][c] = from[c];
      }
    }
  }
  if (p.tokens > 0) stage(now, &shared[0]);
  __syncthreads();
  for (int t = 0; t < p.tokens; ++t) {
    Shared<kEach * kThreads>& s = shared[t % 2];
    if (t + 1 < p.tokens) next.Read(p, first + t + 1, query, head, column);
    float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < kWarpCount; ++w) {
      const float4 more = *reinterpret_cast<const float4*>(s.sums[w]);
      sums.x += more.x, sums.y += more.y, sums.z += more.z;
    }
    const float q_unit = p.l2_norm ? 1 / sqrtf(sums.x + p.epsilon) : 1.0f;
    const float k_unit = p.l2_norm ? 1 / sqrtf(sums.y + p.epsilon) : 1.0f;
    const float factor = Factor(now.decay[0]);
    float k[kRows], products[8] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = group + kGroups * i;
      const float q = s.q[r] * q_unit;
      k[i] = s.k[r] * k_unit;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        state[i][c] *= kByChannel ? s.factor[r] : factor;
        products[c] = fmaf(state[i][c], k[i], products[c]);
        products[4 + c] = fmaf(state[i][c], q, products[4 + c]);
      }
    }
    // Over the four groups of a warp: a lane keeps the products of one kind, then two columns of them.
    const bool upper = lane & 16, odd = lane & 8;
    float two[2];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float sent = upper ? products[c] : products[4 + c], kept = upper ? products[4 + c] : products[c];
      products[c] = kept + __shfl_xor_sync(0xffffffffu, sent, 16);
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float sent = odd ? products[c] : products[2 + c], kept = odd ? products[2 + c] : products[c];
      two[c] = kept + __shfl_xor_sync(0xffffffffu, sent, 8);
    }
    *reinterpret_cast<float2*>(&s.products[warp][upper][lane % 8 * 4 + (odd ? 2 : 0)]) = make_float2(two[0], two[1]);
    if (t + 1 < p.tokens) stage(next, &shared[(t + 1) % 2]);
    __syncthreads();
    const auto product = [&](int kind) {
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int w = 0; w < kWarpCount; ++w) {
        const float4 more = *reinterpret_cast<const float4*>(&s.products[w][kind][lane % 8 * 4]);
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
      }
      return sum;
    };
    float u[4];
    if (p.beta != nullptr) {
      const float4 had = product(0);
      u[0] = now.beta * (ToFloat(now.v[0]) - had.x), u[1] = now.beta * (ToFloat(now.v[1]) - had.y);
      u[2] = now.beta * (ToFloat(now.v[2]) - had.z), u[3] = now.beta * (ToFloat(now.v[3]) - had.w);
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) u[c] = ToFloat(now.v[c]);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) state[i][c] = fmaf(k[i], u[c], state[i][c]);
    }
    if (group == 0) {
      const float4 seen = product(1);
      const float kq = sums.z * q_unit * k_unit;
      write(
          t, 0,
          make_float4(fmaf(kq, u[0], seen.x), fmaf(kq, u[1], seen.y), fmaf(kq, u[2], seen.z), fmaf(kq, u[3], seen.w)));
    }
    // More queries of the same state: a block sums them one after the other.
    for (int e = 1; e < p.each; ++e) {
      const int other = p.by_queries.Quotient(head * p.each + e);
      const T* qs = static_cast<const T*>(p.q) + ((first + t) * p.q_heads + other) * p.key;
      float squares = 0, seen[4] = {};
      for (int r = lane; p.l2_norm && r < p.key; r += 32) squares = fmaf(ToFloat(qs[r]), ToFloat(qs[r]), squares);
      const float unit = p.l2_norm ? 1 / sqrtf(WarpSum(squares) + p.epsilon) : 1.0f;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int r = group + kGroups * i;
        const float q = r < p.key ? ToFloat(qs[r]) * unit : 0.0f;
#pragma unroll
        for (int c = 0; c < 4; ++c) seen[c] = fmaf(state[i][c], q, seen[c]);
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        seen[c] += __shfl_xor_sync(0xffffffffu, seen[c], 16);
        seen[c] += __shfl_xor_sync(0xffffffffu, seen[c], 8);
      }
      __syncthreads();
      if (lane < 8) {
        *reinterpret_cast<float4*>(&s.products[warp][1][lane * 4]) = make_float4(seen[0], seen[1], seen[2], seen[3]);
      }
      __syncthreads();
      if (group != 0) continue;
      write(t, e, product(1));
    }
    now = next;
  }
  if (p.present == nullptr) return;
  float* to = p.present + place;
  if (p.vectors) {
#pragma unroll
    for (int i = 0; i < kRows; ++i, to += step) {
      if (group + kGroups * i < rows) {
        *reinterpret_cast<float4*>(to) = make_float4(state[i][0], state[i][1], state[i][2], state[i][3]);
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i, to += step) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (group + kGroups * i < rows && column + c < p.value) to[c] = state[i][c];
    }
  }
}

constexpr int kMostKeys = 256;  // of ShortKeys

template <class T, int kRows>
cudaError_t RunShort(const Params& p, cudaStream_t stream) {
  const size_t blocks = static_cast<size_t>(p.batch) * p.heads * p.tiles;
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(blocks)), block(kThreads);
  if (p.decay != nullptr && p.channels > 1) return Launch(ShortKeys<T, kRows, true>, grid, block, 0, stream, p);
  return Launch(ShortKeys<T, kRows, false>, grid, block, 0, stream, p);
}

template <class T>
cudaError_t RunType(const Params& p, cudaStream_t stream) {
  if (p.key <= kGroups * 4) return RunShort<T, 4>(p, stream);
  if (p.key <= kGroups * 8) return RunShort<T, 8>(p, stream);
  if (p.key <= kMostKeys) return RunShort<T, kMostKeys / kGroups>(p, stream);
  const size_t blocks = DivideUp(static_cast<size_t>(p.batch) * p.heads * p.tiles, kWarps);
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  return Launch(LongKeys<T>, dim3(static_cast<unsigned>(blocks)), dim3(32 * kWarps), 0, stream, p);
}

}  // namespace
}  // namespace mojo

size_t MojoLinearAttentionScratch(const MojoLinearAttentionArgs* args) {
  if (mojo::RunsInChunks(*args)) return mojo::ChunkScratch(*args);
  if (args->present != nullptr || args->key <= mojo::kMostKeys) return 0;
  return args->batch * args->heads * args->key * args->value * sizeof(float);
}

cudaError_t MojoCudaLinearAttention(const MojoLinearAttentionArgs* args, cudaStream_t stream) {
  if (args->batch == 0 || args->value == 0 || (args->tokens == 0 && args->present == nullptr)) return cudaSuccess;
  const size_t sizes[] = {args->batch * args->tokens, args->key, args->value, args->y_heads};
  for (const size_t size : sizes) {
    if (size > INT32_MAX) return cudaErrorInvalidValue;
  }
  if (mojo::RunsInChunks(*args)) return mojo::RunChunks(*args, stream);
  const size_t columns = args->key <= mojo::kMostKeys ? mojo::kShortColumns : mojo::kColumns;
  const size_t tiles = mojo::DivideUp(args->value, columns), each = args->y_heads / args->heads;
  float* states = args->present != nullptr ? args->present : static_cast<float*>(args->scratch);
  const mojo::Params p = {
      args->q,
      args->k,
      args->v,
      args->past,
      args->decay,
      args->beta,
      args->y,
      args->present,
      states,
      static_cast<int64_t>(args->batch),
      static_cast<int>(args->tokens),
      static_cast<int>(args->key),
      static_cast<int>(args->value),
      static_cast<int>(args->q_heads),
      static_cast<int>(args->k_heads),
      static_cast<int>(args->heads),
      static_cast<int>(args->y_heads),
      static_cast<int>(args->beta_heads),
      static_cast<int>(args->channels),
      static_cast<int>(tiles),
      args->scale,
      args->epsilon,
      args->l2_norm,
      args->value % mojo::kColumns == 0 && mojo::Aligned(args->past, 16) && mojo::Aligned(states, 16),
      static_cast<int>(each),
      mojo::Divisor(tiles),
      mojo::Divisor(args->heads),
      mojo::Divisor(args->heads / args->k_heads),
      mojo::Divisor(args->y_heads / args->q_heads)};
  return mojo::OfType(args->type, [&](auto t) { return mojo::RunType<decltype(t)>(p, stream); });
}
