// Attention of many rows of 16 bit numbers, on any device with mma.sync for them (compute capability 8.0): the
// algorithm of Dao, "FlashAttention-2", 2023.
//
// A block has 64 rows of a pair, 16 to a warp, and up to kValues channels of their values; it goes over the keys that
// the rows see 64 at a time, with the online softmax. Values are copied while keys are multiplied, and the next keys
// while values are. The floor is rows * keys seen * (width + value_width) multiply-adds on the tensor cores.
#include "attention/cuda/attention.cuh"
#include "attention/cuda/attention_mma.cuh"

namespace mojo {
namespace {

constexpr int kThreads = 128;
constexpr int kTile = 64;

// Fill starts the copy of kTile rows, with zeros for rows that are null and past the last channel.
template <int kWidth, class Row>
__device__ __forceinline__ void Fill(uint32_t to, int channels, const Row& row) {
  constexpr int kPieces = kWidth / 8;
  const int piece = threadIdx.x % kPieces;
#pragma unroll 4
  for (int r = threadIdx.x / kPieces; r < kTile; r += kThreads / kPieces) {
    const auto* const from = row(r);
    const bool is = from != nullptr && piece * 8 < channels;
    Copy(to + Piece<kWidth>(r, piece), is ? from + piece * 8 : nullptr, is);
  }
}

// AttendTile. Registers: 224, and 250 on compute capability 10.0. Shared memory: 24, 48 and 80 KB for widths of 64, 128
// and 256.
template <class T, int kWidth, int kValues>
__global__ __launch_bounds__(kThreads, 2) void AttendTile(const __grid_constant__ MojoAttentionArgs a, int tiles,
                                                          int pairs) {
  extern __shared__ __align__(128) char memory[];
  WaitForPrevious();
  LetNextStart();
  // The last rows, which see the most keys, come first.
  const int first_row = (tiles - 1 - static_cast<int>(blockIdx.x) / pairs) * kTile, channel = blockIdx.y * kValues;
  const Pair p(a, blockIdx.x % pairs);
  const Keys<T> keys = KeysOf<T>(a, p), values = ValuesOf<T>(a, p);
  const int rows = static_cast<int>(a.queries) * p.group, last_row = min(rows, first_row + kTile) - 1;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16, width = static_cast<int>(a.width);
  const int value_width = static_cast<int>(a.value_width) - channel;
  const uint32_t q_at = SharedAddress(memory), k_at = q_at + kTile * kWidth * 2, v_at = k_at + kTile * kWidth * 2;
  const auto fill_keys = [&](int key) {
    Fill<kWidth>(k_at, width, [&](int r) { return key + r < p.length ? keys.Row(key + r) : nullptr; });
  };
  Fill<kWidth>(q_at, width, [&](int r) {
    const int row = first_row + r;
    return row < rows ? static_cast<const T*>(a.q) + p.At(a, a.q_steps, row) : nullptr;
  });
  // This thread's two rows.
  Span seen[2];
  const float* bias[2];
  float most[2], sum[2], total[kValues / 8][4] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + warp_row + lane / 4 + i * 8;
    const bool is = row < rows;
    seen[i] = is ? Seen(a, p, row / p.group) : Span{0, 0};
    bias[i] = a.bias != nullptr && is ? BiasOf(a, p, row) : nullptr;
    most[i] = -INFINITY;
    sum[i] = 0;
    if (is) AddSink(a, p.HeadOf(a, row), &most[i], &sum[i]);
    if (lane % 4 != 0) sum[i] = 0;
  }
  const bool plain = a.softcap == 0 && a.bias == nullptr;
  Span span{Seen(a, p, first_row / p.group).begin, Seen(a, p, last_row / p.group).end};
  // Runs again, with mean, for rows that saw no key: every key weighs 1 in them and 0 in others.
  for (bool mean = false;; mean = true, span = Span{0, p.length}) {
    int key = span.begin / kTile * kTile;
    if (key < span.end) fill_keys(key);
    EndGroup();
    for (; key < span.end; key += kTile) {
      Fill<kValues>(v_at, value_width,
                    [&](int r) { return key + r < p.length ? values.Row(key + r) + channel : nullptr; });
      EndGroup();
      WaitForGroups<1>();
      __syncthreads();
      float score[kTile / 8][4] = {};
      AddScores<T, kWidth, kTile>(score, lane, q_at, warp_row, k_at);
      __syncthreads();
      if (key + kTile < span.end) fill_keys(key + kTile);
      EndGroup();
      const int first = key + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool whole = a.key_valid == nullptr && seen[i].begin <= key && seen[i].end >= key + kTile;
        float greatest = most[i];
#pragma unroll
        for (int c = 0; c < kTile / 4; ++c) {
          float& s = score[c / 2][i * 2 + c % 2];
          const int at = first + c / 2 * 8 + c % 2;
          const bool is = whole || (seen[i].Has(at) && Valid(a, p, at));
          if (plain) {
            s *= a.scale * kLog2E;
          } else if (is) {
            s = Score<T>(a, s, bias[i] == nullptr ? 0 : BiasAt(a, bias[i], at));
          }
          if (!is) s = -INFINITY;
          greatest = fmaxf(greatest, s);
        }
        greatest = mean ? most[i] : GroupMax(greatest, 4);
        const float base = Finite(greatest), by = mean ? 1 : PowerOfTwo(most[i] - base);
        float added = 0;
#pragma unroll
        for (int c = 0; c < kTile / 4; ++c) {
          float& s = score[c / 2][i * 2 + c % 2];
          s = PowerOfTwo(s - base);
          if (mean) s = greatest == -INFINITY && first + c / 2 * 8 + c % 2 < p.length;
          added += s;
        }
        most[i] = greatest;
        sum[i] = sum[i] * by + added;
#pragma unroll
        for (int c = 0; c < kValues / 8; ++c) {
          total[c][i * 2] *= by;
          total[c][i * 2 + 1] *= by;
        }
      }
      WaitForGroups<1>();
      __syncthreads();
      AddValues<T, kTile, kValues>(total, score, lane, v_at);
      __syncthreads();
    }
    bool none = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] = GroupSum(sum[i], 4);
      none = none || (sum[i] == 0 && first_row + warp_row + lane / 4 + i * 8 < rows);
    }
    if (mean || !a.empty_mean || !__syncthreads_or(none)) break;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (lane % 4 != 0) sum[i] = 0;
    }
  }
  WaitForGroups<0>();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + warp_row + lane / 4 + i * 8;
    if (row >= rows) break;
    T* const y = static_cast<T*>(a.y) + p.At(a, a.y_steps, row) + channel;
    const float by = sum[i] == 0 ? 0 : 1 / sum[i];
