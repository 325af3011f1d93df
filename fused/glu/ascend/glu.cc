// GLU by CANN's activations and products. Its SwiGlu needs gate and up in one tensor, which only MoE has.
#include <math.h>

#include "ascend/backends.h"
#include "common/attributes.h"

namespace mojo {
namespace {

// Activate writes the activation of gate to y.
void Activate(Run* run, const GLUAttributes& attributes, const View& gate, const View& y) {
  const Cann& cann = TheCann();
  switch (attributes.activation) {
    case Activation::kGelu:
    case Activation::kGeluTanh:
      return run->Do(cann.GeluV2, run->Tensor(gate), attributes.activation == Activation::kGeluTanh ? 1 : 0,
                     run->Tensor(y));
    case Activation::kRelu: return run->Do(cann.Relu, run->Tensor(gate), run->Tensor(y));
    case Activation::kRelu2: {
      const View root = run->Memory(y.type, y.dims);
      run->Do(cann.Relu, run->Tensor(gate), run->Tensor(root));
      return run->Do(cann.Mul, run->Tensor(root), run->Tensor(root), run->Tensor(y));
    }
    default:
      if (attributes.alpha == 1) return run->Do(cann.Silu, run->Tensor(gate), run->Tensor(y));
      return run->Do(cann.Swish, run->Tensor(gate), run->Number(attributes.alpha), run->Tensor(y));
  }
}

// Clamped returns a tensor clamped to [least, greatest]. An infinite least is ignored.
View Clamped(Run* run, const View& from, float least, float greatest) {
  const View to = run->Memory(from.type, from.dims);
  run->Do(TheCann().Clamp, run->Tensor(from), isfinite(least) ? run->Number(least) : nullptr, run->Number(greatest),
          run->Tensor(to));
  return to;
}

struct GateKernel : Node<GLUAttributes> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = Node::Init(init)) return s;
    return FindGate(init, attributes);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    GLUCall call(api, context, attributes);
    void* y_data;
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = call.Make(0, &y_data)) return s;
    const Dims dims{static_cast<int64_t>(call.sizes.A)};
    if (dims.at[0] == 0) return nullptr;
    const aclDataType type = input(0);
    Run run(context, kGLU, memory);
    Gate(&run, attributes, View(call.data[kGLUGate], type, dims), View(call.data[kGLUUp], type, dims),
         View(y_data, type, dims));
    return run.Finish();
  }
};

}  // namespace

void Gate(Run* run, const GLUAttributes& attributes, const View& gate, const View& up, const View& y) {
  const Cann& cann = TheCann();
  const float limit = attributes.limit;
  const View g = limit > 0 ? Clamped(run, gate, -INFINITY, limit) : gate;
  if (up.data == nullptr) return Activate(run, attributes, g, y);
  const View activated = run->Memory(y.type, y.dims);
  Activate(run, attributes, g, activated);
  View u = limit > 0 ? Clamped(run, up, -limit, limit) : up;
  if (attributes.up_offset != 0) {
    const View moved = run->Memory(y.type, y.dims);
    run->Do(cann.Adds, run->Tensor(u), run->Number(attributes.up_offset), run->Number(1), run->Tensor(moved));
    u = moved;
  }
  run->Do(cann.Mul, run->Tensor(activated), run->Tensor(u), run->Tensor(y));
}

OrtStatus* FindGate(const KernelInit& init, const GLUAttributes& attributes) {
  Cann& cann = TheCann();
  OrtStatus* status = Find(init, cann.Mul);
  if (status == nullptr && attributes.limit > 0) status = Find(init, cann.Clamp);
  if (status == nullptr && attributes.up_offset != 0) status = Find(init, cann.Adds);
  if (status != nullptr) return status;
  switch (attributes.activation) {
    case Activation::kGelu:
    case Activation::kGeluTanh: return Find(init, cann.GeluV2);
    case Activation::kRelu:
    case Activation::kRelu2: return Find(init, cann.Relu);
    default: return attributes.alpha == 1 ? Find(init, cann.Silu) : Find(init, cann.Swish);
  }
}

const Backend kCANNGLU = MakeBackend<GateKernel>(kCANNProvider);

}  // namespace mojo
