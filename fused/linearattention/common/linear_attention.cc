#include "linearattention/common/linear_attention.h"

#include <algorithm>

namespace mojo {

OrtStatus* ReadAttributes(const KernelInit& init, LinearAttentionAttributes* out) {
  if (OrtStatus* s = ReadAttributesInto(init, out, sizeof(*out))) return s;
  if (out->q_heads % out->v_heads == 0 || out->v_heads % out->q_heads == 0) return nullptr;
  return Errorf(init.api, "mojo.%s: q_heads is %lld and v_heads %lld; one must divide the other", init.def.name,
                static_cast<long long>(out->q_heads), static_cast<long long>(out->v_heads));
}

OrtStatus* ReadLinearAttention(LinearAttentionCall* read, LinearAttentionTensors* out) {
  LinearAttentionCall& call = *read;
  const LinearAttentionAttributes& attributes = call.attributes;
  out->q = call.data[kLinearAttentionQ];
  out->k = call.data[kLinearAttentionK];
  out->v = call.data[kLinearAttentionV];
  out->past = call.Get<float>(kLinearAttentionPast);
  out->decay = call.Get<float>(kLinearAttentionDecay);
  out->beta = call.Get<float>(kLinearAttentionBeta);
  out->batch = call.sizes.B;
  out->tokens = call.sizes.N;
  out->key = call.sizes.Dk;
  out->value = call.sizes.Dv;
  out->q_heads = static_cast<size_t>(attributes.q_heads);
  out->k_heads = static_cast<size_t>(attributes.k_heads);
  out->heads = static_cast<size_t>(attributes.v_heads);
  out->y_heads = std::max(out->q_heads, out->heads);
  const auto width = [&](size_t input) { return static_cast<size_t>(call.shapes[input].dims[2]); };
  if (out->beta != nullptr) out->beta_heads = width(kLinearAttentionBeta);
  if (out->decay != nullptr) out->channels = width(kLinearAttentionDecay) / out->heads;
  if (OrtStatus* s = call.Make(0, &out->y)) return s;
  return call.Make(1, &out->present);
}

}  // namespace mojo
