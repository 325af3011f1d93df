// RMSNorm, AddRMSNorm, GatedRMSNorm, GLU, RotaryEmbedding and NormRotary against their definitions in double on the
// host. Exits 1 on a failure. `make cuda-programs` builds it. An argument "small" keeps to sizes that compute-sanitizer
// can follow.
#include <algorithm>
#include <memory>
#include <string>

#include "cuda/rms_norm.cuh"
#include "cuda/tests/host.h"

namespace {

bool small = false;

// RoundTo is v rounded to float32 and then to type.
float RoundTo(MojoType type, double v) {
  float out = static_cast<float>(v);
  Store(&out, 0, type, static_cast<float>(v));
  return Load(&out, 0, type);
}

// Least is what a result may always be off: numbers that the type cannot hold in full.
double Least(MojoType type) { return type == kMojoFloat16 ? 0x1p-24 : 1e-36; }

// Tally is what was found for one op.
struct Tally {
  const char* op;
  int cases = 0;
  int failed = 0;
  double worst = 0;    // error over tolerance
  double unequal = 0;  // the largest part of a 16 bit result that is not the reference's number
};

// Want is the result that is expected, and how far off it may be.
struct Want {
  std::vector<float> value;
  std::vector<float> off;

  explicit Want(size_t count) : value(count), off(count) {}
};

void Fail(Tally* tally, const std::string& name, const char* what) {
  ++tally->failed;
  if (tally->failed <= 10) printf("FAIL %s %s: %s\n", tally->op, name.c_str(), what);
}

// Compare reads a result back and compares it. Of 16 bit results no more than allowed_unequal may be another
// number than the reference's, or else a rounding is missing; that holds for usual values.
void Compare(Tally* tally, const std::string& name, Numbers* got, MojoType type, const Want& want,
             double allowed_unequal) {
  got->ToHost();
  size_t unequal = 0, numbers = 0;
  double worst = 0;
  size_t worst_at = 0;
  for (size_t i = 0; i < want.value.size(); ++i) {
    const float g = got->Get(i), w = want.value[i];
    if (isnan(w) && isnan(g)) continue;
    ++numbers;
    if (g == w) continue;
    ++unequal;
    const double off = fabs(static_cast<double>(g) - w);
    const double over = want.off[i] > 0 ? off / want.off[i] : HUGE_VAL;
    if (!(over <= worst)) worst = isnan(over) ? HUGE_VAL : over, worst_at = i;
  }
  tally->worst = std::max(tally->worst, worst);
  const double part = numbers > 1000 && type != kMojoFloat32 ? static_cast<double>(unequal) / numbers : 0;
  if (allowed_unequal < 1) tally->unequal = std::max(tally->unequal, part);
  char what[160];
  if (worst > 1) {
    snprintf(what, sizeof(what), "element %zu is %.9g, not %.9g (may be off %.3g)", worst_at, got->Get(worst_at),
             want.value[worst_at], want.off[worst_at]);
    return Fail(tally, name, what);
  }
  if (part > allowed_unequal) {
    snprintf(what, sizeof(what), "%.2f %% of the results are not the reference's: a rounding is missing", 100 * part);
    return Fail(tally, name, what);
  }
  if (!got->Guarded()) Fail(tally, name, "it wrote beside its result");
}

// Done waits for the kernels of a case.
void Done(Tally* tally, const std::string& name, cudaError_t launched) {
  ++tally->cases;
  if (launched != cudaSuccess) Fail(tally, name, cudaGetErrorString(launched));
  Check(cudaDeviceSynchronize(), (std::string(tally->op) + " " + name).c_str());
}

enum Values { kNormal, kHuge, kTiny, kZero, kSpecial };

void FillWith(Numbers* numbers, Values values, MojoType type, Random* random) {
  // The squares of huge ones overflow in the sum alone.
  const float huge = type == kMojoFloat16 ? 6e4f : 1e18f, tiny = type == kMojoFloat16 ? 1e-6f : 1e-15f;
  numbers->Fill(random, values == kHuge ? huge / 8 : values == kTiny ? tiny : values == kZero ? 0 : 1.5f);
  if (values != kSpecial) return;
  const float special[] = {NAN,   INFINITY, -INFINITY, 88,    -88,   89, -89, 104, -104,  1e4f,
                           -1e4f, 3e4f,     -3e4f,     -0.0f, 1e-5f, 5,  -5,  13,  -13.5f};
  for (size_t i = 0; i < numbers->count(); i += 1 + random->Below(5)) {
    numbers->Set(i, special[random->Below(sizeof(special) / sizeof(special[0]))]);
  }
}

// Normalize returns the norm of a row in float32, and the row's squares' mean plus epsilon is of double.
void Normalize(const std::vector<float>& x, const std::function<float(size_t)>& scale, float epsilon, bool after,
               MojoType y, float* out, float* off) {
  double squares = 0;
  for (float v : x) squares += static_cast<double>(v) * v;
  const double inv = 1 / sqrt(squares / static_cast<double>(x.size()) + epsilon);
  for (size_t i = 0; i < x.size(); ++i) {
    double n = x[i] * inv;
    if (after) n = RoundTo(y, n);
    out[i] = RoundTo(y, n * scale(i));
    off[i] = static_cast<float>(fabs(out[i]) * Unit(y) * (y == kMojoFloat32 ? 8 : 1) * (after ? 2 : 1) +
                                2 * Least(y) * (1 + fabs(scale(i))));
  }
}

struct NormCase {
  size_t rows, width;
  MojoType x, scale;
  bool after, add;
  Values values = kNormal;
  size_t offset = 0;
  bool in_place = false;
  bool no_sum = false;
};

void TestNorm(Tally* tally, const NormCase& c) {
  const std::string name = std::to_string(c.rows) + "x" + std::to_string(c.width) + " " + TypeName(c.x) + "/" +
                           TypeName(c.scale) + (c.after ? " after" : "") + " values " + std::to_string(c.values) +
                           " offset " + std::to_string(c.offset) + (c.in_place ? " in place" : "");
  const MojoType y_type = c.after ? c.scale : c.x;
  const size_t count = c.rows * c.width;
  Random random(count + c.values);
  Numbers x(c.x, count, c.offset), residual(c.x, count, c.offset), scale(c.scale, c.width, c.offset);
  Numbers y(y_type, count, c.offset), sum(c.x, count, c.offset);
  FillWith(&x, c.values, c.x, &random);
  FillWith(&residual, c.values, c.x, &random);
  scale.Fill(&random, 1);
  Want want(count), want_sum(count);
  const float epsilon = c.values == kZero ? 1e-6f : 1e-5f;
  InParallel(c.rows, [&](size_t begin, size_t end) {
    std::vector<float> row(c.width);
    for (size_t r = begin; r < end; ++r) {
      for (size_t i = 0; i < c.width; ++i) {
        const size_t at = r * c.width + i;
        row[i] = c.add ? RoundTo(c.x, x.Get(at) + residual.Get(at)) : x.Get(at);
        want_sum.value[at] = row[i];
      }
      Normalize(
          row, [&](size_t i) { return scale.Get(i); }, epsilon, c.after, y_type, &want.value[r * c.width],
          &want.off[r * c.width]);
    }
  });
  x.ToDevice(), residual.ToDevice(), scale.ToDevice();
  Numbers* y_at = c.in_place ? (c.add ? &residual : &x) : &y;
  Numbers* sum_at = c.in_place ? &x : &sum;
  const MojoRMSNormArgs args = {
      x.device(), residual.device(), scale.device(), y_at->device(), c.no_sum ? nullptr : sum_at->device(),
      c.rows,     c.width,           epsilon,        c.after,        c.x,
      c.scale};
  Done(tally, name, c.add ? MojoCudaAddRMSNorm(&args, nullptr) : MojoCudaRMSNorm(&args, nullptr));
  Compare(tally, name, y_at, y_type, want, 0.01);
  if (c.add && !c.no_sum) Compare(tally, name + " sum", sum_at, c.x, want_sum, 0);
}

void TestNorms(Tally* norm, Tally* add_norm) {
  const MojoType f32 = kMojoFloat32, f16 = kMojoFloat16, bf16 = kMojoBFloat16;
  const struct {
    MojoType x, scale;
    bool after;
  } forms[] = {{bf16, bf16, false}, {bf16, bf16, true}, {f16, f16, false},  {f16, f16, true}, {f32, f32, false},
               {f32, f32, true},    {f16, f32, false},  {bf16, f32, false}, {f32, f16, true}, {f32, bf16, true}};
  const size_t rows[] = {0, 1, 3, 8, 33, 512, 4096};
  const size_t widths[] = {1,    7,    8,    64,   100,  128,   576,   768,   1000, 1024,
                           2048, 2880, 4096, 7168, 8192, 16384, 20000, 32768, 40000};
  for (const bool add : {false, true}) {
    Tally* tally = add ? add_norm : norm;
    for (const auto& f : forms) {
      for (const size_t r : rows) {
        for (const size_t w : widths) {
          // All sizes for the first form, a few for the others.
          const bool all = &f == forms;
          if (r * w > (small ? 60000 : all ? 9000000 : 1200000)) continue;
          if (!all && r != 1 && r != 33 && w != 2048 && w != 128) continue;
          TestNorm(tally, {r, w, f.x, f.scale, f.after, add});
        }
      }
      for (const size_t w : {128, 768, 4096, 7168, 40000}) {
        for (const Values values : {kHuge, kTiny, kZero, kSpecial}) {
          TestNorm(tally, {5, w, f.x, f.scale, f.after, add, values});
        }
        const bool same = f.x == (f.after ? f.scale : f.x);
        if (same) TestNorm(tally, {9, w, f.x, f.scale, f.after, add, kNormal, 0, true});
        TestNorm(tally, {9, w, f.x, f.scale, f.after, add, kNormal, 4, same});
        TestNorm(tally, {9, w, f.x, f.scale, f.after, add, kHuge, 8});
        if (add) TestNorm(tally, {9, w, f.x, f.scale, f.after, add, kNormal, 0, false, true});
      }
    }
  }
}

// TestNormPlans does rows in every way that holds them, also in those that are not chosen at this size.
void TestNormPlans(Tally* norm, Tally* add_norm) {
  using mojo::NormPlan;
  for (const MojoType type : {kMojoBFloat16, kMojoFloat16}) {
    for (const size_t width : {128, 1024, 2048, 2880, 4096, 7168, 20000}) {
      const int packs = static_cast<int>(width / 8);
      const auto warps = [](int threads) { return (threads + 31) / 32 * 32; };
      std::vector<NormPlan> plans = {{NormPlan::kAny, 0, 1}};
      if (packs <= 128) plans.push_back({NormPlan::kGroups4, 32, 4});
      for (int each : {2, 4, 8}) {
        const int threads = warps((packs + each - 1) / each);
        const auto form = each == 2 ? NormPlan::kBlock2 : each == 4 ? NormPlan::kBlock4 : NormPlan::kBlock8;
        if (threads <= 512) plans.push_back({form, threads, 1});
      }
      for (const NormPlan& plan : plans) {
        mojo::ForceNormPlan(&plan);
        for (const Values values : {kNormal, kHuge}) {
          for (const bool after : {false, true}) {
            TestNorm(norm, {5, width, type, type, after, false, values});
            TestNorm(add_norm, {5, width, type, type, after, true, values});
          }
        }
      }
      mojo::ForceNormPlan(nullptr);
    }
  }
}

double Activation(MojoActivation activation, double g, double alpha) {
  switch (activation) {
    case kMojoSilu: return g / (1 + exp(-alpha * g));
    case kMojoGelu:
      // 1 + erf(z) without cancellation.
      return g == -INFINITY ? NAN : 0.5 * g * erfc(-g / sqrt(2.0));
    default: {
      const double z = sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g);
      return g == -INFINITY ? NAN : g / (1 + exp(-2 * z));
    }
  }
}

