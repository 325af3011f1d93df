// HalfLinear on the CPU. Weights are read in place, by the loops that MoE uses for an expert. For few rows, the loops
// widen weights in registers, at the speed of the memory. For many rows, they widen them once, by blocks that stay in
// the cache. As in MoE, many rows are in panels if the weights of an output lie side by side. If MOJO_CPU_PRODUCTS says
// so, rows of X are rounded to bfloat16, and the processor multiplies it.
#include <algorithm>

#include "cpu/backends.h"
#include "cpu/isa.h"
#include "cpu/scratch.h"
#include "moe/cpu/moe_plan.h"

namespace mojo {
namespace {

// HalfLinearTensors are the tensors of one run.
struct HalfLinearTensors {
  const void *x, *w, *bias;  // bias may be null
  void* y;
  size_t rows, n, k;
};

// Rows that a task takes through all its weights.
constexpr size_t kRows = 128;

// A unit of outputs, which is not cut: the sums of many rows must stay in the cache. Few rows read an input's adjacent
// weights for kFewColumns outputs or more, unless that leaves one task.
constexpr size_t kFewRows = 6;
constexpr size_t kFewColumns = 384;
constexpr size_t kColumns = 128;
constexpr size_t kPanelOutputs = 48;
constexpr size_t kTileOutputs = 32;

// Go is the shared state of one run's tasks: each multiplies some rows of X with some outputs' weights.
struct Go {
  const HalfLinearTensors& tensors;
  ElementType type;  // of X
  bool by_rows;      // weights
  ProductFn product = nullptr;
  PanelFn product_of_panels = nullptr;
  WeightedSumFn store = nullptr;
  const BFloatFns* bfloat = nullptr;  // null: X is not rounded
  size_t lanes = 0, panels = 0;
  size_t depth = 0;             // numbers of a row of x: k or, if rounded, its pairs
  float* x = nullptr;           // [rows, depth]
  float* x_panels = nullptr;    // [panels, depth, lanes]
  const float* bias = nullptr;  // may be null
  float* products = nullptr;    // [rows, n]; y itself if it is float32
  size_t groups = 0;            // of outputs
  size_t unit = 0;              // outputs that are not cut
};

// Convert writes the rows of X from begin to end - 1 as float32, or rounds them.
void Convert(const Go& go, size_t begin, size_t end) {
  const size_t k = go.tensors.k;
  if (go.bfloat != nullptr) {
    for (size_t i = begin; i < end; ++i) {
      go.bfloat->round(go.type, At(go.tensors.x, i * k, go.type), go.x + i * go.depth, k);
    }
    return;
  }
  TheKernels()->to_float32(go.type, At(go.tensors.x, begin * k, go.type), go.x + begin * k, (end - begin) * k);
}

// FillPanels makes the panels from begin to end - 1. Empty lanes hold the last row again.
void FillPanels(const Go& go, size_t begin, size_t end) {
  const size_t depth = go.depth, last = go.tensors.rows - 1;
  for (size_t p = begin; p < end; ++p) {
    const float* rows[kMostLanes];
    for (size_t lane = 0; lane < go.lanes; ++lane) rows[lane] = go.x + std::min(p * go.lanes + lane, last) * depth;
    TheKernels()->to_panel(rows, go.x_panels + p * depth * go.lanes, depth);
  }
}

// Outputs are the weights of a task: of count outputs, from number first on.
struct Outputs {
  const char* w;
  size_t first, count;
};

// MultiplyPanels computes the outputs for the panels from number panel on.
void MultiplyPanels(const Go& go, const Outputs& outputs, size_t panel, size_t panels) {
  const size_t n = go.tensors.n, k = go.tensors.k, row = k * 2;
  alignas(64) float products[kRows * kPanelOutputs], nobody[kPanelOutputs];
  for (size_t done = 0; done < outputs.count; done += go.unit) {
    const size_t width = std::min(go.unit, outputs.count - done);
    const char* const w = outputs.w + done * row;
    const char* const next = done + width < outputs.count ? w + width * row : w;
    go.product_of_panels({w, k, nullptr, go.x_panels + panel * go.depth * go.lanes, panels, k, width, products, next});
    for (size_t p = 0; p < panels; ++p) {
      float* rows[kMostLanes];
      for (size_t lane = 0; lane < go.lanes; ++lane) {
        const size_t i = (panel + p) * go.lanes + lane;
        rows[lane] = i < go.tensors.rows ? go.products + i * n + outputs.first + done : nobody;
      }
      TheKernels()->from_panel(products + p * width * go.lanes, rows, width);
    }
  }
}

// MultiplyRows computes the outputs for the rows from begin to end - 1.
void MultiplyRows(const Go& go, const Outputs& outputs, size_t begin, size_t end) {
  const HalfLinearTensors& t = go.tensors;
  const float* x[kRows];
  for (size_t i = begin; i < end; ++i) x[i - begin] = go.x + i * go.depth;
  go.product({outputs.w, go.by_rows ? t.k : t.n, go.by_rows, x, end - begin, t.k, outputs.count,
              go.products + begin * t.n + outputs.first, t.n});
}

// Multiply is one task. state is a Go.
void Multiply(void* state, size_t task) {
  const Go& go = *static_cast<const Go*>(state);
  const HalfLinearTensors& t = go.tensors;
  const size_t units = (t.n + go.unit - 1) / go.unit, group = task % go.groups;
  Outputs outputs{};
  outputs.first = units * group / go.groups * go.unit;
  outputs.count = std::min(units * (group + 1) / go.groups * go.unit, t.n) - outputs.first;
  outputs.w = static_cast<const char*>(t.w) + outputs.first * (go.by_rows ? t.k : 1) * 2;
  const size_t begin = task / go.groups * kRows, end = std::min(begin + kRows, t.rows);
  if (t.k == 0) {
    for (size_t i = begin; i < end; ++i) std::fill_n(go.products + i * t.n + outputs.first, outputs.count, 0.0f);
  } else {
    const size_t first = go.lanes == 0 ? 0 : std::min(begin / go.lanes, go.panels);
    const size_t panels = go.lanes == 0 ? 0 : std::min(kRows / go.lanes, go.panels - first);
    if (panels > 0) MultiplyPanels(go, outputs, first, panels);
    const size_t rest = begin + panels * go.lanes;
    if (rest < end) MultiplyRows(go, outputs, rest, end);
  }
  if (go.type == kFloat32 && go.bias == nullptr) return;
  constexpr float kOnes[2] = {1, 1};
  for (size_t i = begin; i < end; ++i) {
    const size_t at = i * t.n + outputs.first;
    const float* const terms[2] = {go.products + at, go.bias == nullptr ? nullptr : go.bias + outputs.first};
    char* const y = static_cast<char*>(t.y) + at * SizeOf(go.type);
    go.store({terms, kOnes, go.bias == nullptr ? size_t{1} : size_t{2}, outputs.count, y});
  }
}

// HalfLinearKernel is the state of one node.
struct HalfLinearKernel : ScratchNode<HalfLinearAttributes> {
  bool streams = false;  // few rows of X read weights by rows as one stream
  const BFloatFns* bfloat = nullptr;

