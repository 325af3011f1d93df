// Attention of many queries on compute capability 9.0, with tensor map copies and wgmma; see attention_tile.cuh.
#include <algorithm>

#include "attention/cuda/attention_warpgroup.cuh"
#include "cuda/tensor_map.h"

namespace mojo {
namespace {

using namespace warpgroup;

constexpr int kMeanThreads = 1024;

// WarpGroupAttention. Registers: 168; a thread that multiplies has 232. Shared memory: 160 to 224 KB, see Form.
template <class T, class F>
__global__ void __launch_bounds__(kThreads, 1)
    WarpGroupAttention(const __grid_constant__ MojoAttentionArgs a, const __grid_constant__ Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  RunBlock<T, F, Tile<F>>(a, work, memory, [&] { Load<F>(a, work, memory); });
#endif
}

// MeanValues computes the mean of a pair's values in each block. Threads sum 8 columns of some keys each.
//
// Registers: 32. Shared memory: 32 KB.
template <class T>
__global__ void __launch_bounds__(kMeanThreads)
    MeanValues(const __grid_constant__ MojoAttentionArgs a, const T* values, HeadSteps steps, float* means) {
  __shared__ float sums[kMeanThreads * 8];
  WaitForPrevious();
  LetNextStart();
  const Pair pair(a, blockIdx.x);
  const int width = static_cast<int>(a.value_width), columns = width / 8, lines = kMeanThreads / columns;
  const int column = threadIdx.x % columns;
  const T* const from = values + pair.batch * steps.batch + pair.head * steps.head + column * 8;
  float sum[8] = {};
  for (int j = threadIdx.x / columns; j < pair.length; j += lines) {
    float row[8];
    ToFloats(LoadPack<8>(from + j * steps.row), row);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += row[i];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[threadIdx.x * 8 + i] = sum[i];
  __syncthreads();
  for (int i = threadIdx.x; i < width; i += kMeanThreads) {
    float all = 0;
    for (int line = 0; line < lines; ++line) all += sums[line * width + i];
    means[pair.number * width + i] = all / max(pair.length, 1);
  }
}

// Source is where keys or values are read.
struct Source {
  const void* data;
  HeadSteps steps;
  size_t rows;
};

// HasPast reports whether keys are read from present_key, which then has the past and the new ones.
bool HasPast(const MojoAttentionArgs& a) { return a.past > 0 || a.past_lengths != nullptr; }

Source SourceOf(const MojoAttentionArgs& a, const void* added, const HeadSteps& steps, const void* present,
                size_t width) {
  if (!HasPast(a)) return {added, steps, a.added};
  return {present, {a.key_heads * a.room * width, a.room * width, width}, a.room};
}
Source KeysOf(const MojoAttentionArgs& a) { return SourceOf(a, a.k, a.k_steps, a.present_key, a.width); }
Source ValuesOf(const MojoAttentionArgs& a) { return SourceOf(a, a.v, a.v_steps, a.present_value, a.value_width); }

// Step is a dimension's step in bytes, or any valid step if its size is 1.
size_t Step(size_t count, size_t elements) { return count > 1 ? elements * 2 : 16; }

// MakeKeyMap makes the map of keys or values. A box is rows of a head, as parts of 64 numbers.
cudaError_t MakeKeyMap(CUtensorMap* map, const Source& from, const MojoAttentionArgs& a, size_t width, unsigned rows) {
  const Extent extents[] = {{64, 0, 64},
                            {from.rows, Step(from.rows, from.steps.row), rows},
                            {width / 64, 128, static_cast<unsigned>(width / 64)},
                            {a.key_heads, Step(a.key_heads, from.steps.head), 1},
                            {a.batch, Step(a.batch, from.steps.batch), 1}};
  return MakeTensorMap(map, from.data, extents, 5);
}

// HasMeans reports whether a row may get the mean of all values.
bool HasMeans(const MojoAttentionArgs& a) { return a.empty_mean && (a.key_valid != nullptr || a.queries > a.added); }

// MakeRowMap makes the map of q. A box is 64 numbers of members of the heads that share keys, of queries.
cudaError_t MakeRowMap(CUtensorMap* map, const MojoAttentionArgs& a, int members, int queries) {
  const size_t group = a.heads / a.key_heads, step = a.q_steps.head;
  const Extent extents[] = {{a.width, 0, 64},
                            {group, Step(group, a.cyclic ? step * a.key_heads : step), static_cast<unsigned>(members)},
                            {a.queries, Step(a.queries, a.q_steps.row), static_cast<unsigned>(queries)},
                            {a.key_heads, Step(a.key_heads, a.cyclic ? step : step * group), 1},
                            {a.batch, Step(a.batch, a.q_steps.batch), 1}};
  return MakeTensorMap(map, a.q, extents, 5);
}

// Copied reports whether boxes of a tensor can be copied, or its rows stored by 16 bytes.
bool Copied(const Source& from, size_t batch, size_t heads) {
  const auto fits = [](size_t count, size_t elements) { return count <= 1 || (elements > 0 && elements % 8 == 0); };
  return Aligned(from.data, 16) && fits(batch, from.steps.batch) && fits(heads, from.steps.head) &&
         fits(from.rows, from.steps.row);
}

template <class T, class F>
cudaError_t LaunchForm(const MojoAttentionArgs& a, cudaStream_t stream) {
  const Source keys = KeysOf(a), values = ValuesOf(a);
  Work work = {};
  work.Divide(a.heads / a.key_heads, PairsOf(a), a.scale, a.softcap);
  work.lines = static_cast<int>(DivideUp(a.queries, work.queries));
  work.all = work.lines * work.columns;
  if (cudaError_t e = MakeRowMap(&work.q, a, work.members, work.queries)) return e;
  if (cudaError_t e = MakeKeyMap(&work.k, keys, a, a.width, F::kKeys)) return e;
  if (cudaError_t e = MakeKeyMap(&work.v, values, a, a.value_width, F::kKeys)) return e;
  if (HasMeans(a)) {
    work.means = static_cast<float*>(a.scratch);
    const cudaError_t e = Launch(MeanValues<T>, static_cast<unsigned>(PairsOf(a)), kMeanThreads, 0, stream, a,
                                 static_cast<const T*>(values.data), values.steps, work.means);
    if (e != cudaSuccess) return e;
  }
  const auto kernel = WarpGroupAttention<T, F>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, F::kBytes)) return e;
  // One block for each tile takes longer to start, which long tiles hide, but then no tile waits for another.
  const bool longest = a.window == 0 && keys.rows > 8192;
  const int blocks = longest ? work.all : std::min(work.all, TheDevice().multiprocessors);
  return Launch(kernel, static_cast<unsigned>(blocks), kThreads, F::kBytes, stream, a, work);
}

template <class T>
cudaError_t LaunchType(const MojoAttentionArgs& a, cudaStream_t stream) {
  return OfForm(a.width, [&](auto form) { return LaunchForm<T, decltype(form)>(a, stream); });
}

// HasKernels reports whether the device runs the kernels, which are empty unless compiled for capability 9.0.
bool HasKernels() {
  if (TheDevice().capability != 90) return false;
  static const bool has = HasHopperCode(WarpGroupAttention<BFloat, Form128>);
  return has;
}

}  // namespace

