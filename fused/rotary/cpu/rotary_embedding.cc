// RotaryEmbedding and NormRotary on the CPU.
#include "rotary/common/rotary_embedding.h"

#include <string.h>

#include <memory>
#include <new>

#include "rmsnorm/cpu/prepared_scale.h"

namespace mojo {
namespace {

// Rotation is a run of either op. cos and sin have y's type, x may have another.
struct Rotation : RotaryTensors {
  ElementType x_type, y_type;

  Rotation(ElementType of_x, ElementType of_y) : x_type(of_x), y_type(of_y) {}

  // Run calls rotate for all rows. It reads a copy of x if y is x and rotate reorders more channels than can be
  // reordered in place.
  template <class Rotate>
  OrtStatus* Run(const CallBase& call, size_t reordered, const Rotate& rotate) {
    const size_t rows = Rows(), bytes = rows * width * SizeOf(x_type);
    if (rows == 0) return nullptr;
    std::unique_ptr<char[]> copy;
    if (reordered > kRotaryInPlace && x == y) {
      copy.reset(new (std::nothrow) char[bytes]);
      if (copy == nullptr) return OutOfMemory(call.api());
      memcpy(copy.get(), x, bytes);
      x = copy.get();
    }
    const auto some = [&](size_t row, size_t end) { EachRun(row, end, rotate); };
    return RunInTasks(call.api(), call.context(), some, rows, width);
  }

  // EachRun calls rotate with the rows from row to end - 1, in runs along the innermost leading dim, along which cos
  // and sin move by a fixed step.
  template <class Rotate>
  void EachRun(size_t row, size_t end, const Rotate& rotate) const {
    const size_t inner = rank - 1;
    RotaryArgs args;
    args.width = width;
    args.first = first;
    args.half = rotated / 2;
    args.cos_step = cos_step[inner];
    args.sin_step = sin_step[inner];
    args.cos_wide = cos_wide;
    args.sin_wide = sin_wide;
    while (row < end) {
      // The row's index along each dim, from the innermost outwards.
      size_t rest = row;
      size_t cos_at = 0, sin_at = 0, begin = 0;
      for (size_t i = rank; i-- > 0;) {
        const size_t index = rest % dims[i];
        rest /= dims[i];
        cos_at += index * cos_step[i];
        sin_at += index * sin_step[i];
        if (i == inner) begin = index;
      }
      args.count = dims[inner] - begin;
      if (args.count > end - row) args.count = end - row;
      args.x = At(x, row * width, x_type);
      args.y = const_cast<char*>(At(y, row * width, y_type));
      args.cos = At(cos, cos_at, y_type);
      args.sin = At(sin, sin_at, y_type);
      rotate(args);
      row += args.count;
    }
  }
};

bool Reorders(const RotaryEmbeddingAttributes& a) { return a.interleaved != a.output_interleaved; }

PairLayout LayoutOf(bool interleaved) { return interleaved ? kInterleaved : kHalves; }

// RotaryKernel is the state of one node.
struct RotaryKernel : NodeState<RotaryEmbeddingAttributes> {
  RotaryFn run = nullptr;

  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    run = TheKernels()->rotary(Input(0), LayoutOf(attributes.interleaved), LayoutOf(attributes.output_interleaved));
    return nullptr;
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    Rotation rotation(Input(0), Output(0));
    RotaryEmbeddingCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = ReadRotary(attributes, kRotaryEmbeddingCos, &call, &rotation)) return s;
    return rotation.Run(call, Reorders(attributes) ? rotation.rotated : 0, run);
  }
};

// NormRotaryKernel is the state of one node.
struct NormRotaryKernel : ScaledNode<NormRotaryAttributes, NormRotaryFn> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = NodeState::Init(init)) return s;
    const RotaryEmbeddingAttributes& rotary = attributes.rotary;
    const NormRotaryKey key{Input(0), Output(0), attributes.scale_after_cast, LayoutOf(rotary.interleaved),
                            LayoutOf(rotary.output_interleaved)};
    return Use(init, TheKernels()->norm_rotary(key), kNormRotaryScale);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    Rotation rotation(Input(0), Output(0));
    const float *scale, epsilon = attributes.epsilon;
    ScaleRoom room;
    NormRotaryCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = prepared.AsFloats(api, call.data[kNormRotaryScale], call.sizes.D, &room, &scale)) return s;
    if (OrtStatus* s = ReadRotary(attributes.rotary, kNormRotaryCos, &call, &rotation)) return s;
    return rotation.Run(call, Reorders(attributes.rotary) ? rotation.width : 0,
                        [&](const RotaryArgs& args) { run({args, scale, epsilon}); });
  }
};

}  // namespace

const Backend kCPURotaryEmbedding = MakeBackend<RotaryKernel>(nullptr, MayInPlace<0, 0>);
const Backend kCPUNormRotary = MakeBackend<NormRotaryKernel>(nullptr, MayInPlace<0, 0>);

}  // namespace mojo
