// Linear and Embedding on the CPU. Linear rounds activations into tiles, then multiplies panels of weights, read in
// place, with them.
#include <algorithm>

#include "cpu/backends.h"
#include "cpu/scratch.h"
#include "linear/cpu/quantized_weights.h"

namespace mojo {
namespace {

// Go is the shared state of one run's tasks: each multiplies some rows with some panels.
struct Go {
  QuantizeArgs quantize;
  MultiplyArgs multiply;
  size_t row_groups, row_group;
  size_t panel_groups, panels;
};

// Prepare rounds or widens the groups of rows from begin to end - 1.
void Prepare(const Go& go, size_t begin, size_t end) {
  const QuantizeArgs& q = go.quantize;
  const size_t first = begin * kTileRows, last = std::min(end * kTileRows, q.rows), k = q.weights->k;
  if (q.activations != Activations::kFloat) return TheLinear()->quantize(q, first, last);
  TheKernels()->to_float32(q.type, At(q.x, first * k, q.type), reinterpret_cast<float*>(q.to) + first * k,
                           (last - first) * k);
}

// Multiply is one task. state is a Go.
void Multiply(void* state, size_t task) {
  const Go& go = *static_cast<const Go*>(state);
  MultiplyArgs args = go.multiply;
  const size_t group = task % go.panel_groups;
  args.first_row = task / go.panel_groups * go.row_group;
  args.end_row = std::min(args.first_row + go.row_group, args.rows);
  args.first_panel = go.panels * group / go.panel_groups;
  args.end_panel = go.panels * (group + 1) / go.panel_groups;
  TheLinear()->multiply(args);
}

// LinearKernel is the state of one node.
struct LinearKernel : ScratchNode<LinearForm> {
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    const ElementType type = Input(kLinearX);
    const Activations activations = attributes.activations;
    LinearCall call(api, context, attributes);
    QuantizedTensors tensors{};
    Go go{};
    MultiplyArgs& m = go.multiply;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = GetQuantized(call, PlaceFrom(kLinearCodes), attributes.matrix, &tensors)) return s;
    if (OrtStatus* s = call.Make(0, &m.y)) return s;
    if (call.sizes.A == 0) return nullptr;
    const void *const x = call.data[kLinearX], *const bias = call.data[kLinearBias];
    m.rows = call.sizes.A;
    const QuantizedWeights weights = ToWeights(attributes.matrix, tensors);
    m.weights = &weights;
    m.activations = activations;
    m.type = type;
    const bool as_it_is = activations == Activations::kFloat && type == kFloat32;
    const bool widens_bias = bias != nullptr && type != kFloat32;
    char* prepared = nullptr;
    float* wide_bias = nullptr;
    const auto plan = [&](HostRoom* room) {
      if (!as_it_is) prepared = room->Take<char>(m.rows * TheLinear()->row_bytes(weights, activations));
      if (widens_bias) wide_bias = room->Take<float>(weights.n);
    };
    HostScratch scratch;
    if (OrtStatus* s = scratch.Divide(api, context, memory, plan)) return s;
    m.x = as_it_is ? x : prepared;
    m.bias = widens_bias ? wide_bias : static_cast<const float*>(bias);
    if (widens_bias) TheKernels()->to_float32(type, bias, wide_bias, weights.n);
    if (!as_it_is) {
      go.quantize = {x, type, activations, &weights, m.rows, prepared};
      const size_t groups = (m.rows + kTileRows - 1) / kTileRows;
      if (OrtStatus* s = RunInTasks(api, context, Prepare, go, groups, kTileRows * weights.k)) return s;
    }
    go.panels = (weights.n + kPanel - 1) / kPanel;
    go.row_group = kLinearRows;
    go.row_groups = (m.rows + kLinearRows - 1) / kLinearRows;
    const size_t panel_products = std::min(m.rows, kLinearRows) * kPanel * weights.k;
    go.panel_groups = ProductGroups(go.panels, go.panels * panel_products);
    return ParallelFor(api, context, Multiply, go.row_groups * go.panel_groups, &go);
  }
};

// EmbeddingKernel is the state of one node.
struct EmbeddingKernel : NodeState<EmbeddingForm> {
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    EmbeddingCall call(api, context, attributes);
    QuantizedTensors tensors{};
    float* y;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = GetQuantized(call, PlaceFrom(kEmbeddingCodes), attributes.matrix, &tensors)) return s;
    if (OrtStatus* s = call.Make(0, &y)) return s;
    const QuantizedWeights w = ToWeights(attributes.matrix, tensors);
    const auto* const ids = call.Get<int64_t>(kEmbeddingIds);
    const int64_t n = attributes.n;
    const size_t count = call.sizes.A;
    for (size_t i = 0; i < count; ++i) {
      if (ids[i] < -n || ids[i] >= n) {
        return Errorf(api, "mojo.%s: element %zu of ids is %lld; it must be from %lld to %lld", kEmbedding.name, i,
                      static_cast<long long>(ids[i]), static_cast<long long>(-n), static_cast<long long>(n - 1));
      }
    }
    const auto decode = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        TheLinear()->decode(w, static_cast<size_t>(ids[i] < 0 ? ids[i] + n : ids[i]), y + i * w.k);
      }
    };
    return count == 0 ? nullptr : RunInTasks(api, context, decode, count, w.k);
  }
};

}  // namespace

const Backend kCPULinear = MakeBackend<LinearKernel>(nullptr);
const Backend kCPUEmbedding = MakeBackend<EmbeddingKernel>(nullptr);

}  // namespace mojo
