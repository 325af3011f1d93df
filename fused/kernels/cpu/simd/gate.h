// Inner loops of GLU and BiasGELU.
#ifndef MOJO_KERNELS_CPU_SIMD_GATE_H_
#define MOJO_KERNELS_CPU_SIMD_GATE_H_

#include "cpu/simd/kernels.h"
#include "cpu/simd/math.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// kPlain: no limit and no offset, as most models have it.
template <class T, class Activation, bool kPlain>
void GateElements(const GateArgs& args, size_t begin, size_t end) {
  const T* gate = static_cast<const T*>(args.gate) + begin;
  const T* up = static_cast<const T*>(args.up) + begin;
  T* y = static_cast<T*>(args.y) + begin;
  const Activation activation(args.alpha);
  const F32 limit = Set(args.limit > 0 ? args.limit : __builtin_inff());
  const F32 offset = Set(args.up_offset);
  ForEachVector(end - begin, [=](auto lanes, size_t i) MOJO_LAMBDA {
    F32 g = Load(lanes, gate + i);
    F32 u = Load(lanes, up + i);
    if (!kPlain) {
      g = AtMost(g, limit);
      u = Round(y, AtLeast(AtMost(u, limit), -limit) + offset);
    }
    Store(lanes, y + i, Round(y, activation(g)) * u);
  });
}

// The test is made once per call and not per vector.
template <class T, class Activation>
void Gate(const GateArgs& args, size_t begin, size_t end) {
  if (args.limit > 0 || args.up_offset != 0) {
    GateElements<T, Activation, false>(args, begin, end);
  } else {
    GateElements<T, Activation, true>(args, begin, end);
  }
}

template <class T, class Activation>
void BiasGate(const BiasGateArgs& args, size_t begin, size_t end) {
  const T* bias = static_cast<const T*>(args.bias);
  const Activation activation(args.alpha);
  for (size_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.width;
    T* y = static_cast<T*>(args.y) + row * args.width;
    ForEachVector(args.width, [=](auto lanes, size_t i) MOJO_LAMBDA {
      Store(lanes, y + i, activation(Round(y, Load(lanes, x + i) + Load(lanes, bias + i))));
    });
  }
}

template <class T>
BiasGateFn PickBiasKind(GateKind kind) {
  switch (kind) {
    case kGateSilu: return BiasGate<T, Silu>;
    case kGateGelu: return BiasGate<T, Gelu>;
    case kGateGeluTanh: return BiasGate<T, GeluTanh>;
    default: return nullptr;
  }
}

inline BiasGateFn PickBiasGate(ElementType type, GateKind kind) {
  switch (type) {
    case kFloat32: return PickBiasKind<float>(kind);
    case kFloat16: return PickBiasKind<Half>(kind);
    case kBFloat16: return PickBiasKind<BFloat>(kind);
  }
  return nullptr;
}

template <class T>
GateFn PickKind(GateKind kind) {
  switch (kind) {
    case kGateSilu: return Gate<T, Silu>;
    case kGateGelu: return Gate<T, Gelu>;
    case kGateGeluTanh: return Gate<T, GeluTanh>;
    case kGateRelu: return Gate<T, Relu>;
    case kGateReluSquared: return Gate<T, ReluSquared>;
  }
  return nullptr;
}

inline GateFn PickGate(ElementType type, GateKind kind) {
  switch (type) {
    case kFloat32: return PickKind<float>(kind);
    case kFloat16: return PickKind<Half>(kind);
    case kBFloat16: return PickKind<BFloat>(kind);
  }
  return nullptr;
}

}  // namespace MOJO_ISA
}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_SIMD_GATE_H_
