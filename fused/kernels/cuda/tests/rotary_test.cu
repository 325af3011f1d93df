// RotaryEmbedding and NormRotary against their definitions in double on the host. Exits 1 on a failure.
// `make cuda-programs` builds it. An argument "small" keeps to sizes that compute-sanitizer can follow.
#include <memory>

#include "cuda/tests/tally.h"

namespace {

bool small = false;

// RotaryCase is one tensor of leading dims; bit i of a mask is set if the table has dims[i], and not 1, there.
struct RotaryCase {
  std::vector<size_t> dims;
  unsigned cos_dims, sin_dims;
  size_t width, rotated;
  bool last = false, from = false, to = false, cos_wide = true, sin_wide = true;
  MojoType type = kMojoBFloat16;
  size_t offset = 0;
  bool in_place = false;
  // NormRotary.
  bool norm = false, after = true;
  MojoType x_type = kMojoBFloat16, scale_type = kMojoBFloat16;
  Values values = kNormal;
};

// RotaryTensors are the tensors of a case and its reference.
struct RotaryTensors {
  const RotaryCase& c;
  size_t rows = 1;
  MojoNormRotaryArgs args = {};
  std::unique_ptr<Numbers> x, cos, sin, y, scale;
  Want want{0};

  RotaryTensors(const RotaryCase& the, Random* random) : c(the) {
    MojoRotaryArgs& r = args.rotary;
    r.type = c.type;
    r.rank = c.dims.size();
    r.width = c.width;
    r.rotated = c.rotated;
    r.first = c.last ? c.width - c.rotated : 0;
    r.cos_wide = c.cos_wide;
    r.sin_wide = c.sin_wide;
    r.interleaved = c.from;
    r.output_interleaved = c.to;
    size_t cos_count = c.cos_wide ? c.rotated : c.rotated / 2, sin_count = c.sin_wide ? c.rotated : c.rotated / 2;
    for (size_t i = c.dims.size(); i-- > 0;) {
      r.dims[i] = c.dims[i];
      rows *= c.dims[i];
      if (c.cos_dims >> i & 1) r.cos_step[i] = cos_count, cos_count *= c.dims[i];
      if (c.sin_dims >> i & 1) r.sin_step[i] = sin_count, sin_count *= c.dims[i];
    }
    x.reset(new Numbers(c.norm ? c.x_type : c.type, rows * c.width, c.offset));
    y.reset(new Numbers(c.type, rows * c.width, c.offset));
    cos.reset(new Numbers(c.type, cos_count, c.offset));
    sin.reset(new Numbers(c.type, sin_count, c.offset));
    scale.reset(new Numbers(c.scale_type, c.width, c.offset));
    FillWith(x.get(), c.values, c.norm ? c.x_type : c.type, random);
    cos->Fill(random, 0.7f), sin->Fill(random, 0.7f), scale->Fill(random, 1);
    x->ToDevice(), cos->ToDevice(), sin->ToDevice(), scale->ToDevice();
    r.x = x->device(), r.cos = cos->device(), r.sin = sin->device();
    r.y = c.in_place ? x->device() : y->device();
    args.scale = scale->device();
    args.epsilon = 1e-6f;
    args.scale_after_cast = c.after;
    args.x_type = c.x_type;
    args.scale_type = c.scale_type;
    Reference();
  }

  Numbers* result() { return c.in_place ? x.get() : y.get(); }