struct GatedCase {
  size_t rows, width, groups;
  MojoType x, gate, scale;
  bool first, after;
  Values values = kNormal;
  size_t offset = 0;
  int in_place = 0;  // 1: over x, 2: over the gate
};

void TestGated(Tally* tally, const GatedCase& c) {
  const std::string name = std::to_string(c.rows) + "x" + std::to_string(c.width) + " groups " +
                           std::to_string(c.groups) + " " + TypeName(c.x) + "/" + TypeName(c.gate) + "/" +
                           TypeName(c.scale) + (c.first ? " gate first" : "") + (c.after ? " after" : "") + " values " +
                           std::to_string(c.values) + " offset " + std::to_string(c.offset) + " in place " +
                           std::to_string(c.in_place);
  const size_t count = c.rows * c.width;
  Random random(count + c.values);
  Numbers x(c.x, count, c.offset), gate(c.gate, count, c.offset), scale(c.scale, c.width * c.groups, c.offset);
  Numbers y(c.gate, count, c.offset);
  FillWith(&x, c.values, c.x, &random);
  FillWith(&gate, kNormal, c.gate, &random);
  scale.Fill(&random, 1);
  Want want(count);
  const float epsilon = 1e-5f;
  InParallel(c.rows, [&](size_t begin, size_t end) {
    std::vector<float> row(c.width), a(c.width);
    const bool wide = c.gate == kMojoFloat32;
    for (size_t r = begin; r < end; ++r) {
      for (size_t i = 0; i < c.width; ++i) {
        const size_t at = r * c.width + i;
        a[i] = static_cast<float>(Activation(kMojoSilu, gate.Get(at), 1));
        row[i] = c.first ? x.Get(at) * a[i] : x.Get(at);
      }
      Normalize(
          row, [&](size_t i) { return scale.Get(r % c.groups * c.width + i); }, epsilon, c.after,
          c.after ? c.gate : kMojoFloat32, &want.value[r * c.width], &want.off[r * c.width]);
      for (size_t i = 0; i < c.width; ++i) {
        const size_t at = r * c.width + i;
        if (!c.first) want.value[at] *= a[i], want.off[at] *= fabsf(a[i]);
        want.value[at] = RoundTo(c.gate, want.value[at]);
        want.off[at] += static_cast<float>(fabs(want.value[at]) * Unit(c.gate) * (wide ? 24 : 1) + 2 * Least(c.gate));
      }
    }
  });
  x.ToDevice(), gate.ToDevice(), scale.ToDevice();
  Numbers* at = c.in_place == 1 ? &x : c.in_place == 2 ? &gate : &y;
  const MojoGatedRMSNormArgs args = {x.device(), gate.device(), scale.device(), at->device(), c.rows, c.width, c.groups,
                                     c.first,    epsilon,       c.after,        c.x,          c.gate, c.scale};
  Done(tally, name, MojoCudaGatedRMSNorm(&args, nullptr));
  Compare(tally, name, at, c.gate, want, c.values == kNormal ? 0.03 : 1);
}

