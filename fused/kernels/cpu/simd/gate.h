// Inner loops of GLU and BiasGELU.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/math.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

// kPlain: no limit and no offset, as in most models.
template <class T, class Function, bool kPlain>
void GateElements(const GateArgs& args, size_t begin, size_t end) {
  const T* gate = static_cast<const T*>(args.gate) + begin;
  const T* up = static_cast<const T*>(args.up) + begin;
  T* y = static_cast<T*>(args.y) + begin;
  const Function activation(args.alpha);
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

// The test is made once per call, not per vector.
template <class T, class Function>
void Gate(const GateArgs& args, size_t begin, size_t end) {
  if (args.limit > 0 || args.up_offset != 0) {
    GateElements<T, Function, false>(args, begin, end);
  } else {
    GateElements<T, Function, true>(args, begin, end);
  }
}

template <class T, class Function>
void BiasGate(const BiasGateArgs& args, size_t begin, size_t end) {
  const T* bias = static_cast<const T*>(args.bias);
  const Function activation(args.alpha);
  for (size_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.width;
    T* y = static_cast<T*>(args.y) + row * args.width;
    ForEachVector(args.width, [=](auto lanes, size_t i) MOJO_LAMBDA {
      Store(lanes, y + i, activation(Round(y, Load(lanes, x + i) + Load(lanes, bias + i))));
    });
  }
}

template <class T>
BiasGateFn PickBiasKind(Activation kind) {
  switch (kind) {
    case Activation::kSilu: return BiasGate<T, Silu>;
    case Activation::kGelu: return BiasGate<T, Gelu>;
    case Activation::kGeluTanh: return BiasGate<T, GeluTanh>;
    default: return nullptr;
  }
}

inline BiasGateFn PickBiasGate(ElementType type, Activation kind) {
  return OfType(type, [=](auto t) { return PickBiasKind<decltype(t)>(kind); });
}

template <class T>
GateFn PickKind(Activation kind) {
  switch (kind) {
    case Activation::kSilu: return Gate<T, Silu>;
    case Activation::kGelu: return Gate<T, Gelu>;
    case Activation::kGeluTanh: return Gate<T, GeluTanh>;
    case Activation::kRelu: return Gate<T, Relu>;
    case Activation::kRelu2: return Gate<T, ReluSquared>;
  }
  return nullptr;
}

inline GateFn PickGate(ElementType type, Activation kind) {
  return OfType(type, [=](auto t) { return PickKind<decltype(t)>(kind); });
}

}  // namespace MOJO_ISA
}  // namespace mojo
