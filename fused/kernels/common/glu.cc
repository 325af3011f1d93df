// Types and attributes of GLU.
#include "common/glu.h"

#include <math.h>

namespace mojo {
void ReadGate(AttributeReader* read, GLUAttributes* out) {
  out->alpha = read->Float("alpha");
  out->limit = read->Float("limit");
  out->up_offset = read->Float("up_offset");
  if (out->activation != Activation::kSilu && out->alpha != 1.0f) {
    read->FailFloat("alpha", out->alpha, "1 (only silu has an alpha)");
  }
  if (!isfinite(out->alpha)) read->Fail("alpha", "not finite", "a finite number");
  if (!(out->limit >= 0) || isinf(out->limit)) {
    read->FailFloat("limit", out->limit, "a finite number of at least 0 (0 for no limit)");
  }
  if (!isfinite(out->up_offset)) read->Fail("up_offset", "not finite", "a finite number");
}

OrtStatus* ReadAttributes(const KernelInit& init, GLUAttributes* out) {
  AttributeReader read(init);
  out->activation = read.Choice<Activation>("activation");
  ReadGate(&read, out);
  return read.status;
}

}  // namespace mojo
