// Attention: chooses a call's kernels, and the keys and values that they read.
#include "attention/cuda/attention.cuh"

namespace mojo {
namespace {

constexpr int kAppendThreads = 256;
constexpr int kAppendUnits = 4;  // of a thread

// Append copies rows to present_key and present_value: all rows of the buffer, or only the new ones if present is past.
// Widths and steps are in units.
//
// Registers: 40. No shared memory.
template <class Unit>
__global__ __launch_bounds__(kAppendThreads) void Append(const __grid_constant__ MojoAttentionArgs a, int blocks) {
  WaitForPrevious();
  LetNextStart();
  const Pair p(a, blockIdx.x / blocks);
  const bool of_keys = blockIdx.y == 0;
  const Keys<Unit> keys = of_keys ? KeysOf<Unit>(a, p) : ValuesOf<Unit>(a, p);
  if (keys.present_rows == nullptr) return;
  const bool in_place = of_keys ? a.present_key == a.past_key : a.present_value == a.past_value;
  const int width = static_cast<int>(keys.width), begin = in_place ? p.past : 0;
  const size_t count = (in_place ? a.added : a.room) * keys.width;
  size_t i = static_cast<size_t>(blockIdx.x % blocks) * (kAppendThreads * kAppendUnits) + threadIdx.x;
#pragma unroll
  for (int n = 0; n < kAppendUnits; ++n, i += kAppendThreads) {
    if (i >= count) return;
    const int j = begin + static_cast<int>(i / width), at = static_cast<int>(i % width);
    const Unit* const from = j < p.length ? keys.Row(j) : keys.past_rows + j * keys.width;
    keys.Present(j)[at] = from[at];
  }
}

template <class Unit>
cudaError_t Run(MojoAttentionArgs a, cudaStream_t stream) {
  const size_t elements = sizeof(Unit) / TypeSize(a.type);
  a.width /= elements;
  a.value_width /= elements;
  for (HeadSteps* s : {&a.k_steps, &a.v_steps}) {
    s->batch /= elements;
    s->head /= elements;
    s->row /= elements;
  }
  const bool all = (a.present_key != nullptr && a.present_key != a.past_key) ||
                   (a.present_value != nullptr && a.present_value != a.past_value);
  const size_t units = (all ? a.room : a.added) * (a.width > a.value_width ? a.width : a.value_width);
  const size_t blocks = DivideUp(units, kAppendThreads * kAppendUnits);
  if (blocks == 0) return cudaSuccess;
  return Launch(Append<Unit>, dim3(static_cast<unsigned>(blocks * PairsOf(a)), 2), kAppendThreads, 0, stream, a,
                static_cast<int>(blocks));
}

}  // namespace

cudaError_t AppendKeys(const MojoAttentionArgs& a, cudaStream_t stream) {
  if (a.present_key == nullptr && a.present_value == nullptr) return cudaSuccess;
  if (Pieces(a)) return Run<uint4>(a, stream);
  return a.type == kMojoFloat32 ? Run<float>(a, stream) : Run<uint16_t>(a, stream);
}

}  // namespace mojo

using namespace mojo;

namespace {

// Rows and keys are counted in ints.
constexpr size_t kMost = size_t{1} << 30;

// A tensor core tile of fewer rows would be mostly empty.
constexpr size_t kFewestRows = 32;

bool Attends(const MojoAttentionArgs& a) { return PairsOf(a) > 0 && a.heads > 0 && a.queries > 0 && a.value_width > 0; }

// Appends reports whether rows past the length go to present as well, because a whole buffer is copied.
bool Appends(const MojoAttentionArgs& a) {
  return a.past_lengths != nullptr && (a.present_key != a.past_key || a.present_value != a.past_value);
}

}  // namespace

size_t MojoAttentionScratch(const MojoAttentionArgs* args) {
  if (!Attends(*args)) return 0;
  if (args->values_in_keys) return AttentionLatentScratch(*args);
  return AttentionSplitTakes(*args) ? AttentionSplitScratch(*args) : AttentionWgmmaScratch(*args);
}

cudaError_t MojoCudaAttention(const MojoAttentionArgs* args, cudaStream_t stream) {
  MojoAttentionArgs a = *args;
  if (a.values_in_keys) a.v = a.past_value = a.present_value = nullptr;
  if (PairsOf(a) == 0) return cudaSuccess;
  if (a.window > kMost) a.window = kMost;
  if (PairsOf(a) > kMost || a.room > kMost || a.added > kMost || RowsOf(a) > kMost || a.width > kMost ||
      a.value_width > kMost) {
    return cudaErrorInvalidValue;
  }
  const bool splits = Attends(a) && !a.values_in_keys && AttentionSplitTakes(a);
  if (!splits || Appends(a)) {
    if (cudaError_t e = AppendKeys(a, stream)) return e;
    if (splits) a.present_key = a.present_value = nullptr;
  }
  if (!Attends(a)) return cudaSuccess;
  if (splits) return AttentionSplit(a, stream);
  if (a.values_in_keys) return AttentionLatentTakes(a) ? AttentionLatent(a, stream) : AttentionAny(a, stream);
  if (RowsOf(a) >= kFewestRows && AttentionWgmmaTakes(a)) return AttentionWgmma(a, stream);
  return AttentionMmaTakes(a) ? AttentionMma(a, stream) : AttentionAny(a, stream);
}
