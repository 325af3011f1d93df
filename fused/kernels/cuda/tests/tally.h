// Shared parts of the tests of ops on rows: the tally of an op, the values of its inputs, and norms and activations in
// double.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include "cuda/tests/host.h"
#include "tests/activations.h"

// RoundTo is v rounded to float32 and then to type.
inline float RoundTo(MojoType type, double v) {
  float out = static_cast<float>(v);
  Store(&out, 0, type, static_cast<float>(v));
  return Load(&out, 0, type);
}

// Least is the error that any result may have: the type cannot hold smaller numbers in full.
inline double Least(MojoType type) { return type == kMojoFloat16 ? 0x1p-24 : 1e-36; }

// Tally is the results for one op.
struct Tally {
  const char* op;
  int cases = 0;
  int failed = 0;
  double worst = 0;    // error over tolerance
  double unequal = 0;  // the largest part of a 16 bit result that is not the reference's number
};

// Want is the expected result and its allowed error.
struct Want {
  std::vector<float> value;
  std::vector<float> off;

  explicit Want(size_t count) : value(count), off(count) {}
};

inline void Fail(Tally* tally, const std::string& name, const char* what) {
  ++tally->failed;
  if (tally->failed <= 10) printf("FAIL %s %s: %s\n", tally->op, name.c_str(), what);
}

// Compare reads a result back and compares it. Of 16 bit results no more than allowed_unequal may be another
// number than the reference's, or else a rounding is missing; that holds for usual values.
inline void Compare(Tally* tally, const std::string& name, Numbers* got, MojoType type, const Want& want,
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
inline void Done(Tally* tally, const std::string& name, cudaError_t launched) {
  ++tally->cases;
  if (launched != cudaSuccess) Fail(tally, name, cudaGetErrorString(launched));
  Check(cudaDeviceSynchronize(), (std::string(tally->op) + " " + name).c_str());
}

enum Values { kNormal, kHuge, kTiny, kZero, kSpecial };

inline void FillWith(Numbers* numbers, Values values, MojoType type, Random* random) {
  // The squares of huge numbers overflow only in the sum.
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
inline void Normalize(const std::vector<float>& x, const std::function<float(size_t)>& scale, float epsilon, bool after,
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

inline double Activation(mojo::Activation activation, double g, double alpha) {
  switch (activation) {
    case mojo::Activation::kSilu: return mojo_test::Silu(g, alpha);
    case mojo::Activation::kGelu: return mojo_test::Gelu(g);
    default: return mojo_test::GeluTanh(g);
  }
}

// CompareActivated is Compare for results of an activation. At minus infinity its formula is 0 times infinity; the
// limit 0, or a number next to it, is equally correct.
inline void CompareActivated(Tally* tally, const std::string& name, Numbers* got, MojoType type, Want* want,
                             double allowed_unequal) {
  got->ToHost();
  for (size_t i = 0; i < want->value.size(); ++i) {
    if (isnan(want->value[i]) && fabs(got->Get(i)) < 1e-30) want->value[i] = got->Get(i);
  }
  Compare(tally, name, got, type, *want, allowed_unequal);
}

// Report prints tallies, and returns the program's status.
inline int Report(std::initializer_list<const Tally*> tallies) {
  printf("%-18s %6s %6s %22s %18s\n", "op", "cases", "failed", "worst error/tolerance", "16 bit unequal");
  bool ok = true;
  for (const Tally* t : tallies) {
    printf("%-18s %6d %6d %22.3f %17.3f%%\n", t->op, t->cases, t->failed, t->worst, 100 * t->unequal);
    ok = ok && t->failed == 0;
  }
  return ok ? 0 : 1;
}
