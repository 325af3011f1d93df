// Tensors and shape rules of TopKRouter.
#ifndef MOJO_KERNELS_COMMON_TOPK_ROUTER_H_
#define MOJO_KERNELS_COMMON_TOPK_ROUTER_H_

#include "common/attributes.h"

namespace mojo {

// RouterTensors are the tensors of a running TopKRouter, and their sizes.
struct RouterTensors {
  const void* logits = nullptr;  // [rows, experts]
  const void* bias = nullptr;    // [experts]; null where it is left out
  float* weights = nullptr;      // [rows, top_k]
  int64_t* ids = nullptr;        // [rows, top_k]
  size_t rows = 0;
  size_t experts = 0;
};

// ReadRouter reads the inputs of a running node, checks their shapes against each other and the attributes,
// and allocates the outputs.
OrtStatus* ReadRouter(const Api& api, OrtKernelContext* context, const TopKRouterAttributes& attributes,
                      RouterTensors* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_TOPK_ROUTER_H_
