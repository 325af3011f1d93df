// Shape rules of MoE.
#include "common/moe.h"

namespace mojo {
namespace {

// Rows is the product of all dims but the last.
size_t Rows(const Shape& shape) {
  size_t n = 1;
  for (size_t i = 0; i + 1 < shape.rank; ++i) n *= static_cast<size_t>(shape.dims[i]);
  return n;
}

// Expect checks one input against the shape that the others ask for.
OrtStatus* Expect(const Api& api, const Shape* const* shapes, size_t input, size_t rank, size_t a, size_t b, size_t c,
                  const char* means) {
  const Shape& s = *shapes[input];
  const int64_t want[3] = {static_cast<int64_t>(a), static_cast<int64_t>(b), static_cast<int64_t>(c)};
  bool ok = s.rank == rank;
  for (size_t i = 0; ok && i < rank; ++i) ok = s.dims[i] == want[i];
  if (ok) return nullptr;
  return Errorf(api, "mojo.MoE: %s has shape %s; with X %s, gate_up %s and the attributes it must be %s %s",
                kMoE.input_names[input], ShapeText(s).text, ShapeText(*shapes[kMoEX]).text,
                ShapeText(*shapes[kMoEGateUp]).text, means, ShapeText(want, rank).text);
}

// CheckMoE checks the shapes. Those of optional inputs are null where they are left out.
OrtStatus* CheckMoE(const Api& api, const MoEAttributes& attributes, const Shape* const shapes[kMaxInputs],
                    MoEShape* out) {
  const Shape &x = *shapes[kMoEX], &weights = *shapes[kMoEWeights], &ids = *shapes[kMoEIds];
  const Shape& gate_up = *shapes[kMoEGateUp];
  if (OrtStatus* s = CheckChoices(api, kMoE, x, weights, ids, out)) return s;
  out->experts = gate_up.rank == 3 ? static_cast<size_t>(gate_up.dims[0]) : 0;
  out->packed = gate_up.rank == 3 ? static_cast<size_t>(gate_up.dims[attributes.gate_up_in_out ? 2 : 1]) : 0;
  const bool gated = attributes.packing != Packing::kNone;
  out->inner = gated ? out->packed / 2 : out->packed;
  const MoEShape& m = *out;
  if (gated && m.packed % 2 != 0) {
    return Errorf(api,
                  "mojo.MoE: gate_up has shape %s, a first product %zu wide; gate and up must be as wide "
                  "as each other",
                  ShapeText(gate_up).text, m.packed);
  }
  OrtStatus* s = attributes.gate_up_in_out
                     ? Expect(api, shapes, kMoEGateUp, 3, m.experts, m.hidden, m.packed, "[E, in, out]")
                     : Expect(api, shapes, kMoEGateUp, 3, m.experts, m.packed, m.hidden, "[E, out, in]");
  if (s != nullptr) return s;
  s = attributes.down_in_out ? Expect(api, shapes, kMoEDown, 3, m.experts, m.inner, m.hidden, "[E, in, out]")
                             : Expect(api, shapes, kMoEDown, 3, m.experts, m.hidden, m.inner, "[E, out, in]");
  if (s != nullptr) return s;
  if (shapes[kMoEGateUpBias] != nullptr) {
    s = Expect(api, shapes, kMoEGateUpBias, 2, m.experts, m.packed, 0, "[E, out]");
    if (s != nullptr) return s;
  }
  if (shapes[kMoEDownBias] != nullptr) {
    return Expect(api, shapes, kMoEDownBias, 2, m.experts, m.hidden, 0, "[E, out]");
  }
  return nullptr;
}

}  // namespace

OrtStatus* CheckChoices(const Api& api, const OpDef& def, const Shape& x, const Shape& weights, const Shape& ids,
                        MoEShape* out) {
  if (x.rank == 0 || weights.rank == 0 || ids.rank == 0 || Rows(weights) != Rows(x) || Rows(ids) != Rows(x) ||
      weights.dims[weights.rank - 1] != ids.dims[ids.rank - 1]) {
    return Errorf(api,
                  "mojo.%s: X has shape %s, weights %s and ids %s; weights and ids must have k elements "
                  "for each token, which are the rows of X",
                  def.name, ShapeText(x).text, ShapeText(weights).text, ShapeText(ids).text);
  }
  out->tokens = Rows(x);
  out->hidden = static_cast<size_t>(x.dims[x.rank - 1]);
  out->k = static_cast<size_t>(ids.dims[ids.rank - 1]);
  return nullptr;
}

OrtStatus* ReadMoE(const Api& api, OrtKernelContext* context, const MoEAttributes& attributes,
                   const void* data[kMaxInputs], Shape shapes[kMaxInputs], MoEShape* out) {
  const Shape* given[kMaxInputs];
  for (size_t i = 0; i < kMoE.input_count; ++i) {
    const auto read = i < kMoE.required_inputs ? ReadInput : ReadOptionalInput;
    if (OrtStatus* s = read(api, context, kMoE, i, &data[i], &shapes[i])) return s;
    given[i] = data[i] == nullptr && i >= kMoE.required_inputs ? nullptr : &shapes[i];
  }
  return CheckMoE(api, attributes, given, out);
}

OrtStatus* CheckIds(const Api& api, const OpDef& def, const int64_t* ids, const MoEShape& shape) {
  const size_t choices = shape.tokens * shape.k;
  for (size_t c = 0; c < choices; ++c) {
    // A negative one is a large one here.
    if (static_cast<uint64_t>(ids[c]) < shape.experts) continue;
    return Errorf(api,
                  "mojo.%s: ids has %lld for token %zu, choice %zu; there are %zu experts (E = %zu), so an id must be "
                  "at least 0 and less than %zu",
                  def.name, static_cast<long long>(ids[c]), c / shape.k, c % shape.k, shape.experts, shape.experts,
                  shape.experts);
  }
  return nullptr;
}

}  // namespace mojo
