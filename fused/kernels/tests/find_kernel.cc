#include <string.h>

#include "tests/forms.h"

namespace mojo_test {

const OrtCustomOp* FindKernel(const mojo::OpDef& def, const mojo::TypeCombo& types, const char* provider) {
  for (const OrtCustomOp* op : the_domain.ops) {
    const char* its = op->GetExecutionProviderType(op);
    if (strcmp(op->GetName(op), def.name) != 0 || (its == nullptr) != (provider == nullptr)) continue;
    if (provider != nullptr && strcmp(its, provider) != 0) continue;
    bool same = true;
    for (size_t i = 0; i < def.input_count; ++i) same = same && op->GetInputType(op, i) == types.inputs[i];
    if (same) return op;
  }
  return nullptr;
}

}  // namespace mojo_test
