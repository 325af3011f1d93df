// AddLayerNorm and BiasGELU against their definitions in double on the host. Exits 1 on a failure. `make cuda-programs`
// builds it.
#include "cuda/tests/tally.h"

namespace {

struct Case {
  size_t rows, width;
  MojoType x, y;
  Values values = kNormal;
  size_t offset = 0;
  bool in_place = false, x_bias = true, sum = true;
};

std::string NameOf(const Case& c) {
  return std::to_string(c.rows) + "x" + std::to_string(c.width) + " " + TypeName(c.x) + "/" + TypeName(c.y) +
         " values " + std::to_string(c.values) + " offset " + std::to_string(c.offset) +
         (c.in_place ? " in place" : "");
}

void TestLayer(Tally* tally, const Case& c) {
  const size_t count = c.rows * c.width;
  Random random(count + c.values);
  Numbers x(c.x, count, c.offset), residual(c.x, count, c.offset), x_bias(c.x, c.width, c.offset);
  Numbers scale(c.y, c.width, c.offset), bias(c.y, c.width, c.offset), y(c.y, count, c.offset),
      sum(c.x, count, c.offset);
  FillWith(&x, c.values, c.x, &random);
  FillWith(&residual, c.values, c.x, &random);
  FillWith(&x_bias, c.values, c.x, &random);
  scale.Fill(&random, 1), bias.Fill(&random, 1);
  Want want(count), want_sum(count);
  const float epsilon = 1e-5f;
  InParallel(c.rows, [&](size_t begin, size_t end) {
    std::vector<double> row(c.width);
    for (size_t r = begin; r < end; ++r) {
      double mean = 0, squares = 0, most = 0;
      for (size_t i = 0; i < c.width; ++i) {
        const size_t at = r * c.width + i;
        const float v = c.x_bias ? RoundTo(c.x, static_cast<double>(x.Get(at)) + x_bias.Get(i)) : x.Get(at);
        want_sum.value[at] = RoundTo(c.x, static_cast<double>(v) + residual.Get(at));
        row[i] = RoundTo(c.y, want_sum.value[at]);
        mean += row[i] / c.width;
        most = std::max(most, fabs(row[i]));
      }
      for (double v : row) squares += (v - mean) * (v - mean) / c.width;
      const double inv = 1 / sqrt(squares + epsilon);
      for (size_t i = 0; i < c.width; ++i) {
        const size_t at = r * c.width + i;
        want.value[at] = RoundTo(c.y, (row[i] - mean) * inv * scale.Get(i) + bias.Get(i));
        // The mean is off by some units of float32 of the greatest number, the result by one of its type.
        want.off[at] = static_cast<float>(most * inv * fabs(scale.Get(i)) * 16 * Unit(kMojoFloat32) +
                                          fabs(want.value[at]) * Unit(c.y) + 4 * Unit(kMojoFloat32) + 2 * Least(c.y));
      }
    }
  });
  x.ToDevice(), residual.ToDevice(), x_bias.ToDevice(), scale.ToDevice(), bias.ToDevice();
  Numbers* y_at = c.in_place ? &residual : &y;
  Numbers* sum_at = c.in_place ? &x : &sum;
  MojoAddLayerNormArgs args = {{epsilon}};
  args.x = x.device(), args.residual = residual.device(), args.x_bias = c.x_bias ? x_bias.device() : nullptr;
  args.scale = scale.device(), args.bias = bias.device();
  args.y = y_at->device(), args.sum = c.sum ? sum_at->device() : nullptr;
  args.rows = c.rows, args.width = c.width;
  args.x_type = c.x, args.y_type = c.y;
  Done(tally, NameOf(c), MojoCudaAddLayerNorm(&args, nullptr));
  Compare(tally, NameOf(c), y_at, c.y, want, 0.05);
  if (c.sum) Compare(tally, NameOf(c) + " sum", sum_at, c.x, want_sum, 0);
}

void TestGelu(Tally* tally, const Case& c, mojo::Activation activation, float alpha) {
  const size_t count = c.rows * c.width;
  Random random(count + c.values);
  Numbers x(c.x, count, c.offset), bias(c.x, c.width, c.offset), y(c.x, count, c.offset);
  FillWith(&x, c.values, c.x, &random);
  bias.Fill(&random, 1);
  Want want(count);
  for (size_t i = 0; i < count; ++i) {
    const float g = RoundTo(c.x, static_cast<double>(x.Get(i)) + bias.Get(i % c.width));
    want.value[i] = RoundTo(c.x, Activation(activation, g, alpha));
    // In the tail the result is g e^x, and one rounding of x moves that by |x| units.
    const double tail = want.value[i] == 0 ? 0 : fabs(log(fabs(want.value[i] / g)));
    want.off[i] = static_cast<float>(fabs(want.value[i]) * Unit(c.x) * (c.x == kMojoFloat32 ? 24 + tail : 2) +
                                     Least(c.x) + (activation == mojo::Activation::kGelu ? 1e-7 : 0));
  }
  x.ToDevice(), bias.ToDevice();
  Numbers* at = c.in_place ? &x : &y;
  MojoBiasGELUArgs args = {{activation, alpha}};
  args.x = x.device(), args.bias = bias.device(), args.y = at->device();
  args.rows = c.rows, args.width = c.width, args.type = c.x;
  Done(tally, NameOf(c), MojoCudaBiasGELU(&args, nullptr));
  CompareActivated(tally, NameOf(c), at, c.x, &want, c.values == kNormal ? 0.02 : 1);
}

}  // namespace

int main() {
  Tally layer{"AddLayerNorm"}, gelu{"BiasGELU"};
  const MojoType f32 = kMojoFloat32, f16 = kMojoFloat16, bf16 = kMojoBFloat16;
  const MojoType types[][2] = {{f32, f32}, {f16, f16}, {bf16, bf16}, {f32, f16}, {f32, bf16}};
  for (const auto& t : types) {
    const bool same = t[0] == t[1];
    for (const size_t width : {1, 7, 64, 100, 384, 768, 1024, 1280, 3072, 5120, 12288, 20000}) {
      for (const size_t rows : {0, 1, 5, 197}) {
        TestLayer(&layer, {rows, width, t[0], t[1]});
        if (same) TestGelu(&gelu, {rows, width, t[0], t[1]}, mojo::Activation::kGelu, 1);
      }
      TestLayer(&layer, {9, width, t[0], t[1], kNormal, 4, false, true, false});
      TestLayer(&layer, {9, width, t[0], t[1], kNormal, 0, same, false, true});
      TestLayer(&layer, {9, width, t[0], t[1], kZero});
      TestLayer(&layer, {9, width, t[0], t[1], kTiny});
      if (!same) continue;
      TestLayer(&layer, {9, width, t[0], t[1], kHuge});
      for (const Values values : {kNormal, kHuge, kSpecial}) {
        TestGelu(&gelu, {9, width, t[0], t[1], values, 0, true}, mojo::Activation::kSilu, 1.702f);
        TestGelu(&gelu, {9, width, t[0], t[1], values, 4}, mojo::Activation::kGeluTanh, 1);
      }
    }
  }
  return Report({&layer, &gelu});
}
