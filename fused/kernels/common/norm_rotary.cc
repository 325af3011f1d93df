// Types and attributes of NormRotary.
#include "common/norm_rotary.h"

namespace mojo {
OrtStatus* ReadAttributes(const KernelInit& init, NormRotaryAttributes* out) {
  AttributeReader read(init);
  ReadNorm(&read, kNormRotaryScale, &out->epsilon, &out->scale_after_cast);
  ReadRotary(&read, &out->rotary);
  return read.status;
}

}  // namespace mojo
