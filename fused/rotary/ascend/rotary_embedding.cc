// RotaryEmbedding and NormRotary by aclnnRotaryPositionEmbedding, which, unlike aclnnApplyRotaryPosEmb, does not write
// in place and takes heads of any even size.
//
// The call needs all channels of X, tables as wide as X, the same pair layout in X and Y (halves or interleaved), and 4
// dimensions, of which the tables may broadcast only in few combinations. Copies on the device cover the other cases:
// they reorder the rotated channels for Y, widen half-width tables, and expand tables that broadcast in another way.
#include "rotary/common/rotary_embedding.h"

#include "ascend/backends.h"

namespace mojo {
namespace {

// Copying a table to every leading dimension of X splits its last dimension in two.
constexpr size_t kMostLeading = kMostDims - 2;

// Arrangement is X and the tables in 4 dimensions.
struct Arrangement {
  Dims x, table;
  bool direct = false;  // the tables are as they are given; else they are copied to every row of X
};

// Given reports whether a table varies along leading dimension i, or is broadcast along it.
bool Given(const RotaryLayout& layout, size_t i) { return layout.cos_step[i] != 0 || layout.sin_step[i] != 0; }

// SameSteps reports whether cos and sin are broadcast alike.
bool SameSteps(const RotaryLayout& layout) {
  for (size_t i = 0; i < layout.rank; ++i) {
    if ((layout.cos_step[i] != 0) != (layout.sin_step[i] != 0)) return false;
  }
  return true;
}

// Arrange chooses among the layouts that the call documents: [B, S, N, D] with tables [1, S, 1, D], and [B, N, S, D]
// with tables [1, 1, S, D] or [B, 1, S, D]. Any other layout becomes [1, rows, 1, D] with a table row for each row.
Arrangement Arrange(const RotaryLayout& layout, bool interleaved, size_t type_size) {
  const auto d = static_cast<int64_t>(layout.rotated);
  const auto rows = static_cast<int64_t>(layout.Rows());
  Arrangement out;
  out.x = out.table = {1, rows, 1, d};
  if (!SameSteps(layout) || layout.rank > 3) return out;
  int64_t n[3];
  unsigned given = 0;  // a bit for each leading dimension, the last one the lowest
  for (size_t i = 0; i < layout.rank; ++i) {
    n[i] = static_cast<int64_t>(layout.dims[i]);
    given = 2 * given + (Given(layout, i) ? 1 : 0);
  }
  const auto few = [&](int64_t b, int64_t heads) {
    return interleaved ? b * heads < kHeadsEnd : b < kHeadsEnd && heads < kHeadsEnd;
  };
  const auto set = [&](const Dims& x, const Dims& table) {
    out.x = x;
    out.table = table;
    out.direct = true;
  };
  switch (layout.rank * 8 + given) {
    case 1 * 8 + 1:  // S
      out.direct = true;
      break;
    case 1 * 8 + 0:  // N
      if (few(1, n[0])) set({1, 1, n[0], d}, {1, 1, 1, d});
      break;
    case 2 * 8 + 2:  // S, N
      if (few(1, n[1])) set({1, n[0], n[1], d}, {1, n[0], 1, d});
      break;
    case 2 * 8 + 1:  // N, S
      if (few(1, n[0]) && (interleaved || FitsHalves(1, n[0], n[1], d, type_size))) {
        set({1, n[0], n[1], d}, {1, 1, n[1], d});
      }
      break;
    case 3 * 8 + 2:  // B, S, N
      if (few(n[0], n[2])) set({n[0], n[1], n[2], d}, {1, n[1], 1, d});
      break;
    case 3 * 8 + 5:  // B, N, S with a table for each B
      if (!interleaved && FitsHalves(n[0], n[1], n[2], d, type_size)) set({n[0], n[1], n[2], d}, {n[0], 1, n[2], d});
      break;
    default: break;
  }
  return out;
}

// Table returns cos or sin as the call takes it: the input, or a copy as wide as the rotated channels, expanded to
// every row unless tables are direct. An element of a half-width table belongs to both channels of a pair.
View Table(Run* run, const RotaryLayout& layout, const Arrangement& arranged, bool interleaved, aclDataType type,
           const void* data, const size_t* steps, bool wide) {
  const auto d = static_cast<int64_t>(layout.rotated);
  if (wide && arranged.direct) return View(data, type, arranged.table);
  const View table = run->Memory(type, arranged.table);
  Dims from, from_steps, to;
  int64_t extent = wide ? d : d / 2;
  for (size_t i = 0; i < layout.rank; ++i) {
    const auto dim = static_cast<int64_t>(layout.dims[i]);
    const auto step = static_cast<int64_t>(steps[i]);
    from.Add(step == 0 ? 1 : dim);
    from_steps.Add(step == 0 ? 1 : step);
    to.Add(arranged.direct && step == 0 ? 1 : dim);
    if (step != 0) extent = extent < step * dim ? step * dim : extent;
  }
  if (wide) {
    from.Add(d), from_steps.Add(1), to.Add(d);
  } else if (interleaved) {
    from.Add(d / 2), from_steps.Add(1), to.Add(d / 2);
    from.Add(1), from_steps.Add(1), to.Add(2);
  } else {
    from.Add(1), from_steps.Add(1), to.Add(2);
    from.Add(d / 2), from_steps.Add(1), to.Add(d / 2);
  }
  run->Copy(View(table.data, type, to), View(data, type, from, from_steps, 0, {extent}));
  return table;
}

// Channels is some channels of each row, [rows, count].
View Channels(const RotaryLayout& layout, aclDataType type, const void* data, size_t first, size_t count) {
  const auto rows = static_cast<int64_t>(layout.Rows()), width = static_cast<int64_t>(layout.width);
  return View(data, type, {rows, static_cast<int64_t>(count)}, {width, 1}, static_cast<int64_t>(first), {rows, width});
}

// Source returns the channels that are rotated, in the order of Y.
View Source(Run* run, const RotaryLayout& layout, const RotaryEmbeddingAttributes& attributes, const Dims& dims,
            aclDataType type, const void* x) {
  const auto rows = static_cast<int64_t>(layout.Rows()), width = static_cast<int64_t>(layout.width);
  const auto d = static_cast<int64_t>(layout.rotated), first = static_cast<int64_t>(layout.first);
  if (attributes.interleaved == attributes.output_interleaved) {
    const int64_t last = dims.at[2] * width;
    return View(x, type, dims, {dims.at[1] * last, last, width, 1}, first, {rows, width});
  }
  const View ordered = run->Memory(type, dims);
  if (attributes.interleaved) {
    run->Copy(View(ordered.data, type, {rows, 2, d / 2}),
              View(x, type, {rows, 2, d / 2}, {width, 1, 2}, first, {rows, width}));
  } else {
    run->Copy(View(ordered.data, type, {rows, d / 2, 2}),
              View(x, type, {rows, d / 2, 2}, {width, 1, d / 2}, first, {rows, width}));
  }
  return ordered;
}

// CheckLayout refuses tables that broadcast to X in too many ways for a CANN tensor.
OrtStatus* CheckLayout(const Api& api, const OpDef& def, const RotaryLayout& layout) {
  if (layout.rank <= kMostLeading) return nullptr;
  return Errorf(api, "mojo.%s: cos and sin are broadcast to X along %zu groups of dimensions; CANN's tensors allow %zu",
                def.name, layout.rank, kMostLeading);
}

// FindRotary finds the operators of Rotate.
OrtStatus* FindRotary(const KernelInit& init) {
  return Find(init, TheCann().RotaryPositionEmbedding, TheCann().InplaceCopy);
}

// Rotate writes the rotation of x to y.
void Rotate(Run* run, const RotaryEmbeddingAttributes& attributes, aclDataType type, const RotaryTensors& t) {
  const bool interleaved = attributes.output_interleaved, whole = t.rotated == t.width;
  const Arrangement arranged = Arrange(t, interleaved, TypeSize(type));
  const View c = Table(run, t, arranged, interleaved, type, t.cos, t.cos_step, t.cos_wide);
  const View s = Table(run, t, arranged, interleaved, type, t.sin, t.sin_step, t.sin_wide);
  const View from = Source(run, t, attributes, arranged.x, type, t.x);
  const View to = whole ? View(t.y, type, arranged.x) : run->Memory(type, arranged.x);
  run->Do(TheCann().RotaryPositionEmbedding, run->Tensor(from), run->Tensor(c), run->Tensor(s), interleaved ? 1 : 0,
          run->Tensor(to));
  if (whole) return;
  const auto rows = static_cast<int64_t>(t.Rows()), d = static_cast<int64_t>(t.rotated);
  run->Copy(Channels(t, type, t.y, t.first, t.rotated), View(to.data, type, {rows, d}));
  const size_t rest = t.first == 0 ? t.rotated : 0, count = t.width - t.rotated;
  run->Copy(Channels(t, type, t.y, rest, count), Channels(t, type, t.x, rest, count));
}

struct RotaryKernel : Node<RotaryEmbeddingAttributes> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = Node::Init(init)) return s;
    if (OrtStatus* s = CheckRotary(init, attributes)) return s;
    return FindRotary(init);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    RotaryTensors t;
    RotaryEmbeddingCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = ReadRotary(attributes, kRotaryEmbeddingCos, &call, &t)) return s;
    if (OrtStatus* s = CheckLayout(api, kRotaryEmbedding, t)) return s;
    if (t.Rows() == 0) return nullptr;
    Run run(context, kRotaryEmbedding, memory);
    Rotate(&run, attributes, input(0), t);
    return run.Finish();
  }
};

