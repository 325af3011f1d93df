// The partition of RotaryEmbedding and NormRotary over threads.
#include "rotary/cuda/rotary.cuh"

namespace mojo {
namespace {

constexpr uint32_t kMostBlocks = 65535;  // along y and z of a grid

bool Valid(const MojoRotaryArgs& args) {
  return args.rank <= kMaxRotaryDims && args.rotated % 2 == 0 && args.rotated >= 2 &&
         args.first + args.rotated <= args.width && args.width <= INT32_MAX / 2;
}

// Dim is a dimension of the rows, with its steps in x and the tables.
struct Dim {
  size_t size = 1, step = 0, cos_step = 0, sin_step = 0;
};

// Dims are the row dimensions of a tensor by meaning. Tables do not vary along the heads.
struct Dims {
  Dim heads, places, batches;
};

// SplitDims finds the dimensions, and returns false if there are any others.
bool SplitDims(const MojoRotaryArgs& args, Dims* out) {
  Dim dims[kMaxRotaryDims];
  int count = 0;
  size_t step = args.width;
  for (size_t i = args.rank; i-- > 0;) {
    const Dim dim = {args.dims[i], step, args.cos_step[i], args.sin_step[i]};
    step *= dim.size;
    if (dim.size == 1) continue;
    if (count > 0) {
      // One with that inside of it.
      Dim& inner = dims[count - 1];
      if (dim.cos_step == inner.cos_step * inner.size && dim.sin_step == inner.sin_step * inner.size) {
        inner.size *= dim.size;
        continue;
      }
    }
    dims[count++] = dim;
  }
  Dim* const rest[] = {&out->places, &out->batches};
  int used = 0;
  bool heads = false;
  for (int i = 0; i < count; ++i) {
    if (!heads && dims[i].cos_step == 0 && dims[i].sin_step == 0) {
      out->heads = dims[i];
      heads = true;
    } else if (used == 2) {
      return false;
    } else {
      *rest[used++] = dims[i];
    }
  }
  return true;
}

// LayOut fills in a launch for one tensor, and reports whether packs can handle it.
bool LayOut(const RotaryWork& work, RotaryLaunch* launch, dim3* grid, dim3* block) {
  const MojoRotaryArgs& args = *work.rotary;
  const MojoNormRotaryArgs* norm = work.norm;
  const size_t count = 16 / TypeSize(args.type);
  const size_t half = args.rotated / 2;
  const bool copies = norm != nullptr || args.x != args.y;
  const size_t rest = copies ? args.width - args.rotated : 0;
  if (half % count != 0 || args.first % count != 0 || args.width % count != 0 || rest % (2 * count) != 0 ||
      (args.first != 0 && args.first + args.rotated != args.width)) {
    return false;
  }
  if (!AllAligned(16, args.x, args.y, args.cos, args.sin)) return false;
  for (size_t i = 0; i < args.rank; ++i) {
    if (args.cos_step[i] % count != 0 || args.sin_step[i] % count != 0) return false;
  }
  Dims dims;
  if (!SplitDims(args, &dims)) return false;
  for (const Dim& dim : {dims.heads, dims.places, dims.batches}) {
    if (dim.size > INT32_MAX || dim.step > UINT32_MAX) return false;
    if (dim.cos_step > UINT32_MAX || dim.sin_step > UINT32_MAX) return false;
  }
  RotaryLaunch& p = *launch;
  p = RotaryLaunch{};
  p.heads[0] = static_cast<uint32_t>(dims.heads.size);
  p.head_step[0] = static_cast<uint32_t>(dims.heads.step);
  p.place_step[0] = static_cast<uint32_t>(dims.places.step);
  p.batch_step[0] = static_cast<uint32_t>(dims.batches.step);
  p.x[0] = args.x;
  p.cos = args.cos;
  p.sin = args.sin;
  p.y[0] = args.y;
  p.places = static_cast<uint32_t>(dims.places.size);
  p.cos_step[0] = static_cast<uint32_t>(dims.places.cos_step);
  p.cos_step[1] = static_cast<uint32_t>(dims.batches.cos_step);
  p.sin_step[0] = static_cast<uint32_t>(dims.places.sin_step);
  p.sin_step[1] = static_cast<uint32_t>(dims.batches.sin_step);
  p.first = static_cast<int>(args.first);
  p.half = static_cast<int>(half);
  p.rest = args.first != 0 ? 0 : static_cast<int>(args.rotated);
  p.chunks = static_cast<int>(half / count);
  p.all_chunks = p.chunks + static_cast<int>(rest / (2 * count));
  p.cos_wide = args.cos_wide;
  p.sin_wide = args.sin_wide;
  uint32_t lanes = static_cast<uint32_t>(p.all_chunks);
  if (norm != nullptr) {
    // The lanes of a row add up its squares.
    if (norm->x_type != args.type || !Aligned(norm->scale, 16)) return false;
    lanes = 1;
    while (lanes < static_cast<uint32_t>(p.all_chunks)) lanes *= 2;
    if (lanes > 32) return false;
    p.scale[0] = norm->scale;
    p.epsilon = norm->epsilon;
    p.per_channel = 1.0f / static_cast<float>(args.width);
    p.scale_is_float = norm->scale_type == kMojoFloat32;
    p.scale_after_cast = norm->scale_after_cast != 0;
  }
  if (lanes > kRotaryThreads) return false;
  *block = dim3(lanes);
  *grid = dim3(1, 1, static_cast<unsigned>(dims.batches.size));
  return dims.batches.size <= kMostBlocks;
}

// Join merges the launches of two tensors into one, and reports whether it can.
bool Join(const RotaryLaunch& other, RotaryLaunch* launch) {
  RotaryLaunch& p = *launch;
  if (p.cos != other.cos || p.sin != other.sin || p.places != other.places || p.first != other.first ||
      p.half != other.half || p.rest != other.rest || p.all_chunks != other.all_chunks ||
      p.cos_wide != other.cos_wide || p.sin_wide != other.sin_wide || p.epsilon != other.epsilon ||
      p.per_channel != other.per_channel || p.scale_is_float != other.scale_is_float ||
      p.scale_after_cast != other.scale_after_cast) {
    return false;
  }
  for (int i = 0; i < 2; ++i) {
    if (p.cos_step[i] != other.cos_step[i] || p.sin_step[i] != other.sin_step[i]) return false;
  }
  p.heads[1] = other.heads[0];
  p.head_step[1] = other.head_step[0];
  p.place_step[1] = other.place_step[0];
  p.batch_step[1] = other.batch_step[0];
  p.x[1] = other.x[0];
  p.y[1] = other.y[0];
  p.scale[1] = other.scale[0];
  return true;
}

// Spread deals the threads of a block beyond the lanes of a row to heads and places, and the grid; neighbors in
// memory to neighboring blocks. It reports whether there are few enough of them.
bool Spread(RotaryLaunch* launch, dim3* grid, dim3* block) {
  RotaryLaunch& p = *launch;
  const uint32_t heads = p.heads[0] + p.heads[1], rows = kRotaryThreads / block->x;
  uint32_t in_block = 1;
  while (2 * in_block <= (heads < rows ? heads : rows) && in_block < kRotaryHeads) in_block *= 2;
  block->y = in_block;
  block->z = rows / in_block;
  // With a norm whole warps: rows and in_block are powers of two.
  if (block->z > 64) block->z = 64;
  const size_t groups = DivideUp(heads, block->y), blocks = DivideUp(p.places, block->z);
  p.heads_fast = p.head_step[0] < p.place_step[0] && blocks <= kMostBlocks;
  if (!p.heads_fast && groups > kMostBlocks) return false;
  grid->x = static_cast<unsigned>(p.heads_fast ? groups : blocks);
  grid->y = static_cast<unsigned>(p.heads_fast ? blocks : groups);
  return true;
}

bool Alike(const MojoRotaryArgs& a, const MojoRotaryArgs& b) {
  return a.type == b.type && a.width == b.width && a.interleaved == b.interleaved &&
         a.output_interleaved == b.output_interleaved;
}

}  // namespace

cudaError_t RunRotary(const RotaryWork* work, int count, RotaryFn packs, cudaStream_t stream) {
  RotaryWork live[MOJO_MAX_TENSORS];
  int n = 0;
  for (int i = 0; i < count; ++i) {
    if (!Valid(*work[i].rotary)) return cudaErrorInvalidValue;
    if (work[i].rotary->Rows() > 0) live[n++] = work[i];
  }
  RotaryLaunch launch[MOJO_MAX_TENSORS];
  dim3 grid[MOJO_MAX_TENSORS], block[MOJO_MAX_TENSORS];
  bool fit[MOJO_MAX_TENSORS];
  for (int i = 0; i < n; ++i) fit[i] = LayOut(live[i], &launch[i], &grid[i], &block[i]);
  if (n == 2 && fit[0] && fit[1] && Alike(*live[0].rotary, *live[1].rotary) && grid[0].z == grid[1].z) {
    RotaryLaunch both = launch[0];
    if (Join(launch[1], &both) && Spread(&both, &grid[0], &block[0])) {
      return packs(*live[0].rotary, both, grid[0], block[0], stream);
    }
  }
  for (int i = 0; i < n; ++i) {
    const cudaError_t error = fit[i] && Spread(&launch[i], &grid[i], &block[i])
                                  ? packs(*live[i].rotary, launch[i], grid[i], block[i], stream)
                                  : RunRotaryAny(live[i], stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace mojo