bool AttentionWgmmaTakes(const MojoAttentionArgs& a) {
  if (a.type == kMojoFloat32 || a.bias != nullptr || !HasForm(a.width, a.value_width)) return false;
  const Source keys = KeysOf(a), values = ValuesOf(a);
  // Maxima are taken before scores are multiplied by scale.
  if (!(a.scale > 0) || a.queries == 0 || keys.rows == 0 || !HasKernels()) return false;
  constexpr size_t kMost = size_t{1} << 30;
  return keys.data != nullptr && values.data != nullptr && keys.rows + a.queries < kMost &&
         a.batch * a.heads * a.queries < kMost && Copied({a.q, a.q_steps, a.queries}, a.batch, a.heads) &&
         Copied({a.y, a.y_steps, a.queries}, a.batch, a.heads) && Copied(keys, a.batch, a.key_heads) &&
         Copied(values, a.batch, a.key_heads);
}

// The pointers may not be known yet.
size_t AttentionWgmmaScratch(const MojoAttentionArgs& a) {
  return a.empty_mean ? PairsOf(a) * a.value_width * sizeof(float) : 0;
}

cudaError_t AttentionWgmma(const MojoAttentionArgs& a, cudaStream_t stream) {
  return a.type == kMojoBFloat16 ? LaunchType<BFloat>(a, stream) : LaunchType<Half>(a, stream);
}

}  // namespace mojo
