// PagedAttention on CUDA: writes the pools, unless the kernel that attends does, and chooses that kernel.
//
// Bytes moved: the keys and values of all sequences once for each group of heads, q and y once, and both pools twice
// if they are not their results. In decoding the floor is those bytes over the memory bandwidth.
#include <algorithm>

#include "attention/cuda/paged_stage.cuh"

namespace mojo {
namespace paged {
namespace {

constexpr int kThreads = 256, kMostClusterBits = 3, kMostCluster = 1 << kMostClusterBits;

// WritePool copies the new keys, or values, to their rows of the pool. keys and values are the units of a row.
//
// Registers: 32. No shared memory.
template <class Unit>
__global__ __launch_bounds__(kThreads) void WritePool(const __grid_constant__ Params p, int keys, int values) {
  WaitForPrevious();
  LetNextStart();
  const bool of_keys = blockIdx.y == 0;
  const int width = of_keys ? keys : values;
  Unit* const to = static_cast<Unit*>(of_keys ? p.key_cache_out : p.value_cache_out);
  const Unit* const from = static_cast<const Unit*>(of_keys ? p.k : p.v);
  const int token = blockIdx.x;
  const size_t row = SlotOf<kThreads>(p, token);
  if (row >= p.blocks * p.block) return;
  for (int i = threadIdx.x; i < width; i += kThreads)
    to[row * width + i] = from[static_cast<size_t>(token) * width + i];
}

template <class Unit>
cudaError_t Run(const Params& p, cudaStream_t stream) {
  const size_t elements = sizeof(Unit) / TypeSize(p.type);
  return Launch(WritePool<Unit>, dim3(static_cast<unsigned>(p.tokens), 2), kThreads, 0, stream, p,
                static_cast<int>(p.key_heads * p.width / elements),
                static_cast<int>(p.key_heads * p.value_width / elements));
}

cudaError_t Write(const Params& p, cudaStream_t stream) {
  const size_t size = TypeSize(p.type), each = p.blocks * p.block * p.key_heads * size;
  if (cudaError_t e = CopyPools(
          {{p.key_cache_out, p.key_cache, each * p.width}, {p.value_cache_out, p.value_cache, each * p.value_width}},
          stream)) {
    return e;
  }
  if (p.tokens == 0 || p.key_heads == 0 || p.sequences == 0 || p.concurrent) return cudaSuccess;
  const bool pieces = p.width * size % 16 == 0 && p.value_width * size % 16 == 0 &&
                      AllAligned(16, p.k, p.v, p.key_cache_out, p.value_cache_out);
  if (pieces) return Run<uint4>(p, stream);
  return size == 4 ? Run<float>(p, stream) : Run<uint16_t>(p, stream);
}

// ChooseSplits chooses AttendFew's grid if so many blocks are beside each other in a multiprocessor. The time is that
// of the nodes that blocks add one after the other, and one more node to begin and end.
void ChooseSplits(Params* p, size_t tiles, int beside) {
  const auto waves = [&](int splits, int bits) {
    const size_t fit = TheDevice().beside[beside][bits];
    return fit == 0 ? SIZE_MAX : std::max<size_t>(1, DivideUp(tiles * splits, fit));
  };
  size_t least = SIZE_MAX;
  for (int splits = 1; splits == 1 || splits < 2 * p->most_nodes; splits += std::min(splits, kMostCluster)) {
    const size_t time = waves(splits, 0) * (DivideUp(p->most_nodes, splits) + 1);
    if (time < least) p->splits = splits, least = time;
  }
  int bits = kMostClusterBits;
  while (bits > 0 && (1 << bits > p->splits || waves(p->splits, bits) > waves(p->splits, 0))) --bits;
  p->cluster = 1 << bits;
  p->beside = beside;
}

// DivideFew chooses the grid for sequences of the average number of tokens, whose rows may be longer, and of as many
// keys as the table has room for. If the grid is small and warps have few keys, three blocks beside each other are
// faster than two with deeper rings.
void DivideFew(Params* p, bool codes) {
  const size_t tokens = std::min<size_t>(p->few, DivideUp(p->tokens, p->sequences)), keys = p->columns * p->block;
  p->row_tiles = std::max(1, static_cast<int>(DivideUp(tokens * p->group, kTileRows)));
  p->slices = static_cast<int>(DivideUp(p->value_width, p->width <= 64 && p->value_width <= 64 ? 64 : 128));
  p->most_nodes = MostNodes(keys);
  const size_t tiles = p->sequences * p->key_heads * p->row_tiles * p->slices;
  if (MostBeside(codes, p->width) == 3 && TheDevice().shared_bytes >= 3 * kFewBytes) {
    ChooseSplits(p, tiles, 3);
    const bool is_small = tiles * p->splits <= 2 * static_cast<size_t>(TheDevice().beside[3][0]);
    if (is_small && DivideUp(p->most_nodes, p->splits) * LeafOf(static_cast<int>(keys)) <= kFewKeys) return;
  }
  ChooseSplits(p, tiles, 2);
}

}  // namespace

cudaError_t CopyPools(std::initializer_list<Copied> pools, cudaStream_t stream) {
  for (const Copied& pool : pools) {
    if (pool.to == pool.from || pool.bytes == 0) continue;
    if (cudaError_t e = cudaMemcpyAsync(pool.to, pool.from, pool.bytes, cudaMemcpyDeviceToDevice, stream)) return e;
  }
  return cudaSuccess;
}

cudaError_t Attend(const Params& p, Attends* mma, Attends* any, cudaStream_t stream) {
  if (p.tokens == 0 || p.heads == 0 || p.value_width == 0) return cudaSuccess;
  if (p.sequences == 0 || p.columns * p.block == 0 || p.blocks == 0) {
    return cudaMemsetAsync(p.y, 0, p.tokens * p.heads * p.value_width * TypeSize(p.type), stream);
  }
  return (MmaTakes(p) ? mma : any)(p, stream);
}

Params Prepare(const MojoQPagedAttentionArgs& a, bool codes, Room<256>* room) {
  Params p{};
  static_cast<MojoQPagedAttentionArgs&>(p) = a;
  p.group = static_cast<int>(a.key_heads > 0 ? a.heads / a.key_heads : 0);
  p.window = std::min<int64_t>(a.window, INT32_MAX);
  p.by_group = p.group > 0 ? (65535 + p.group) / p.group : 0;
  p.by_block = Divisor(a.block), p.by_key_heads = Divisor(a.key_heads);
  p.by_pieces = Divisor((a.width + a.value_width) / 8);
  if (p.group == 0 || !MmaTakes(a) || a.sequences == 0 || a.columns * a.block == 0) return p;
  p.few = kFewRows / p.group;
  if (p.few == 0) return p;
  const bool pieces = codes ? a.width % 16 == 0 && a.value_width % 16 == 0 : AllAligned(16, a.k, a.v);
  p.concurrent = pieces && a.blocks > 0 && a.value_width > 0 && a.tokens <= kMostNew && a.sequences <= kMostNew;
  DivideFew(&p, codes);
  p.by_row_tiles = Divisor(p.row_tiles);
  if (p.splits == 1) return p;  // results are written directly
  p.packed = a.tokens <= a.sequences * p.few;
  const size_t rows = (p.packed ? a.tokens : a.sequences * p.few) * a.heads * p.most_nodes;
  p.finished = room->Take<unsigned long long>(a.sequences * a.key_heads * kMostTiles * p.slices);
  p.part = room->Take<float>(rows * a.value_width);
  p.state = room->Take<float2>(rows * p.slices);
  return p;
}

}  // namespace paged
}  // namespace mojo

using namespace mojo;

size_t MojoPagedAttentionScratch(const MojoPagedAttentionArgs* args) {
  Room<256> room;
  MojoQPagedAttentionArgs all;
  static_cast<MojoPagedAttentionArgs&>(all) = *args;
  paged::Prepare(all, false, &room);
  return room.used;
}

cudaError_t MojoCudaPagedAttention(const MojoPagedAttentionArgs* args, cudaStream_t stream) {
  MojoQPagedAttentionArgs a;
  static_cast<MojoPagedAttentionArgs&>(a) = *args;
  if (paged::IsTooLarge(a)) return cudaErrorInvalidValue;
  Room<256> room{static_cast<char*>(a.scratch)};
  const paged::Params p = paged::Prepare(a, false, &room);
  if (cudaError_t e = paged::Write(p, stream)) return e;
  return paged::Attend(p, paged::AttendMma, paged::AttendAny, stream);
}
