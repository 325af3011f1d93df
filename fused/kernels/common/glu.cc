// Types and attributes of GLU.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/ops.h"

namespace mojo {
namespace {

constexpr TypeCombo kTypes[] = {
    {{kF32, kF32}, {kF32}}, {{kF16, kF16}, {kF16}}, {{kBF16, kBF16}, {kBF16}}};

}  // namespace

const OpDef kGLU = {"GLU", {"gate", "up"}, 2, 1, 1, kTypes, sizeof(kTypes) / sizeof(kTypes[0])};

OrtStatus* ReadAttributes(const KernelInit& init, GLUAttributes* out) {
  AttributeReader read(init);
  char name[64];
  char found[96];
  read.String("activation", name, sizeof(name));
  out->alpha = read.Float("alpha");
  out->limit = read.Float("limit");
  out->up_offset = read.Float("up_offset");
  if (strcmp(name, "silu") == 0) {
    out->activation = Activation::kSilu;
  } else if (strcmp(name, "gelu") == 0) {
    out->activation = Activation::kGelu;
  } else if (strcmp(name, "gelu_tanh") == 0) {
    out->activation = Activation::kGeluTanh;
  } else {
    snprintf(found, sizeof(found), "\"%s\"", name);
    read.Fail("activation", found, "\"silu\", \"gelu\" or \"gelu_tanh\"");
  }
  if (out->activation != Activation::kSilu && out->alpha != 1.0f) {
    snprintf(found, sizeof(found), "%g", static_cast<double>(out->alpha));
    read.Fail("alpha", found, "1 (only silu has an alpha)");
  }
  if (!isfinite(out->alpha)) read.Fail("alpha", "not finite", "a finite number");
  if (!(out->limit >= 0) || isinf(out->limit)) {
    snprintf(found, sizeof(found), "%g", static_cast<double>(out->limit));
    read.Fail("limit", found, "a finite number of at least 0 (0 for no limit)");
  }
  if (!isfinite(out->up_offset)) read.Fail("up_offset", "not finite", "a finite number");
  return read.status;
}

}  // namespace mojo