  void Reference() {
    want = Want(rows * c.width);
    InParallel(rows, [&](size_t begin, size_t end) {
      std::vector<float> row(c.width), normed(c.width), off(c.width, 0.0f);
      for (size_t r = begin; r < end; ++r) {
        for (size_t i = 0; i < c.width; ++i) row[i] = x->Get(r * c.width + i);
        if (c.norm) {
          Normalize(
              row, [&](size_t i) { return scale->Get(i); }, args.epsilon, c.after, c.type, normed.data(), off.data());
          row = normed;
        }
        size_t rest = r, cos_at = 0, sin_at = 0;
        for (size_t i = c.dims.size(); i-- > 0;) {
          cos_at += rest % c.dims[i] * args.rotary.cos_step[i];
          sin_at += rest % c.dims[i] * args.rotary.sin_step[i];
          rest /= c.dims[i];
        }
        float* value = &want.value[r * c.width];
        float* may = &want.off[r * c.width];
        for (size_t i = 0; i < c.width; ++i) value[i] = row[i], may[i] = off[i];
        const size_t half = c.rotated / 2, first = args.rotary.first;
        for (size_t i = 0; i < half; ++i) {
          const size_t ia = first + (c.from ? 2 * i : i), ib = first + (c.from ? 2 * i + 1 : i + half);
          const size_t j = c.to ? 2 * i : i, k = c.to ? 2 * i + 1 : i + half;
          const float a = row[ia], b = row[ib];
          const auto rounded = [&](float v) { return RoundTo(c.type, v); };
          const float cj = cos->Get(cos_at + (c.cos_wide ? j : i)), ck = cos->Get(cos_at + (c.cos_wide ? k : i));
          const float sj = sin->Get(sin_at + (c.sin_wide ? j : i)), sk = sin->Get(sin_at + (c.sin_wide ? k : i));
          value[first + j] = rounded(rounded(a * cj) - rounded(b * sj));
          value[first + k] = rounded(rounded(b * ck) + rounded(a * sk));
          // Without a norm the result is exactly the reference's.
          if (c.norm) {
            may[first + j] = static_cast<float>(3 * (off[ia] * fabs(cj) + off[ib] * fabs(sj)));
            may[first + k] = static_cast<float>(3 * (off[ib] * fabs(ck) + off[ia] * fabs(sk)));
          }
        }
      }
    });
  }
};

std::string NameOf(const RotaryCase& c) {
  std::string name = "[";
  for (size_t dim : c.dims) name += std::to_string(dim) + ",";
  char more[160];
  snprintf(more, sizeof(more), "%zu] rotated %zu%s tables %x/%x%s%s %s%s x %s scale %s%s offset %zu%s values %d",
           c.width, c.rotated, c.last ? " last" : "", c.cos_dims, c.sin_dims, c.cos_wide ? " wide" : " narrow",
           c.sin_wide ? "/wide" : "/narrow", c.from ? "interleaved" : "halves", c.to ? ">interleaved" : ">halves",
           TypeName(c.x_type), TypeName(c.type), c.after ? " after" : "", c.offset, c.in_place ? " in place" : "",
           c.values);
  return name + more;
}

// TestRotary runs one or two tensors in one call.
void TestRotary(Tally* tally, const std::vector<RotaryCase>& cases) {
  Random random(cases[0].width + cases[0].dims.size() * 31 + tally->cases);
  std::vector<std::unique_ptr<RotaryTensors>> all;
  for (const RotaryCase& c : cases) all.emplace_back(new RotaryTensors(c, &random));
  MojoRotaryArgs plain[MOJO_MAX_TENSORS];
  MojoNormRotaryArgs normed[MOJO_MAX_TENSORS];
  for (size_t i = 0; i < all.size(); ++i) plain[i] = all[i]->args.rotary, normed[i] = all[i]->args;
  const int count = static_cast<int>(all.size());
  Done(tally, NameOf(cases[0]),
       cases[0].norm ? MojoCudaNormRotary(normed, count, nullptr) : MojoCudaRotaryEmbedding(plain, count, nullptr));
  for (size_t i = 0; i < all.size(); ++i) {
    Compare(tally, NameOf(cases[i]), all[i]->result(), cases[i].type, all[i]->want, cases[i].norm ? 0.02 : 0);
  }
}

// RandomRotary is any form that the op has.
RotaryCase RandomRotary(Random* random, bool norm) {
  RotaryCase c;
  const size_t widths[] = {64, 128, 128, 80, 96, 6, 256, 192, 512, 32, 100, 1024};
  c.width = widths[random->Below(12)];
  const size_t part = random->Below(4);
  c.rotated = part < 2 ? c.width : part == 2 ? c.width / 2 / 2 * 2 : c.width / 4 / 2 * 2;
  if (c.rotated < 2) c.rotated = 2;
  c.last = c.rotated < c.width && random->Below(2);
  for (size_t rank = random->Below(5); rank > 0; --rank) c.dims.push_back(1 + random->Below(9));
  const unsigned all = (1u << c.dims.size()) - 1;
  c.cos_dims = random->Next() & all;
  c.sin_dims = random->Below(3) ? c.cos_dims : random->Next() & all;
  c.from = random->Below(2), c.to = random->Below(3) ? c.from : !c.from;
  c.cos_wide = random->Below(2), c.sin_wide = random->Below(3) ? c.cos_wide : !c.cos_wide;
  c.type = static_cast<MojoType>(random->Below(3));
  c.offset = random->Below(4) ? 0 : 4;
  c.in_place = c.from == c.to && random->Below(4) == 0;
  c.norm = norm;
  c.x_type = c.scale_type = c.type;
  c.after = random->Below(2);
  if (norm && c.type != kMojoFloat32 && random->Below(4) == 0) {
    // One of the two is float32.
    c.after = random->Below(2);
    (c.after ? c.x_type : c.scale_type) = kMojoFloat32;
    if (c.after) c.in_place = false;
  }
  if (norm && random->Below(5) == 0) c.values = static_cast<Values>(1 + random->Below(3));
  return c;
}

// Attention is x of T tokens (or B sequences of S) with this many heads of 128, as in models.
RotaryCase Attention(size_t tokens, size_t heads, bool heads_first, MojoType type, bool norm) {
  RotaryCase c;
  c.dims = heads_first ? std::vector<size_t>{2, heads, tokens} : std::vector<size_t>{tokens, heads};
  c.cos_dims = c.sin_dims = heads_first ? 5 : 1;
  c.width = c.rotated = 128;
  c.type = c.x_type = c.scale_type = type;
  c.norm = norm;
  return c;
}

void TestRotaries(Tally* tally, bool norm) {
  for (const MojoType type : {kMojoBFloat16, kMojoFloat16, kMojoFloat32}) {
    for (const size_t tokens : {0, 1, 3, 8, 33, 512, 4096}) {
      for (const bool heads_first : {false, true}) {
        if (small && tokens > 33) continue;
        if (tokens > 1000 && type != kMojoBFloat16) continue;
        const size_t heads = tokens > 1000 ? 5 : 14;
        TestRotary(tally,
                   {Attention(tokens, heads, heads_first, type, norm), Attention(tokens, 2, heads_first, type, norm)});
      }
    }
  }
  Random random(norm ? 7 : 3);
  for (int i = 0; i < (small ? 300 : 1500); ++i) {
    std::vector<RotaryCase> cases = {RandomRotary(&random, norm)};
    if (i % 3 == 0) {
      cases.push_back(i % 6 == 0 ? RandomRotary(&random, norm) : cases[0]);
      if (i % 6 != 0 && !cases[1].dims.empty()) cases[1].dims[0] = 1 + random.Below(20);
    }
    TestRotary(tally, cases);
  }
}

}  // namespace

int main(int argc, char** argv) {
  small = argc > 1 && strcmp(argv[1], "small") == 0;
  Tally rotary{"RotaryEmbedding"}, norm_rotary{"NormRotary"};
  TestRotaries(&rotary, false);
  TestRotaries(&norm_rotary, true);
  return Report({&rotary, &norm_rotary});
}
