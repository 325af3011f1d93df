// LinearAttention in chunks of 64 tokens on tensor cores: prompts of float16 and bfloat16, with at most one decay for
// each head, or with beta and a decay for each channel of a head's keys.
//
// Within a chunk, G_i is the sum of the decays up to token i, and with D_ij = exp(G_i - G_j) for j <= i
//   A = tril(beta_i D_ij (k_i . k_j), -1),  T = (I + A)^-1,  U = T beta V,  W = T beta exp(G) K,
//   u = U - W S,  y = scale (exp(G) Q S + tril(D Q K^T) u),  S' = exp(G_64) S + (exp(G_64 - G) K)^T u
// where S is the state before the chunk (Yang et al. 2024, Gated Delta Networks, section 3.3). Without beta, u = V: the
// dual form of Mamba-2 (Dao and Gu 2024, Transformers are SSMs, section 6). Differences of sums are exponents, so
// nothing overflows that the result does not. The factors of an L2 norm are applied like the decays: k and q are
// multiplied as they are. T with its factors, W, U, u, the products of q and k, and S as an operand are rounded to the
// type of the tensors; sums, T and S itself are float32.
//
// With a decay for each channel (Kimi Team 2025, Kimi Linear, section 3), D_ij is a factor of each channel of a
// product, and exp(G) q, exp(G) k and exp(G_64 - G) k are rounded to the type of the tensors.
//
// PrepareChunks computes W, U and scale tril(D Q K^T) of all chunks in parallel. ScanChunks goes through the chunks
// with the state in registers, transposed: a warp has 16 columns of values, and its sums S^T and u^T are the left
// operands of the next products as they lie, so that warps share only the inputs. Four more warps load: there are few
// blocks, and in a warp that also computes, the addresses of the copies took as long as the products. The products of
// ScanChunks are wgmma on capability 9.0, the others mma.sync.
//
// The products multiply a token with the zeros of earlier ones, which must not see it. So a chunk whose updates are not
// finite is computed with zeros instead of these, and its results from such a token on, which are not finite either,
// become NaN. Each of the three places that need it looks at results that it has in registers.
//
// Operations of a chunk of a head with keys and values of 128: 5.1 M multiplications and as many additions with beta,
// 3.0 M without; PrepareChunks leaves blocks of 16 tokens above the diagonal out. Bytes: q, k, v and y once, and the
// scratch memory (W, U and 8 KB, or 8 KB without beta) is written and read once.
#include "linearattention/cuda/linear_chunks.h"

#include <algorithm>
#include <numeric>

#include "linearattention/cuda/linear_chunk_scan.cuh"
#include "linearattention/cuda/linear_chunk_solve.cuh"
#include "linearattention/cuda/linear_chunks.cuh"

namespace mojo {
namespace {

constexpr size_t kFewestTokens = 80;       // below, the other kernels do not wait for whole chunks
constexpr size_t kMostValue = 256;         // columns of V that PrepareChunks holds
constexpr size_t kPassBytes = 128u << 20;  // of scratch memory, about: longer prompts take several passes

bool ByChannel(const MojoLinearAttentionArgs& args) { return args.decay != nullptr && args.channels != 1; }

// Parts are the offsets of a pass's parts of the scratch memory.
struct Parts {
  size_t q_scaled, k_scaled, w, u, p, q_unit, k_unit, last, states, bytes;