  OrtStatus* Init(const KernelInit& init) {
    streams = StreamsRows(*TheKernels());
    if (OrtStatus* s = BFloatProducts(init, &bfloat)) return s;
    return ScratchNode::Init(init);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    const KernelTable& kernels = *TheKernels();
    HalfLinearCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    HalfLinearTensors t{call.data[kHalfLinearX],
                        call.data[kHalfLinearW],
                        call.data[kHalfLinearBias],
                        nullptr,
                        call.sizes.A,
                        call.sizes.N,
                        call.sizes.K};
    if (OrtStatus* s = call.Make(0, &t.y)) return s;
    if (t.rows == 0 || t.n == 0) return nullptr;
    const ElementType x = Input(kHalfLinearX), weights = Input(kHalfLinearW);
    const bool narrow = x != kFloat32, by_rows = attributes.layout == Layout::kOutIn;
    Go go{t, x, by_rows};
    go.product = streams ? kernels.product_of_few(weights) : kernels.product(weights);
    go.product_of_panels = kernels.panels(weights);
    go.store = kernels.weighted_sum(x);
    go.lanes = by_rows ? kernels.lanes : 0;
    go.depth = t.k;
    if (bfloat != nullptr && weights == kBFloat16) {
      go.bfloat = bfloat;
      go.product = bfloat->product;
      go.product_of_panels = bfloat->panels;
      if (bfloat->panels == nullptr) go.lanes = 0;
      go.depth = (t.k + kPairStep - 1) / kPairStep * kPairStep / 2;
    }
    const bool converts = narrow || go.bfloat != nullptr;
    go.panels = t.k == 0 ? 0 : FullPanels(t.rows, go.lanes);
    float* bias = nullptr;
    const auto plan = [&](HostRoom* room) {
      go.x_panels = room->Take<float>(go.panels * go.depth * go.lanes);
      if (converts) go.x = room->Take<float>(t.rows * go.depth);
      if (!narrow) return;
      go.products = room->Take<float>(t.rows * t.n);
      if (t.bias != nullptr) bias = room->Take<float>(t.n);
    };
    HostScratch scratch;
    if (OrtStatus* s = scratch.Divide(api, context, memory, plan)) return s;
    go.bias = static_cast<const float*>(t.bias);
    if (!converts) go.x = static_cast<float*>(const_cast<void*>(t.x));
    if (!narrow) {
      go.products = static_cast<float*>(t.y);
    } else if (bias != nullptr) {
      kernels.to_float32(x, t.bias, bias, t.n);
      go.bias = bias;
    }
    if (converts && t.k > 0) {
      if (OrtStatus* s = RunInTasks(api, context, Convert, go, t.rows, t.k)) return s;
    }
    if (go.panels > 0) {
      if (OrtStatus* s = RunInTasks(api, context, FillPanels, go, go.panels, go.depth * go.lanes)) return s;
    }
    go.unit = !by_rows ? kColumns : go.panels == 0 ? 1 : go.bfloat != nullptr ? kTileOutputs : kPanelOutputs;
    go.groups = ProductGroups((t.n + go.unit - 1) / go.unit, std::min(t.rows, kRows) * t.n * t.k);
    if (!by_rows && t.rows <= kFewRows) {
      while (go.groups > 2 && t.n / go.groups < kFewColumns) go.groups /= 2;
    }
    return ParallelFor(api, context, Multiply, (t.rows + kRows - 1) / kRows * go.groups, &go);
  }
};

}  // namespace

const Backend kCPUHalfLinear = MakeBackend<HalfLinearKernel>(nullptr);

}  // namespace mojo
