#include "qmoe/cpu/qmoe_tasks.h"

#include <string.h>

#include <algorithm>

#include "cpu/backends.h"

namespace mojo {
namespace {

// Multiply computes some rows of a run, from number first on, times panels: y has as many columns as those rows.
void Multiply(const QMoEGo& go, const QuantizedWeights& panels, const float* bias, const char* x, size_t first,
              size_t count, size_t rows, float* y) {
  MultiplyArgs m{};
  m.weights = &panels;
  m.activations = go.args.activations;
  m.x = x + first * TheLinear()->row_bytes(panels, m.activations);
  m.rows = count - first;
  m.end_row = rows;
  m.end_panel = panels.n / kPanel;
  m.bias = bias;
  m.y = y;
  m.type = kFloat32;
  TheLinear()->multiply(m);
}

const float* Forward(const float* bias, size_t by) { return bias == nullptr ? nullptr : bias + by; }

}  // namespace

void GatherTokens(const QMoEGo& go, size_t begin, size_t end) {
  const QMoEArgs& a = go.args;
  const size_t row = a.hidden * SizeOf(a.x_type);
  for (size_t r = begin; r < (go.alone ? std::min<size_t>(end, 1) : end); ++r) {
    const ExpertRun& run = go.run[r];
    const auto token = [&](size_t m) {
      return static_cast<const char*>(a.x) + (go.first_token + go.choice[run.first + m] / a.top_k) * row;
    };
    char* to = go.x + run.first * go.x_bytes;
    if (a.activations == Activations::kFloat) {
      for (size_t m = 0; m < run.count; ++m) {
        TheKernels()->to_float32(a.x_type, token(m), reinterpret_cast<float*>(to + m * go.x_bytes), a.hidden);
      }
      continue;
    }
    const char* rows = token(0);
    if (run.count > 1) {
      char* gathered = reinterpret_cast<char*>(go.outputs + run.first * a.hidden);
      for (size_t m = 0; m < run.count; ++m) memcpy(gathered + m * row, token(m), row);
      rows = gathered;
    }
    TheLinear()->quantize({rows, a.x_type, a.activations, &a.gate_up, run.count, to}, 0, run.count);
  }
}

void ActivateBlock(void* state, size_t task) {
  const QMoEGo& go = *static_cast<const QMoEGo*>(state);
  const QMoEArgs& a = go.args;
  const size_t blocks = a.inner / kInnerBlock, first = task % blocks * kInnerBlock;
  const ExpertRun& run = go.run[task / blocks];
  const char* x = go.x + (go.alone ? 0 : run.first) * go.x_bytes;
  const size_t panel = run.expert * (a.gate_up.n / kPanel), width = a.interleaved ? 2 * kInnerBlock : kInnerBlock;
  const size_t gate = a.interleaved ? 2 * first : first;
  const float* bias = Forward(a.gate_up_bias, run.expert * a.gate_up.n);
  const QuantizedWeights gates = PanelsOf(a.gate_up, panel + gate / kPanel, width / kPanel);
  const QuantizedWeights ups = PanelsOf(a.gate_up, panel + (a.inner + first) / kPanel, kInnerBlock / kPanel);
  float products[kLinearRows * 2 * kInnerBlock], halves[kLinearRows * 2 * kInnerBlock];
  if (!a.gated) std::fill_n(halves + kLinearRows * kInnerBlock, kLinearRows * kInnerBlock, 1.0f);
  for (size_t done = 0; done < run.count; done += kLinearRows) {
    const size_t rows = std::min(kLinearRows, run.count - done), n = rows * kInnerBlock;
    const float *g = products, *u = halves + kLinearRows * kInnerBlock;
    Multiply(go, gates, Forward(bias, gate), x, done, run.count, rows, products);
    if (a.interleaved) {
      for (size_t i = 0; i < n; ++i) {
        halves[i] = products[2 * i];
        halves[kLinearRows * kInnerBlock + i] = products[2 * i + 1];
      }
      g = halves;
    } else if (a.gated) {
      Multiply(go, ups, Forward(bias, a.inner + first), x, done, run.count, rows, products + n);
      u = products + n;
    }
    float activated[kLinearRows * kInnerBlock];
    go.gate({g, u, activated, a.alpha, a.limit, a.up_offset}, 0, n);
    for (size_t m = 0; m < rows; ++m) {
      memcpy(go.activated + (run.first + done + m) * a.inner + first, activated + m * kInnerBlock,
             kInnerBlock * sizeof(float));
    }
  }
}

void RoundActivated(const QMoEGo& go, size_t begin, size_t end) {
  const QMoEArgs& a = go.args;
  for (size_t r = begin; r < end; ++r) {
    const ExpertRun& run = go.run[r];
    TheLinear()->quantize({go.activated + run.first * a.inner, kFloat32, a.activations, &a.down, run.count,
                           go.tiles + run.first * go.tile_bytes},
                          0, run.count);
  }
}

void ProjectPanels(void* state, size_t task) {
  const QMoEGo& go = *static_cast<const QMoEGo*>(state);
  const QMoEArgs& a = go.args;
  const size_t panels = a.hidden / kPanel, groups = (panels + kDownPanels - 1) / kDownPanels;
  const ExpertRun& run = go.run[task / groups];
  const size_t first = task % groups * kDownPanels, count = std::min(kDownPanels, panels - first);
  const QuantizedWeights weights = PanelsOf(a.down, run.expert * panels + first, count);
  const float* bias = Forward(a.down_bias, run.expert * a.hidden + first * kPanel);
  float products[kLinearRows * kDownPanels * kPanel];
  for (size_t done = 0; done < run.count; done += kLinearRows) {
    const size_t rows = std::min(kLinearRows, run.count - done);
    Multiply(go, weights, bias, go.tiles + run.first * go.tile_bytes, done, run.count, rows, products);
    for (size_t m = 0; m < rows; ++m) {
      memcpy(go.outputs + (run.first + done + m) * a.hidden + first * kPanel, products + m * weights.n,
             weights.n * sizeof(float));
    }
  }
}

}  // namespace mojo
