// Attributes of GLU, and those that MoE has in common with it.
#ifndef MOJO_KERNELS_COMMON_GLU_H_
#define MOJO_KERNELS_COMMON_GLU_H_

#include "common/attributes.h"

namespace mojo {

// GLUAttributes are the attributes of GLU, and those that MoE has in common with it.
struct GLUAttributes {
  Activation activation;
  float alpha;
  float limit;  // 0: none
  float up_offset;
};

OrtStatus* ReadAttributes(const KernelInit& init, GLUAttributes* out);

// ReadGate reads alpha, limit and up_offset, once activation is known.
void ReadGate(AttributeReader* read, GLUAttributes* out);

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_GLU_H_
