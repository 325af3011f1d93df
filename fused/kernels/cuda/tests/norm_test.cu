// RMSNorm, AddRMSNorm and GatedRMSNorm against their definitions in double on the host. Exits 1 on a failure.
// `make cuda-programs` builds it. An argument "small" keeps to sizes that compute-sanitizer can follow.
#include "cuda/tests/tally.h"
#include "rmsnorm/cuda/rms_norm.cuh"

namespace {

bool small = false;

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
  MojoRMSNormArgs args = {{0, epsilon, c.after}};
  args.x = x.device(), args.residual = residual.device(), args.scale = scale.device();
  args.y = y_at->device(), args.sum = c.no_sum ? nullptr : sum_at->device();
  args.rows = c.rows, args.width = c.width;
  args.x_type = c.x, args.scale_type = c.scale;
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

// TestNormPlans runs rows with every plan that holds them, including plans not chosen at this size.
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
        a[i] = static_cast<float>(Activation(mojo::Activation::kSilu, gate.Get(at), 1));
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
  MojoGatedRMSNormArgs args = {{c.first, static_cast<int64_t>(c.groups), epsilon, c.after}};
  args.x = x.device(), args.gate = gate.device(), args.scale = scale.device(), args.y = at->device();
  args.rows = c.rows, args.width = c.width;
  args.x_type = c.x, args.gate_type = c.gate, args.scale_type = c.scale;
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

}  // namespace

int main(int argc, char** argv) {
  small = argc > 1 && strcmp(argv[1], "small") == 0;
  Tally norm{"RMSNorm"}, add_norm{"AddRMSNorm"}, gated{"GatedRMSNorm"};
  TestNorms(&norm, &add_norm);
  TestNormPlans(&norm, &add_norm);
  TestGatedNorms(&gated);
  return Report({&norm, &add_norm, &gated});
}
