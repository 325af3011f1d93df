// Rows of any element type as float32.
#pragma once

#include "cpu/simd/kernels.h"
#include "cpu/simd/vec.h"

namespace mojo {
namespace MOJO_ISA {

template <class T>
void Widened(const void* from, float* to, size_t n) {
  ForEachVector(
      n, [=](auto lanes, size_t i) MOJO_LAMBDA { Store(lanes, to + i, Load(lanes, static_cast<const T*>(from) + i)); });
}

// ToFloat32 widens n elements.
static inline void ToFloat32(ElementType type, const void* from, float* to, size_t n) {
  return OfType(type, [=](auto t) { return Widened<decltype(t)>(from, to, n); });
}

template <class T>
void Narrowed(const float* from, void* to, size_t n) {
  ForEachVector(
      n, [=](auto lanes, size_t i) MOJO_LAMBDA { Store(lanes, static_cast<T*>(to) + i, Load(lanes, from + i)); });
}

// FromFloat32 rounds n elements.
static inline void FromFloat32(ElementType type, const float* from, void* to, size_t n) {
  return OfType(type, [=](auto t) { return Narrowed<decltype(t)>(from, to, n); });
}

}  // namespace MOJO_ISA
}  // namespace mojo
