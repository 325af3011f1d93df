#include "moe/cuda/experts.h"

#include <stdlib.h>

#include <new>

namespace mojo {

OrtStatus* TunedMoE::Read(
    const KernelInit& init, const char* format, bool in_out,
    const std::function<bool(const MoETableShape&, size_t tokens, const MojoMoEConfig&)>& takes) try {
  shape_.format = format;
  shape_.in_out = in_out;
  capability_ = MojoCudaCapability();
  std::vector<MoETable> tables;
  std::string wrong = ReadMoETables(getenv("MOJO_MOE_CONFIG"), &tables);
  for (const MoETable& table : tables) {
    const MoETableShape& shape = table.shape;
    if (!wrong.empty()) break;
    if (!shape.format.empty() && (shape.format != shape_.format || shape.in_out != in_out)) continue;
    wrong = CheckMoETable(table, capability_,
                          [&](size_t tokens, const MojoMoEConfig& c) { return takes(shape, tokens, c); });
    tables_.push_back(table);
  }
  if (wrong.empty()) return nullptr;
  return Errorf(init.api, "mojo.%s: MOJO_MOE_CONFIG: %s", init.def.name, wrong.c_str());
} catch (const std::bad_alloc&) {
  return OutOfMemory(init.api);
}

MojoMoEConfig TunedMoE::Choose(const MojoMoEArgs& call, const TakesMoEConfig& takes) const {
  if (tables_.empty()) return {};
  MoETableShape shape = shape_;
  shape.experts = call.experts;
  shape.top_k = call.top_k;
  shape.hidden = call.hidden;
  shape.inner = call.inner;
  return FindMoEConfig(tables_, shape, capability_, call.tokens, takes);
}

}  // namespace mojo