#pragma unroll
    for (int c = 0; c < kValues / 8; ++c) {
      const int to = c * 8 + lane % 4 * 2;
      if (to >= value_width) break;
      *reinterpret_cast<Two<T>*>(y + to) = FromFloats<T>(total[c][i * 2] * by, total[c][i * 2 + 1] * by);
    }
  }
}

template <class T, int kWidth, int kValues>
cudaError_t Run(const MojoAttentionArgs& a, cudaStream_t stream) {
  constexpr int kBytes = kTile * (2 * kWidth + kValues) * 2;
  const auto kernel = AttendTile<T, kWidth, kValues>;
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes)) return e;
  const int tiles = static_cast<int>(DivideUp(RowsOf(a), kTile)), pairs = static_cast<int>(PairsOf(a));
  const dim3 grid(static_cast<unsigned>(static_cast<size_t>(tiles) * pairs),
                  static_cast<unsigned>(DivideUp(a.value_width, kValues)));
  return Launch(kernel, grid, kThreads, kBytes, stream, a, tiles, pairs);
}

template <class T>
cudaError_t Run(const MojoAttentionArgs& a, cudaStream_t stream) {
  if (a.width <= 64 && a.value_width <= 64) return Run<T, 64, 64>(a, stream);
  return a.width <= 128 ? Run<T, 128, 128>(a, stream) : Run<T, 256, 128>(a, stream);
}

}  // namespace

bool AttentionMmaTakes(const MojoAttentionArgs& a) { return a.type != kMojoFloat32 && Pieces(a) && a.width <= 256; }

cudaError_t AttentionMma(const MojoAttentionArgs& a, cudaStream_t stream) {
  return a.type == kMojoFloat16 ? Run<Half>(a, stream) : Run<BFloat>(a, stream);
}

}  // namespace mojo
