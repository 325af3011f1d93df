// How the work of RotaryEmbedding and NormRotary is spread over threads.
#include "cuda/rotary.cuh"

namespace mojo {
namespace {

int forced_heads = 0;

size_t RowsOf(const MojoRotaryArgs& args) {
  size_t rows = 1;
  for (int i = 0; i < args.rank; ++i) rows *= args.dims[i];
  return rows;
}

bool Valid(const MojoRotaryArgs& args) {
  return args.rank >= 0 && args.rank <= MOJO_MAX_DIMS && args.rotated % 2 == 0 && args.rotated >= 2 &&
         args.first + args.rotated <= args.width && args.width <= INT32_MAX / 2;
}

// HeadDim is the dimension of the heads, the innermost along which neither table moves; -1: none.
int HeadDim(const MojoRotaryArgs& args) {
  for (int i = args.rank; i-- > 0;) {
    if (args.cos_step[i] == 0 && args.sin_step[i] == 0 && args.dims[i] > 1) return i;
  }
  return -1;
}

// LayOutPacks fills in tensor for threads that do heads heads each, and tells whether packs can do it.
bool LayOutPacks(const RotaryWork& work, int heads, RotaryTensor* tensor) {
  const MojoRotaryArgs& args = *work.rotary;
  const MojoNormRotaryArgs* norm = work.norm;
  const size_t count = 16 / TypeSize(args.type);
  const size_t half = args.rotated / 2;
  const bool copies = norm != nullptr || args.x != args.y;
  const size_t rest = copies ? args.width - args.rotated : 0;
  if (half % count != 0 || args.first % count != 0 || args.width % count != 0 ||
      rest % (2 * count) != 0 || (args.first != 0 && args.first + args.rotated != args.width)) {
    return false;
  }
  if (!Aligned(args.x, 16) || !Aligned(args.y, 16) || !Aligned(args.cos, 16) ||
      !Aligned(args.sin, 16)) {
    return false;
  }
  RotaryTensor& t = *tensor;
  t = RotaryTensor{};
  t.x = args.x;
  t.cos = args.cos;
  t.sin = args.sin;
  t.y = args.y;
  t.first = static_cast<int>(args.first);
  t.half = static_cast<int>(half);
  t.rest = args.first != 0 ? 0 : static_cast<int>(args.rotated);
  t.chunks = static_cast<int>(half / count);
  t.all_chunks = t.chunks + static_cast<int>(rest / (2 * count));
  t.cos_wide = args.cos_wide != 0;
  t.sin_wide = args.sin_wide != 0;
  size_t lanes = t.all_chunks;
  if (norm != nullptr) {
    // The lanes of a row add up its squares.
    if (norm->x_type != args.type || !Aligned(norm->scale, 16)) return false;
    lanes = 1;
    while (lanes < static_cast<size_t>(t.all_chunks)) lanes *= 2;
    if (lanes > 32) return false;
    t.scale = norm->scale;
    t.width = static_cast<int>(args.width);
    t.epsilon = norm->epsilon;
    t.per_channel = 1.0f / static_cast<float>(args.width);
    t.scale_is_float = norm->scale_type == kMojoFloat32;
    t.scale_after_cast = norm->scale_after_cast != 0;
  }
  const int head_dim = HeadDim(args);
  t.heads = 1;
  t.head_step = 0;
  size_t step = args.width, places = 1;
  int place_dims = 0;
  for (int i = args.rank; i-- > 0;) {
    const size_t dim = args.dims[i];
    if (dim > INT32_MAX || args.cos_step[i] % count != 0 || args.sin_step[i] % count != 0) return false;
    if (i == head_dim) {
      t.heads = static_cast<uint32_t>(dim);
      t.head_step = static_cast<int64_t>(step);
    } else if (dim > 1) {
      if (place_dims == kPlaceDims) return false;
      t.dims[place_dims] = Divider(static_cast<uint32_t>(dim));
      t.x_step[place_dims] = static_cast<int64_t>(step);
      t.cos_step[place_dims] = static_cast<int64_t>(args.cos_step[i]);
      t.sin_step[place_dims] = static_cast<int64_t>(args.sin_step[i]);
      ++place_dims;
      places *= dim;
    }
    step *= dim;
  }
  const size_t groups = DivideUp(t.heads, heads);
  if (places > INT32_MAX / groups / lanes) return false;
  t.lanes = Divider(static_cast<uint32_t>(lanes));
  t.groups = Divider(static_cast<uint32_t>(groups));
  t.threads = static_cast<uint32_t>(places * groups * lanes);
  return true;
}

// PlanHeads is how many heads a thread works on: one, but for many rows that are normalised, too, whose threads wait longer.
int PlanHeads(const RotaryWork* work, int count) {
  if (forced_heads != 0) return forced_heads;
  size_t chunks = 0, heads = 1;
  for (int i = 0; i < count; ++i) {
    const MojoRotaryArgs& args = *work[i].rotary;
    const int dim = HeadDim(args);
    if (dim >= 0 && args.dims[dim] > heads) heads = args.dims[dim];
    chunks += RowsOf(args) * args.width * TypeSize(args.type) / 32;
  }
  const size_t at_once = static_cast<size_t>(TheDevice().multiprocessors) * 6 * kRotaryThreads;
  return chunks <= at_once || heads < 2 || work[0].norm == nullptr ? 1 : 2;
}

uint32_t BlocksOf(const RotaryTensor& tensor) {
  return static_cast<uint32_t>(DivideUp(tensor.threads, kRotaryThreads));
}

cudaError_t RunOne(const RotaryWork& work, RotaryFn packs, cudaStream_t stream) {
  RotaryLaunch launch = {};
  const int heads = PlanHeads(&work, 1);
  if (!LayOutPacks(work, heads, &launch.tensors[0])) return RunRotaryAny(work, stream);
  launch.split = BlocksOf(launch.tensors[0]);
  return packs(*work.rotary, launch, dim3(launch.split), heads, stream);
}

bool Alike(const MojoRotaryArgs& a, const MojoRotaryArgs& b) {
  return a.type == b.type && (a.interleaved != 0) == (b.interleaved != 0) &&
         (a.output_interleaved != 0) == (b.output_interleaved != 0);
}

}  // namespace

void ForceRotaryHeads(int heads) { forced_heads = heads; }

cudaError_t RunRotary(const RotaryWork* work, int count, RotaryFn packs, cudaStream_t stream) {
  RotaryWork live[MOJO_MAX_TENSORS];
  int n = 0;
  for (int i = 0; i < count; ++i) {
    if (!Valid(*work[i].rotary)) return cudaErrorInvalidValue;
    if (RowsOf(*work[i].rotary) > 0) live[n++] = work[i];
  }
  if (n == 2 && Alike(*live[0].rotary, *live[1].rotary)) {
    RotaryLaunch launch = {};
    const int heads = PlanHeads(live, 2);
    if (LayOutPacks(live[0], heads, &launch.tensors[0]) &&
        LayOutPacks(live[1], heads, &launch.tensors[1])) {
      launch.split = BlocksOf(launch.tensors[0]);
      return packs(*live[0].rotary, launch, dim3(launch.split + BlocksOf(launch.tensors[1])), heads,
                   stream);
    }
  }
  for (int i = 0; i < n; ++i) {
    const cudaError_t error = RunOne(live[i], packs, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace mojo