void TestGatedNorms(Tally* tally) {
  const MojoType f32 = kMojoFloat32, f16 = kMojoFloat16, bf16 = kMojoBFloat16;
  const struct {
    MojoType x, gate, scale;
    bool after;
  } forms[] = {{f32, f32, f32, false},   {f16, f16, f16, false},   {f16, f16, f16, true},   {bf16, bf16, bf16, false},
               {bf16, bf16, bf16, true}, {bf16, bf16, f32, false}, {f32, bf16, f32, false}, {f32, f16, f16, false}};
  for (const auto& f : forms) {
    for (const bool first : {false, true}) {
      const auto test = [&](size_t rows, size_t width, size_t groups, Values values = kNormal, size_t offset = 0,
                            int in_place = 0) {
        TestGated(tally, {rows, width, groups, f.x, f.gate, f.scale, first, f.after, values, offset, in_place});
      };
      for (const size_t width : {1, 7, 8, 64, 100, 128, 768, 1000, 1024, 2048, 5120, 8192, 12288, 16384, 20000}) {
        for (const size_t rows : {1, 6, 33, 512}) {
          if (rows * width > (small ? 60000 : 1200000)) continue;
          test(rows, width, 1);
          if (rows % 3 == 0) test(rows, width, 3);
        }
      }
      for (const size_t width : {128, 768, 4096, 12288, 40000}) {
        for (const Values values : {kHuge, kTiny, kZero}) test(5, width, 1, values);
        if (f.x == f.gate) test(9, width, 1, kNormal, 0, 1);
        test(9, width, 3, kNormal, 0, 2);
        test(9, width, 1, kNormal, 4);
      }
    }
  }
}

