// KernelOf makes the three functions of a Backend from one type: the state of a node.
#pragma once

#include <new>

#include "common/attributes.h"

namespace mojo {

// NodeState is the attributes and the types of a node. The state of every op inherits it; if the op has an Init too,
// that calls this one first.
template <class Attributes>
struct NodeState {
  Attributes attributes{};
  const TypeCombo* types = nullptr;

  OrtStatus* Init(const KernelInit& init) {
    types = &init.types;
    return ReadAttributes(init, &attributes);
  }

  // Input and Output are the types of an input and of an output.
  ElementType Input(size_t index) const { return ToElementType(types->inputs[index]); }
  ElementType Output(size_t index) const { return ToElementType(types->outputs[index]); }
};

// KernelOf<State> allocates, runs and deletes the states of an op's nodes. A State has
//
//   OrtStatus* Init(const KernelInit& init);
//   OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
//
// Init reads and checks the attributes and types of the node. Compute runs the node, in several threads at a time:
// nothing changes a state after Init. The destructor frees the resources of Init, also after an error. Neither may
// throw.
template <class State>
struct KernelOf {
  static OrtStatus* Create(const KernelInit& init, void** kernel) {
    // std::unique_ptr needs <memory>, which takes a quarter of the time to compile the ops.
    State* const state = new (std::nothrow) State{};
    if (state == nullptr) return OutOfMemory(init.api);
    if (OrtStatus* s = state->Init(init)) {
      delete state;
      return s;
    }
    *kernel = state;
    return nullptr;
  }

  static OrtStatus* Compute(void* kernel, OrtKernelContext* context) {
    return static_cast<const State*>(kernel)->Compute(TheApi(), context);
  }

  static void Destroy(void* kernel) { delete static_cast<State*>(kernel); }
};

// MakeBackend returns the Backend whose nodes have a State. provider is null for the CPU; may_in_place is a
// MayInPlace, or null if no output may be written over an input.
template <class State>
constexpr Backend MakeBackend(const char* provider, size_t (*may_in_place)(int** inputs, int** outputs) = nullptr) {
  return {provider, KernelOf<State>::Create, KernelOf<State>::Compute, KernelOf<State>::Destroy, may_in_place};
}

}  // namespace mojo
