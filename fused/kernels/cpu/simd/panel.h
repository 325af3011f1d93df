// Products of the weights of one expert, by rows, with many tokens.
//
// A panel is as many tokens as a vector has lanes: each vector holds one input of them. A weight is multiplied with all
// lanes at once, so that nothing is added up across lanes, and the weights are read in their order, once.
#pragma once

#include <type_traits>
#include <utility>

#include "cpu/simd/kernels.h"
#include "cpu/simd/pairs.h"
#include "cpu/simd/vec.h"
#include "cpu/simd/widen.h"

namespace mojo {
namespace MOJO_ISA {

// Rows of a tile. It has a vector of sums for each row and panel, of two; they must fit into the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kPanelRows = 12;
#else
constexpr int kPanelRows = 6;
#endif

// Inputs that are worked off at a time: two panels of so many stay in the second-level cache, and rows of so many that
// are widened in the first-level cache. With 256 inputs, the sums that are loaded and stored again take 3 to 5 %.
constexpr size_t kPanelDepth = 576;

// 16-bit rows that are widened at a time, and the numbers from one to the next: they begin in different sets of the
// cache. A tile knows this distance when it is compiled, which is worth a tenth of its time.
constexpr size_t kPanelWideRows = 12;
using PanelWideStride = std::integral_constant<size_t, kPanelDepth + 16>;

// Transpose exchanges rows and columns of kLanes vectors: each round moves one bit of a number's row to its column.
MOJO_INLINE void Transpose(F32* v) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    F32 old[kLanes];
    __builtin_memcpy(old, v, sizeof(old));
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      v[2 * i] = LowPairs(old[i], old[i + kLanes / 2]);
      v[2 * i + 1] = HighPairs(old[i], old[i + kLanes / 2]);
    }
  }
}

// ToPanel makes a panel of as many tokens.
inline void ToPanel(const float* const* tokens, float* panel, size_t n) {
  size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    F32 v[kLanes];
#pragma GCC unroll 16
    for (int lane = 0; lane < kLanes; ++lane) v[lane] = Load(tokens[lane] + k);
    Transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) Store(panel + (k + i) * kLanes, v[i]);
  }
  for (; k < n; ++k) {
    for (int lane = 0; lane < kLanes; ++lane) panel[k * kLanes + lane] = tokens[lane][k];
  }
}

// FromPanel writes the numbers of a panel, each plus its bias, back to the tokens, which are T.
template <class T>
void FromPanel(const float* panel, const float* bias, void* const* tokens, size_t n) {
  size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    F32 v[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = Load(panel + (k + i) * kLanes);
    Transpose(v);
    const F32 more = bias == nullptr ? F32{} : Load(bias + k);
#pragma GCC unroll 16
    for (int lane = 0; lane < kLanes; ++lane) {
      Store(static_cast<T*>(tokens[lane]) + k, bias == nullptr ? v[lane] : v[lane] + more);
    }
  }
  float rest[kLanes];
  for (int lane = 0; k < n && lane < kLanes; ++lane) {
    for (size_t i = k; i < n; ++i) {
      const float v = panel[i * kLanes + lane];
      rest[i - k] = bias == nullptr ? v : v + bias[i];
    }
    Narrowed<T>(rest, static_cast<T*>(tokens[lane]) + k, n - k);
  }
}

inline FromPanelFn PickFromPanel(ElementType type) {
  return OfType(type, [](auto t) { return FromPanel<decltype(t)>; });
}

// Panels are the numbers of two panels, or one, as a tile multiplies with them.
struct Panels {
  const float* x;
  size_t x_apart;
  size_t depth;
  float* y;
  size_t y_apart;
  bool adds;  // to y, instead of writing it
};

// NextRows are the rows that follow a tile's: row bytes from one to the next, size bytes an input.
struct NextRows {
  const char* first;
  size_t row;
  size_t size;
};

// PanelTile multiplies kPanels panels with kRows rows, which are a size_t or a PanelWideStride apart. Meanwhile it
// prefetches as many inputs of the next rows.
template <int kRows, int kPanels, class Stride>
void PanelTile(const float* w, Stride stride, const Panels& panels, const NextRows& next) {
  const float* const x = panels.x;
  float* const y = panels.y;
  const size_t depth = panels.depth, x_apart = panels.x_apart, y_apart = panels.y_apart;
  F32 sum[kRows][kPanels] = {};  // from zero: y would make one long chain of additions
  const auto add = [&](size_t k) MOJO_LAMBDA {
    F32 panel[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) panel[p] = Load(x + p * x_apart + k * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32 weight = Set(w[r * stride + k]);
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) sum[r][p] = Fma(weight, panel[p], sum[r][p]);
    }
  };
  size_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    // A cache line holds 16 inputs or more: a quarter of the rows for every fourth of them.
    constexpr int kFetched = (kRows + 3) / 4;
    const char* line = next.first + k / 4 % 4 * kFetched * next.row + k * next.size;