struct GLUCase {
  size_t count;
  MojoType type;
  MojoActivation activation;
  float alpha = 1, limit = 0, up_offset = 0;
  Values values = kNormal;
  size_t offset = 0;
  bool in_place = false;
};

void TestGLU(Tally* tally, const GLUCase& c) {
  const std::string name = std::to_string(c.count) + " " + TypeName(c.type) + " activation " +
                           std::to_string(c.activation) + " limit " + std::to_string(c.limit) + " values " +
                           std::to_string(c.values) + " offset " + std::to_string(c.offset);
  Random random(c.count + c.values);
  Numbers gate(c.type, c.count, c.offset), up(c.type, c.count, c.offset), y(c.type, c.count, c.offset);
  FillWith(&gate, c.values, c.type, &random);
  FillWith(&up, c.values == kSpecial ? kNormal : c.values, c.type, &random);
  Want want(c.count);
  InParallel(c.count, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      float g = gate.Get(i), u = up.Get(i);
      if (c.limit > 0) {
        g = g > c.limit ? c.limit : g;
        u = u > c.limit ? c.limit : u < -c.limit ? -c.limit : u;
      }
      const float a = RoundTo(c.type, Activation(c.activation, g, c.alpha)), v = RoundTo(c.type, u + c.up_offset);
      want.value[i] = RoundTo(c.type, static_cast<double>(a) * v);
      // A gate of minus infinity is 0 times infinity by the letter; its limit 0, or next to it, is as good.
      if (g == -INFINITY) want.value[i] = NAN;
      want.off[i] =
          static_cast<float>(fabs(want.value[i]) * Unit(c.type) * (c.type == kMojoFloat32 ? 24 : 2) +
                             Least(c.type) * (1 + fabs(v)) + (c.activation == kMojoGelu ? 1e-7 : 0) * fabs(v));
    }
  });
  gate.ToDevice(), up.ToDevice();
  Numbers* at = c.in_place ? &gate : &y;
  const MojoGLUArgs args = {gate.device(), up.device(), at->device(), c.count,    c.type,
                            c.activation,  c.alpha,     c.limit,      c.up_offset};
  Done(tally, name, MojoCudaGLU(&args, nullptr));
  at->ToHost();
  for (size_t i = 0; i < c.count; ++i) {
    if (isnan(want.value[i]) && fabs(at->Get(i)) < 1e-30) want.value[i] = at->Get(i);
  }
  Compare(tally, name, at, c.type, want, c.values == kNormal ? 0.02 : 1);
}