// NormRotaryKernel puts the norm into scratch memory, and then rotates it.
struct NormRotaryKernel : Node<NormRotaryAttributes> {
  OrtStatus* Init(const KernelInit& init) {
    if (OrtStatus* s = Node::Init(init)) return s;
    if (OrtStatus* s = CheckRotary(init, attributes.rotary)) return s;
    if (OrtStatus* s = FindNorm(init)) return s;
    return FindRotary(init);
  }

  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const {
    RotaryTensors t;
    NormRotaryCall call(api, context, attributes);
    if (OrtStatus* s = call.Read()) return s;
    if (OrtStatus* s = ReadRotary(attributes.rotary, kNormRotaryCos, &call, &t)) return s;
    if (OrtStatus* s = CheckLayout(api, kNormRotary, t)) return s;
    if (t.Rows() == 0) return nullptr;
    const Dims dims{static_cast<int64_t>(t.Rows()), static_cast<int64_t>(t.width)};
    Run run(context, kNormRotary, memory);
    const View normed = run.Memory(output(0), dims);
    Norm(&run, View(t.x, input(kNormRotaryX), dims),
         View(call.data[kNormRotaryScale], input(kNormRotaryScale), {dims.at[1]}), attributes.epsilon, normed);
    t.x = normed.data;
    Rotate(&run, attributes.rotary, normed.type, t);
    return run.Finish();
  }
};

}  // namespace

const Backend kCANNRotaryEmbedding = MakeBackend<RotaryKernel>(kCANNProvider);
const Backend kCANNNormRotary = MakeBackend<NormRotaryKernel>(kCANNProvider);

}  // namespace mojo
