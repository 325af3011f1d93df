// GLU against a naive reference in double.
#include <math.h>

#include "tests/activations.h"
#include "tests/testing.h"

namespace mojo_test {
namespace {

using mojo::Activation;
using mojo::GateArgs;

struct Parameters {
  float alpha, limit, offset;
};

double Activated(Activation kind, double g, double alpha) {
  if (kind == mojo::Activation::kSilu) {
    // In float32 e^-x overflows beyond 88.7228 and the sigmoid is 0.
    return g * (-alpha * g > 88.7228 ? 0.0 : 1 / (1 + exp(-alpha * g)));
  }
  // At -infinity the formula of gelu is -infinity * 0; the kernel returns the limit.
  if (kind == mojo::Activation::kGelu && g == -INFINITY) return 0;
  return kind == mojo::Activation::kGelu ? mojo_test::Gelu(g) : mojo_test::GeluTanh(g);
}

Exactness exactness;  // of the narrow results

void RunAndCompare(const mojo::KernelTable& kernels, Activation kind, const Parameters& p, const Buffer& gate,
                   const Buffer& up, bool in_place) {
  const ElementType type = gate.type();
  const size_t n = gate.size();
  Buffer first(gate), y(type, n);
  GateArgs args{first.data(), up.data(), in_place ? first.data() : y.data(), p.alpha, p.limit, p.offset};
  const mojo::GateFn run = kernels.gate(type, kind);
  run(args, 0, n / 3);
  run(args, n / 3, n);
  const Buffer& out = in_place ? first : y;
  for (size_t i = 0; i < n; ++i) {
    double g = gate.Get(i), u = up.Get(i);
    if (p.limit > 0) {
      if (g > p.limit) g = p.limit;
      if (u > p.limit) u = p.limit;
      if (u < -p.limit) u = -p.limit;
    }
    const double a = Round(type, Activated(kind, g, p.alpha));
    const double offset_up = Round(type, Round(mojo::kFloat32, u + p.offset));
    const double want = Round(type, a * offset_up);
    const double got = out.Get(i);
    // The activation's own error (for e^x also the error of its rounded argument), then a unit of the type for each
    // rounding that may fall on the other side.
    const double narrow = type == mojo::kFloat32 ? 0 : Epsilon(type);
    double own = fabs(a) * (5e-7 + 1e-7 * fmin(fabs(p.alpha * g), 90));
    if (kind == mojo::Activation::kGelu) own += fmin(fabs(g), 10) * 1.5e-7;      // 1 + erf cancels
    if (kind == mojo::Activation::kGeluTanh) own += fmin(fabs(g), 10) * 1.5e-7;  // 1 + tanh too
    if (type == mojo::kFloat16) own += 6e-8;                                     // subnormals
    const double tolerance = own * fabs(offset_up) + 2 * narrow * fabs(want) + (type == mojo::kFloat16 ? 6e-8 : 3e-37);
    if (type != mojo::kFloat32) exactness.Count(got, want);
    Check(Near(got, want, tolerance), "%s: GLU %d %s alpha %g limit %g offset %g of %g, %g: %.9g, want %.9g",
          kernels.name, static_cast<int>(kind), TypeName(type), p.alpha, p.limit, p.offset, gate.Get(i), u, got, want);
  }
}

// Sweep returns many gates over a range, with an up of 1: only the activation counts.
void Sweep(const mojo::KernelTable& kernels, Activation kind) {
  std::vector<double> g;
  for (int i = -40000; i <= 40000; ++i) g.push_back(i * 0.0025);
  for (double m = 1e-45; m < 1e38; m *= 1.7) {
    g.push_back(m);
    g.push_back(-m);
  }
  for (const double s : {0.0, -0.0, (double)INFINITY, -(double)INFINITY, (double)NAN}) g.push_back(s);
  const Buffer gate(mojo::kFloat32, g);
  const Buffer up(mojo::kFloat32, std::vector<double>(g.size(), 1.0));
  RunAndCompare(kernels, kind, {1, 0, 0}, gate, up, false);
}

}  // namespace

MOJO_TEST(TestGates) {
  std::mt19937 rng(11);
  exactness = Exactness();
  const Parameters plain{1, 0, 0}, clamped{1.702f, 7, 1}, quick{1.702f, 0, 0}, flat{0, 0, 0}, turned{-1, 0, 0},
      limited{1, 2.5f, 0.5f};
  for (const Activation kind : {mojo::Activation::kSilu, mojo::Activation::kGelu, mojo::Activation::kGeluTanh}) {
    Sweep(kernels, kind);
    for (const ElementType type : kTypes) {
      for (const size_t n : kSizes) {
        const Buffer gate(type, Random(&rng, n, 4)), up(type, Random(&rng, n, 4));
        for (const Parameters& p : {plain, clamped, quick, flat, turned, limited}) {
          if (kind != mojo::Activation::kSilu && p.alpha != 1) continue;
          RunAndCompare(kernels, kind, p, gate, up, false);
          RunAndCompare(kernels, kind, p, gate, up, true);
        }
      }
      const Buffer none(type, 0), special(type, {NAN, 1, INFINITY, 1, -INFINITY, 100, -100, 0}),
          other(type, {1, NAN, 1, INFINITY, 1, -INFINITY, 50, -3});
      RunAndCompare(kernels, kind, plain, none, none, false);
      RunAndCompare(kernels, kind, plain, special, other, false);
      RunAndCompare(kernels, kind, limited, special, other, false);
    }
  }
  Check(exactness.Good(), "%s: GLU: %ld of %ld narrow results differ", kernels.name, exactness.different,
        exactness.total);
}

}  // namespace mojo_test