void TestGLUs(Tally* tally) {
  const size_t counts[] = {
      0, 1, 3, 7, 8, 33, 100, 2048, 7168, 3 * 2880, 8 * 7168 + 5, 33 * 4096, 512 * 2048 + 1, 4096 * 768};
  for (const MojoType type : {kMojoBFloat16, kMojoFloat16, kMojoFloat32}) {
    for (const MojoActivation activation : {kMojoSilu, kMojoGelu, kMojoGeluTanh}) {
      for (const size_t n : counts) {
        if (n > (small ? 60000 : 4000000)) continue;
        TestGLU(tally, {n, type, activation});
        TestGLU(tally, {n, type, activation, activation == kMojoSilu ? 1.702f : 1, 7, 1});
      }
      for (const Values values : {kHuge, kTiny, kZero, kSpecial}) {
        TestGLU(tally, {5001, type, activation, 1, 0, 0, values});
        TestGLU(tally, {5001, type, activation, 1, 7, 1, values});
      }
      TestGLU(tally, {5001, type, activation, 1, 0, 0, kNormal, 4});
      TestGLU(tally, {5001, type, activation, 1, 7, 1, kSpecial, 4});
      TestGLU(tally, {5008, type, activation, 1, 0, 0, kNormal, 0, true});
      TestGLU(tally, {5001, type, activation, 1, 0, 0, kNormal, 8});
    }
  }
}

// RotaryCase is one tensor of leading dims; bit i of a mask tells that the table has dims[i], else it is 1
// there.
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
    r.rank = static_cast<int>(c.dims.size());
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

// TestRotary does one or two tensors in one call.
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

// Attention is x of T tokens (or B sequences of S) with that many heads of 128, as models have it.
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