  Parts(const MojoLinearAttentionArgs& args, size_t count) {
    const size_t chunks = args.batch * args.heads * count;
    size_t end = 0;
    const auto take = [&](size_t bytes) {
      const size_t at = end;
      end += DivideUp(bytes, 256) * 256;
      return at;
    };
    const bool delta = args.beta != nullptr, by_channel = ByChannel(args);
    q_scaled = take(by_channel ? chunks * kChunk * args.key * 2 : 0);
    k_scaled = take(by_channel ? chunks * kChunk * args.key * 2 : 0);
    w = take(delta ? chunks * kChunk * args.key * 2 : 0);
    u = take(delta ? chunks * kChunk * args.value * 2 : 0);
    p = take(chunks * kChunk * kChunk * 2);
    q_unit = take(chunks * kChunk * 4);
    k_unit = take(chunks * kChunk * 4);
    last = take(chunks * 4 * (by_channel ? args.key : 1));
    states = take(args.present != nullptr ? 0 : args.batch * args.heads * args.key * args.value * 4);
    bytes = end;
  }
};

// PassChunks is how many chunks of each sequence a pass takes.
size_t PassChunks(const MojoLinearAttentionArgs& args) {
  const size_t all = DivideUp(args.tokens, kChunk), one = Parts(args, 1).bytes;
  const size_t passes = DivideUp(all, std::max<size_t>(1, kPassBytes / one));
  return DivideUp(all, passes);
}

// KeysOf is the number of keys of the kernels that take so many: a warp's registers hold a state of up to kMostKeys.
constexpr size_t kMostKeys = 128;
int KeysOf(size_t key) { return key <= 64 ? 64 : 128; }

int ScanBytes(int keys, bool delta, bool channels, int stages) {
  return stages * (StageBytes(keys, delta) + UnitBytes(keys, channels));
}

int PrepareBytes(int keys, int value, bool delta, bool channels) {
  const int tile = kChunk * keys * 2, factors = (5 * kChunk + (channels ? kChunk * (keys + 2) : 0)) * 4;
  if (!delta) return 2 * tile + factors;
  const int values = static_cast<int>(DivideUp(value, kBlock)) * kSpan;
  return tile + std::max(tile, kSquareBytes) + values + kBetweenBytes + factors;
}

// HeadsTogether is how many heads a block of PrepareChunks takes: they share a product of queries and keys, as long as
// there are blocks for all multiprocessors.
int HeadsTogether(const MojoLinearAttentionArgs& args, size_t count) {
  const size_t shared = std::gcd(args.heads / args.q_heads, args.heads / args.k_heads);
  const size_t blocks = args.batch * args.heads * count, enough = 4 * static_cast<size_t>(TheDevice().multiprocessors);
  size_t most = 1;
  for (size_t each = 2; each <= shared && each * enough <= blocks; ++each) {
    if (shared % each == 0) most = each;
  }
  return static_cast<int>(most);
}

template <class T, int kKeys, bool kDelta, bool kChannels>
cudaError_t RunPass(Chunks c, cudaStream_t stream) {
  const int prepare = PrepareBytes(kKeys, c.value, kDelta, kChannels);
  c.stages = ScanBytes(kKeys, kDelta, kChannels, 3) <= TheDevice().shared_bytes ? 3 : 2;
  const int scan = ScanBytes(kKeys, kDelta, kChannels, c.stages);
  const auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (cudaError_t e = cudaFuncSetAttribute(PrepareChunks<T, kKeys, kDelta, kChannels>, most, prepare)) return e;
  if (cudaError_t e = cudaFuncSetAttribute(ScanChunks<T, kKeys, kDelta, kChannels>, most, scan)) return e;
  const size_t heads = static_cast<size_t>(c.batch) * c.heads, tiles = DivideUp(c.value, kBlock);
  if (heads * std::max<size_t>(c.count, tiles) > INT32_MAX) return cudaErrorInvalidValue;
  const dim3 chunks(static_cast<unsigned>(heads / (kDelta ? 1 : c.each) * c.count)),
      blocks(static_cast<unsigned>(heads * tiles));
  if (cudaError_t e = Launch(PrepareChunks<T, kKeys, kDelta, kChannels>, chunks, dim3(kThreads), prepare, stream, c))
    return e;
  return Launch(ScanChunks<T, kKeys, kDelta, kChannels>, blocks, dim3(2 * kThreads), scan, stream, c);
}

template <class T, int kKeys>
cudaError_t RunKeys(const Chunks& c, cudaStream_t stream) {
  if (c.q_scaled != nullptr) return RunPass<T, kKeys, true, true>(c, stream);
  return c.beta != nullptr ? RunPass<T, kKeys, true, false>(c, stream) : RunPass<T, kKeys, false, false>(c, stream);
}

template <class T>
cudaError_t RunType(const Chunks& c, cudaStream_t stream) {
  return KeysOf(c.key) == 64 ? RunKeys<T, 64>(c, stream) : RunKeys<T, 128>(c, stream);
}

}  // namespace

bool RunsInChunks(const MojoLinearAttentionArgs& args) {
  if (args.type == kMojoFloat32 || args.tokens < kFewestTokens || args.y_heads != args.heads) return false;
  if (ByChannel(args) && args.beta == nullptr) return false;
  if (args.key == 0 || args.key > kMostKeys || args.key % 8 != 0) return false;
  if (args.value == 0 || args.value > kMostValue || args.value % 8 != 0) return false;
  if (!AllAligned(16, args.q, args.k, args.v) || !Aligned(args.y, 4)) return false;
  const bool delta = args.beta != nullptr, channels = ByChannel(args);
  const int keys = KeysOf(args.key), value = static_cast<int>(args.value), most = TheDevice().shared_bytes;
  return PrepareBytes(keys, value, delta, channels) <= most && ScanBytes(keys, delta, channels, 2) <= most;
}

size_t ChunkScratch(const MojoLinearAttentionArgs& args) { return Parts(args, PassChunks(args)).bytes; }

cudaError_t RunChunks(const MojoLinearAttentionArgs& args, cudaStream_t stream) {
  const size_t all = DivideUp(args.tokens, kChunk), pass = PassChunks(args);
  const Parts parts(args, pass);
  char* scratch = static_cast<char*>(args.scratch);
  float* states = args.present != nullptr ? args.present : reinterpret_cast<float*>(scratch + parts.states);
  Chunks c = {args.q,
              args.k,
              args.v,
              args.past,
              args.decay,
              args.beta,
              args.y,
              states,
              ByChannel(args) ? scratch + parts.q_scaled : nullptr,
              ByChannel(args) ? scratch + parts.k_scaled : nullptr,
              scratch + parts.w,
              scratch + parts.u,
              scratch + parts.p,
              reinterpret_cast<float*>(scratch + parts.q_unit),
              reinterpret_cast<float*>(scratch + parts.k_unit),
              reinterpret_cast<float*>(scratch + parts.last),
              static_cast<int64_t>(args.batch),
              static_cast<int>(args.tokens),
              static_cast<int>(args.key),
              static_cast<int>(args.value),
              static_cast<int>(args.q_heads),
              static_cast<int>(args.k_heads),
              static_cast<int>(args.heads),
              static_cast<int>(args.beta_heads),
              0,
              0,
              1,
              2,
              args.scale,
              args.epsilon,
              args.l2_norm};
  for (size_t first = 0; first < all; first += pass) {
    c.first = static_cast<int>(first);
    c.count = static_cast<int>(std::min(pass, all - first));
    c.each = HeadsTogether(args, c.count);
    const cudaError_t error = args.type == kMojoFloat16 ? RunType<Half>(c, stream) : RunType<BFloat>(c, stream);
    if (error != cudaSuccess) return error;
    c.past = states;
  }
  return cudaSuccess;
}

}  // namespace mojo
