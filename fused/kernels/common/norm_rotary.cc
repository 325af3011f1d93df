// Types and attributes of NormRotary.
#include "common/ops.h"

namespace mojo {
namespace {

// The types of RMSNorm; cos, sin and Y have that of its result.
constexpr TypeCombo kTypes[] = {
    {{kF32, kF32, kF32, kF32}, {kF32}},      {{kF16, kF16, kF16, kF16}, {kF16}},
    {{kBF16, kBF16, kBF16, kBF16}, {kBF16}}, {{kF16, kF32, kF16, kF16}, {kF16}},
    {{kBF16, kF32, kBF16, kBF16}, {kBF16}},  {{kF32, kF16, kF16, kF16}, {kF16}},
    {{kF32, kBF16, kBF16, kBF16}, {kBF16}},
};

}  // namespace

const OpDef kNormRotary = {"NormRotary", {"X", "scale", "cos", "sin"},      4, 4, 1, 1,
                           kTypes,       sizeof(kTypes) / sizeof(kTypes[0])};

OrtStatus* ReadAttributes(const KernelInit& init, NormRotaryAttributes* out) {
  AttributeReader read(init);
  ReadNorm(&read, kNormRotaryScale, &out->epsilon, &out->scale_after_cast);
  ReadRotary(&read, &out->rotary);
  return read.status;
}

}  // namespace mojo