#pragma GCC unroll 4
    for (int i = 0; i < kFetched; ++i) __builtin_prefetch(line + i * next.row, 0, 2);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) add(k + i);
  }
  for (; k < depth; ++k) add(k);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      float* to = y + p * y_apart + r * kLanes;
      Store(to, panels.adds ? Load(to) + sum[r][p] : sum[r][p]);
    }
  }
}

// PanelTiles is PanelTile over any number of rows, from the largest tile to the smallest.
template <int kRows, int kPanels, class Stride>
void PanelTiles(const float* w, Stride stride, size_t rows, Panels panels, NextRows next) {
  for (; rows >= kRows; rows -= kRows) {
    PanelTile<kRows, kPanels>(w, stride, panels, next);
    w += kRows * stride;
    panels.y += kRows * kLanes;
    next.first += kRows * next.row;
  }
  constexpr int kFewer = kRows > kPanelRows / 3 ? kRows - kPanelRows / 3 : 1;
  if constexpr (kRows > 1) PanelTiles<kFewer, kPanels>(w, stride, rows, panels, next);
}

// MultiplyPanels computes one product with panels.
template <class T>
void MultiplyPanels(const PanelArgs& args) {
  constexpr bool kWidens = sizeof(T) != sizeof(float);
  const T* w = static_cast<const T*>(args.w);
  const size_t x_apart = args.depth * kLanes, y_apart = args.width * kLanes;
  const size_t most = kWidens ? kPanelWideRows : args.width;
  alignas(64) float wide[kWidens ? kPanelWideRows * PanelWideStride::value : 1];
  const bool begun = args.bias != nullptr || args.depth == 0;
  for (size_t p = 0; begun && p < args.panels; ++p) {
    for (size_t n = 0; n < args.width; ++n) {
      Store(args.y + p * y_apart + n * kLanes, Set(args.bias == nullptr ? 0 : args.bias[n]));
    }
  }
  // Pieces of about one size: each prefetches as many inputs of the next piece.
  const size_t pieces = (args.depth + kPanelDepth - 1) / kPanelDepth;
  const size_t step = pieces == 0 ? 0 : ((args.depth + pieces - 1) / pieces + 15) / 16 * 16;
  for (size_t at = 0; at < args.depth; at += step) {
    const size_t depth = args.depth - at < step ? args.depth - at : step;
    for (size_t r = 0; r < args.width; r += most) {
      const size_t rows = args.width - r < most ? args.width - r : most;
      const T* stored = w + r * args.stride + at;
      const auto [read, stride] = [&] {
        if constexpr (kWidens) {
          constexpr PanelWideStride kStride{};
          for (size_t i = 0; i < rows; ++i) Widened<T>(stored + i * args.stride, wide + i * kStride, depth);
          return std::pair(static_cast<const float*>(wide), kStride);
        } else {
          return std::pair(stored, args.stride);
        }
      }();
      const T* next = stored + most * args.stride;
      if (r + rows == args.width) next = at + depth < args.depth ? w + at + depth : static_cast<const T*>(args.next);
      NextRows rows_after{reinterpret_cast<const char*>(next), args.stride * sizeof(T), sizeof(T)};
      for (size_t p = 0; p < args.panels; p += 2) {
        const Panels panels{args.x + p * x_apart + at * kLanes, x_apart, depth,
                            args.y + p * y_apart + r * kLanes,  y_apart, begun || at > 0};
        if (args.panels - p > 1) {
          PanelTiles<kPanelRows, 2>(read, stride, rows, panels, rows_after);
        } else {
          PanelTiles<kPanelRows, 1>(read, stride, rows, panels, rows_after);
        }
        rows_after.row = rows_after.size = 0;  // once is enough
      }
    }
  }
}

inline PanelFn PickPanels(ElementType type) {
  return OfType(type, [](auto t) { return MultiplyPanels<decltype(t)>; });
}

}  // namespace MOJO_ISA
}  // namespace mojo
