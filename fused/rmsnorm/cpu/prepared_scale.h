// The scale of a norm as float32, which its loops take.
#pragma once

#include <memory>

#include "common/op.h"
#include "cpu/simd/kernels.h"

namespace mojo {

// ScaleRoom holds the widened scale of one run: up to kOnStack numbers without an allocation.
class ScaleRoom {
 public:
  ScaleRoom() {}
  ScaleRoom(const ScaleRoom&) = delete;
  ScaleRoom& operator=(const ScaleRoom&) = delete;

 private:
  friend class PreparedScale;
  static constexpr size_t kOnStack = 2048;
  float on_stack_[kOnStack];
  std::unique_ptr<float[]> on_heap_;
};

// PreparedScale keeps a constant scale as float32: a run then neither fetches it nor widens it.
class PreparedScale {
 public:
  // Prepare reads input number index of the node, and keeps the value of a constant.
  OrtStatus* Prepare(const KernelInit& init, size_t index);

  // AsFloats returns the scale of a run: the constant, or the input, of count numbers, widened into room unless it is
  // float32.
  OrtStatus* AsFloats(const Api& api, const void* stored, size_t count, ScaleRoom* room, const float** data) const;

 private:
  ElementType type_ = kFloat32;
  std::unique_ptr<float[]> data_;
};

}  // namespace mojo