// TestChain does ops that read what the one before wrote and write what it read, without kernels that may start
// while that one ends, with them, and with them in a graph: the numbers must be the same.
void TestChain(Tally* tally, size_t rows, size_t width) {
  const std::string name = std::to_string(rows) + "x" + std::to_string(width);
  const size_t count = rows * width;
  Random random(5);
  Numbers x(kMojoBFloat16, count), scale(kMojoBFloat16, width), a(kMojoBFloat16, count), b(kMojoBFloat16, count);
  Numbers table(kMojoBFloat16, 128), q(kMojoBFloat16, count);
  x.Fill(&random, 1), scale.Fill(&random, 1), table.Fill(&random, 0.7f);
  scale.ToDevice(), table.ToDevice();
  std::vector<char> results[3];
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream), "stream");
  for (int way = 0; way < 3; ++way) {
    const bool in_graph = way == 2;
    MojoCudaSetDependentLaunch(way > 0);
    x.ToDevice();
    a.Poison(), b.Poison(), q.Poison();
    MojoRMSNormArgs norm = {x.device(), b.device(), scale.device(), a.device(),   x.device(), rows, width,
                            1e-6f,      1,          kMojoBFloat16,  kMojoBFloat16};
    const MojoGLUArgs glu = {a.device(), q.device(), b.device(), count, kMojoBFloat16, kMojoSilu, 1, 0, 0};
    MojoRotaryArgs rotary = {};
    rotary.x = a.device(), rotary.y = q.device(), rotary.cos = rotary.sin = table.device();
    rotary.rank = 1, rotary.dims[0] = count / 128, rotary.width = rotary.rotated = 128;
    rotary.type = kMojoBFloat16;
    rotary.cos_wide = rotary.sin_wide = 1;
    Check(cudaDeviceSynchronize(), "operands");
    cudaError_t error = cudaSuccess;
    if (in_graph) Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < 30 && error == cudaSuccess; ++i) {
      error = i == 0 ? MojoCudaRMSNorm(&norm, stream) : MojoCudaAddRMSNorm(&norm, stream);
      if (error == cudaSuccess) error = MojoCudaRotaryEmbedding(&rotary, 1, stream);
      if (error == cudaSuccess) error = MojoCudaGLU(&glu, stream);
    }
    if (in_graph) {
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      Check(cudaStreamEndCapture(stream, &graph), "end of capture");
      Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
      Check(cudaGraphLaunch(exec, stream), "graph");
      Check(cudaStreamSynchronize(stream), "graph");
      Check(cudaGraphExecDestroy(exec), "graph");
      Check(cudaGraphDestroy(graph), "graph");
    }
    Done(tally, name, error);
    b.ToHost();
    results[way] = b.bytes();
  }
  Check(cudaStreamDestroy(stream), "stream");
  if (results[0] != results[1]) Fail(tally, name, "another result with dependent launches");
  if (results[0] != results[2]) Fail(tally, name, "another result in a graph");
  for (size_t i = 0; i < count; ++i) {
    if (isnan(b.Get(i))) return Fail(tally, name, "a number was read before it was written");
  }
}

}  // namespace

int main(int argc, char** argv) {
  small = argc > 1 && strcmp(argv[1], "small") == 0;
  Tally tallies[] = {{"RMSNorm"},    {"AddRMSNorm"},        {"GLU"},         {"RotaryEmbedding"},
                     {"NormRotary"}, {"one after another"}, {"GatedRMSNorm"}};
  TestNorms(&tallies[0], &tallies[1]);
  TestNormPlans(&tallies[0], &tallies[1]);
  TestGLUs(&tallies[2]);
  TestGatedNorms(&tallies[6]);
  TestRotaries(&tallies[3], false);
  TestRotaries(&tallies[4], true);
  TestChain(&tallies[5], 1, 4096);
  if (!small) TestChain(&tallies[5], 64, 7168), TestChain(&tallies[5], 2048, 2048);
  printf("%-18s %6s %6s %22s %18s\n", "op", "cases", "failed", "worst error/tolerance", "16 bit unequal");
  bool ok = true;
  for (const Tally& t : tallies) {
    printf("%-18s %6d %6d %22.3f %17.3f%%\n", t.op, t.cases, t.failed, t.worst, 100 * t.unequal);
    ok = ok && t.failed == 0;
  }
  return ok ? 0 : 1;
}
