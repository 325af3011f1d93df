// The scale of a norm as float32, which its loops take.
#pragma once

#include <memory>

#include "cpu/backends.h"

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

// ScaledNode is the state of a node that runs a norm's loop.
template <class Attributes, class Fn>
struct ScaledNode : NodeState<Attributes> {
  Fn run = nullptr;
  PreparedScale prepared;

  // Use sets the loop, which is null for types that the CPU has no kernel for, and prepares the scale, input index.
  OrtStatus* Use(const KernelInit& init, Fn loop, size_t index) {
    run = loop;
    return run == nullptr ? NoKernel(init) : prepared.Prepare(init, index);
  }
};

}  // namespace mojo
