// NormQuantize against its definition in double on the host. Exits 1 on a failure. `make cuda-programs` builds it.
#include "cuda/tests/tally.h"

namespace {

struct Case {
  size_t rows, width;
  MojoType x, scale;
  bool after, float8;
  bool residual = true, sum = true;
  Values values = kNormal;
  size_t offset = 0;
  bool in_place = false;  // the sum is written over x
};

std::string NameOf(const Case& c) {
  return std::to_string(c.rows) + "x" + std::to_string(c.width) + " " + TypeName(c.x) + "/" + TypeName(c.scale) +
         (c.after ? " after cast" : "") + (c.float8 ? " float8" : " int8") + " values " + std::to_string(c.values) +
         " offset " + std::to_string(c.offset) + (c.residual ? " residual" : "") + (c.in_place ? " in place" : "");
}

// Nearest rounds to 8 bits, halves to even.
double Nearest(double v, bool float8) {
  const double step = float8 ? ldexp(1, std::max(v == 0 ? -9 : ilogb(v) - 3, -9)) : 1;
  const double least = float8 ? -448 : -128, most = float8 ? 448 : 127;
  return std::min(std::max(nearbyint(v / step) * step, least), most);
}

// Decoded returns the number of a code.
double Decoded(char byte, bool float8) {
  const int code = static_cast<unsigned char>(byte), exponent = code >> 3 & 15, mantissa = code & 7;
  if (!float8) return static_cast<signed char>(byte);
  if ((code & 127) == 127) return NAN;
  const double v = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
  return code & 128 ? -v : v;
}

// Test runs a case. A result may be the other neighbor only if errors of float32 can move v / Y_scale across the
// middle, or move the norm across the middle between two numbers of the type that it is rounded to.
void Test(Tally* tally, const Case& c) {
  const size_t count = c.rows * c.width;
  const std::string name = NameOf(c);
  Random random(count + c.values);
  Numbers x(c.x, count, c.offset), residual(c.x, count, c.offset), sum(c.x, count, c.offset);
  Numbers scale(c.scale, c.width, c.offset), y_scale(kMojoFloat32, c.rows, c.offset);
  Numbers y(kMojoFloat16, (count + 1) / 2, c.offset);  // two codes in each
  FillWith(&x, c.values, c.x, &random);
  FillWith(&residual, c.values, c.x, &random);
  scale.Fill(&random, 1);
  std::vector<float> was(count);
  for (size_t i = 0; i < count; ++i) was[i] = x.Get(i);
  x.ToDevice(), residual.ToDevice(), scale.ToDevice();
  Numbers* sum_at = c.in_place ? &x : &sum;
  const float epsilon = 1e-5f, least_scale = 1e-9f;
  MojoNormQuantizeArgs args = {{epsilon, c.after, least_scale}};
  args.x = x.device(), args.residual = c.residual ? residual.device() : nullptr, args.scale = scale.device();
  args.y = y.device(), args.y_scale = static_cast<float*>(y_scale.device());
  args.sum = c.sum ? sum_at->device() : nullptr;
  args.rows = c.rows, args.width = c.width, args.float8 = c.float8;
  args.x_type = c.x, args.scale_type = c.scale;
  Done(tally, name, MojoCudaNormQuantize(&args, nullptr));
  y.ToHost(), y_scale.ToHost();
  Want want_sum(count);
  std::vector<char> failed(c.rows);
  InParallel(c.rows, [&](size_t begin, size_t end) {
    const auto rounded = [&](double v) { return c.after ? RoundTo(c.x, v) : v; };
    const double off = 16 * Unit(kMojoFloat32);
    for (size_t r = begin; r < end; ++r) {
      double mean = 0;
      for (size_t i = 0; i < c.width; ++i) {
        const size_t at = r * c.width + i;
        const float v = c.residual ? RoundTo(c.x, static_cast<double>(was[at]) + residual.Get(at)) : was[at];
        want_sum.value[at] = v;
        mean += static_cast<double>(v) * v / static_cast<double>(c.width);
      }
      const double inv = 1 / sqrt(mean + epsilon);
      // The least and the greatest norm that float32 may compute, and their scales.
      std::vector<double> to[2] = {std::vector<double>(c.width), std::vector<double>(c.width)};
      double scales[2];
      bool finite = true;
      for (int k = 0; k < 2; ++k) {
        double most = 0;
        for (size_t i = 0; i < c.width; ++i) {
          const double n = want_sum.value[r * c.width + i] * inv * (k == 0 ? 1 - off : 1 + off);
          to[k][i] = rounded(rounded(n) * scale.Get(i));
          most = std::max(most, fabs(to[k][i]));
          finite = finite && isfinite(to[k][i]);
        }
        scales[k] = std::max(most / (c.float8 ? 448 : 127), static_cast<double>(least_scale));
      }
      const double got_scale = y_scale.Get(r);
      if (!finite) {
        failed[r] = isfinite(got_scale);
        continue;
      }
      failed[r] = !(got_scale >= scales[0] * (1 - off) && got_scale <= scales[1] * (1 + off));
      for (size_t i = 0; i < c.width; ++i) {
        const double got = Decoded(y.bytes()[r * c.width + i], c.float8);
        const double a = Nearest(to[0][i] / scales[1] * (1 - off), c.float8);
        const double b = Nearest(to[1][i] / scales[0] * (1 + off), c.float8);
        failed[r] |= !(got >= std::min(a, b) && got <= std::max(a, b));
      }
    }
  });
  for (size_t r = 0; r < c.rows; ++r) {
    if (failed[r]) return Fail(tally, name, ("row " + std::to_string(r) + " is wrong").c_str());
  }
  if (!y.Guarded() || !y_scale.Guarded() || (count % 2 == 1 && y.bytes()[count] != static_cast<char>(0xff))) {
    Fail(tally, name, "it wrote beside its result");
  }
  if (c.sum) Compare(tally, name + " sum", sum_at, c.x, want_sum, 0);
}

}  // namespace

int main() {
  Tally tally{"NormQuantize"};
  const MojoType f32 = kMojoFloat32, f16 = kMojoFloat16, bf16 = kMojoBFloat16;
  const struct {
    MojoType x, scale;
    bool after;
  } types[] = {{f32, f32, false},   {f16, f16, false},  {f16, f16, true},  {f16, f32, false},
               {bf16, bf16, false}, {bf16, bf16, true}, {bf16, f32, false}};
  for (const auto& t : types) {
    for (const bool float8 : {false, true}) {
      for (const size_t width : {1, 7, 64, 100, 768, 1024, 1536, 4096, 7168, 16384, 20000}) {
        for (const size_t rows : {0, 1, 5, 197}) Test(&tally, {rows, width, t.x, t.scale, t.after, float8});
        Test(&tally, {9, width, t.x, t.scale, t.after, float8, false, false});
        Test(&tally, {9, width, t.x, t.scale, t.after, float8, true, true, kNormal, 4});
        Test(&tally, {9, width, t.x, t.scale, t.after, float8, true, true, kNormal, 0, true});
        Test(&tally, {9, width, t.x, t.scale, t.after, float8, true, true, kNormal, 4, true});
        for (const Values values : {kHuge, kTiny, kZero, kSpecial}) {
          Test(&tally, {9, width, t.x, t.scale, t.after, float8, false, true, values});
        }
      }
    }
  }
  return Report({&tally});
}
