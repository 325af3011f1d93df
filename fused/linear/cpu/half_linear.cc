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
  FromPanelFn store_panel = nullptr;
  const BFloatFns* bfloat = nullptr;  // null: X is not rounded
  size_t lanes = 0, panels = 0;
  size_t depth = 0;             // numbers of a row of x: k or, if rounded, its pairs
  size_t x_first = 0;           // row of x
  float* x = nullptr;           // [rows, depth], without rows of 16 bits that go into panels
  float* x_panels = nullptr;    // [panels, depth, lanes]
  const float* bias = nullptr;  // may be null
  size_t first = 0;             // row of products
  float* products = nullptr;    // [rows, n], of rows in no panel; y itself, all rows, if it is float32
  size_t groups = 0;            // of outputs
  size_t unit = 0;              // outputs that are not cut
};

// Convert writes the rows of x from begin to end - 1 as float32, or rounds them.
void Convert(const Go& go, size_t begin, size_t end) {
  const size_t k = go.tensors.k;
  if (go.bfloat != nullptr) {
    for (size_t i = begin; i < end; ++i) {
      go.bfloat->round(go.type, At(go.tensors.x, i * k, go.type), go.x + i * go.depth, k);
    }
    return;
  }
  const void* const x = At(go.tensors.x, (go.x_first + begin) * k, go.type);
  TheKernels()->to_float32(go.type, x, go.x + begin * k, (end - begin) * k);
}

// FillPanels makes the panels from begin to end - 1. Empty lanes hold the last row again.
void FillPanels(const Go& go, size_t begin, size_t end) {
  const size_t depth = go.depth, last = go.tensors.rows - 1;
  constexpr size_t kMost = 256, kApart = kMost + 16;  // numbers of a row that are widened in the first-level cache
  alignas(64) float wide[kMostLanes * kApart];
  const bool widens = go.x_first > 0;
  const size_t most = widens ? kMost : depth;
  for (size_t p = begin; p < end; ++p) {
    for (size_t at = 0; at < depth; at += most) {
      const size_t n = std::min(most, depth - at);
      const float* rows[kMostLanes];
      for (size_t lane = 0; lane < go.lanes; ++lane) {
        const size_t from = std::min(p * go.lanes + lane, last) * depth + at;
        rows[lane] = widens ? wide + lane * kApart : go.x + from;
        if (widens) TheKernels()->to_float32(go.type, At(go.tensors.x, from, go.type), wide + lane * kApart, n);
      }
      TheKernels()->to_panel(rows, go.x_panels + (p * depth + at) * go.lanes, n);
    }
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
  const float* const bias = go.bias == nullptr ? nullptr : go.bias + outputs.first;
  alignas(64) float products[kRows * kPanelOutputs], nobody[kPanelOutputs];
  for (size_t done = 0; done < outputs.count; done += go.unit) {
    const size_t width = std::min(go.unit, outputs.count - done);
    const char* const w = outputs.w + done * row;
    const bool last = outputs.first + done + width == n;
    const char* const next = last ? static_cast<const char*>(go.tensors.w) : w + width * row;
    go.product_of_panels({w, k, nullptr, go.x_panels + panel * go.depth * go.lanes, panels, k, width, products, next});
    for (size_t p = 0; p < panels; ++p) {
      void* rows[kMostLanes];
      for (size_t lane = 0; lane < go.lanes; ++lane) {
        const size_t i = (panel + p) * go.lanes + lane;
        char* const y = static_cast<char*>(go.tensors.y) + (i * n + outputs.first + done) * SizeOf(go.type);
        rows[lane] = i < go.tensors.rows ? static_cast<void*>(y) : nobody;
      }
      go.store_panel(products + p * width * go.lanes, bias == nullptr ? nullptr : bias + done, rows, width);
    }
  }
}

// MultiplyRows computes the outputs for the rows from begin to end - 1.
void MultiplyRows(const Go& go, const Outputs& outputs, size_t begin, size_t end) {
  const HalfLinearTensors& t = go.tensors;
  const float* x[kRows];
  for (size_t i = begin; i < end; ++i) x[i - begin] = go.x + (i - go.x_first) * go.depth;
  go.product({outputs.w, go.by_rows ? t.k : t.n, go.by_rows, x, end - begin, t.k, outputs.count,
              go.products + (begin - go.first) * t.n + outputs.first, t.n});
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
  size_t begin = task / go.groups * kRows;
  const size_t end = std::min(begin + kRows, t.rows);
  if (t.k == 0) {
    for (size_t i = begin; i < end; ++i) {
      std::fill_n(go.products + (i - go.first) * t.n + outputs.first, outputs.count, 0.0f);
    }
  } else {
    const size_t first = go.lanes == 0 ? 0 : std::min(begin / go.lanes, go.panels);
    const size_t panels = go.lanes == 0 ? 0 : std::min(kRows / go.lanes, go.panels - first);
    if (panels > 0) MultiplyPanels(go, outputs, first, panels);
    begin += panels * go.lanes;
    if (begin < end) MultiplyRows(go, outputs, begin, end);
  }
  if (go.type == kFloat32 && go.bias == nullptr) return;
  constexpr float kOnes[2] = {1, 1};
  for (size_t i = begin; i < end; ++i) {
    const size_t at = i * t.n + outputs.first;
    const float* const product = go.products + at - go.first * t.n;
    const float* const terms[2] = {product, go.bias == nullptr ? nullptr : go.bias + outputs.first};
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
    go.store_panel = kernels.from_panel(x);
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
    if (narrow) go.first = std::min(go.panels * go.lanes, t.rows);
    if (go.bfloat == nullptr) go.x_first = go.first;
    float* bias = nullptr;
    const auto plan = [&](HostRoom* room) {
      go.x_panels = room->Take<float>(go.panels * go.depth * go.lanes);
      if (converts) go.x = room->Take<float>((t.rows - go.x_first) * go.depth);
      if (!narrow) return;
      go.products = room->Take<float>((t.rows - go.first) * t.n);
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
    if (converts && t.k > 0 && t.rows > go.x_first) {
      if (OrtStatus* s = RunInTasks(api, context, Convert, go, t.rows - go.x_first, t.k)) return s;
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
