// GLU against its definition in double on the host. Exits 1 on a failure. `make cuda-programs` builds it. An argument
// "small" keeps to sizes that compute-sanitizer can follow.
#include "cuda/tests/tally.h"

namespace {

bool small = false;

struct GLUCase {
  size_t count;
  MojoType type;
  mojo::Activation activation;
  float alpha = 1, limit = 0, up_offset = 0;
  Values values = kNormal;
  size_t offset = 0;
  bool in_place = false;
};

void TestGLU(Tally* tally, const GLUCase& c) {
  const std::string name = std::to_string(c.count) + " " + TypeName(c.type) + " activation " +
                           std::to_string(static_cast<int>(c.activation)) + " limit " + std::to_string(c.limit) +
                           " values " + std::to_string(c.values) + " offset " + std::to_string(c.offset);
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
      want.off[i] = static_cast<float>(fabs(want.value[i]) * Unit(c.type) * (c.type == kMojoFloat32 ? 24 : 2) +
                                       Least(c.type) * (1 + fabs(v)) +
                                       (c.activation == mojo::Activation::kGelu ? 1e-7 : 0) * fabs(v));
    }
  });
  gate.ToDevice(), up.ToDevice();
  Numbers* at = c.in_place ? &gate : &y;
  MojoGLUArgs args = {{c.activation, c.alpha, c.limit, c.up_offset}};
  args.gate = gate.device(), args.up = up.device(), args.y = at->device();
  args.count = c.count, args.type = c.type;
  Done(tally, name, MojoCudaGLU(&args, nullptr));
  CompareActivated(tally, name, at, c.type, &want, c.values == kNormal ? 0.02 : 1);
}

void TestGLUs(Tally* tally) {
  const size_t counts[] = {
      0, 1, 3, 7, 8, 33, 100, 2048, 7168, 3 * 2880, 8 * 7168 + 5, 33 * 4096, 512 * 2048 + 1, 4096 * 768};
  for (const MojoType type : {kMojoBFloat16, kMojoFloat16, kMojoFloat32}) {
    for (const mojo::Activation activation :
         {mojo::Activation::kSilu, mojo::Activation::kGelu, mojo::Activation::kGeluTanh}) {
      for (const size_t n : counts) {
        if (n > (small ? 60000 : 4000000)) continue;
        TestGLU(tally, {n, type, activation});
        TestGLU(tally, {n, type, activation, activation == mojo::Activation::kSilu ? 1.702f : 1, 7, 1});
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

}  // namespace

int main(int argc, char** argv) {
  small = argc > 1 && strcmp(argv[1], "small") == 0;
  Tally glu{"GLU"};
  TestGLUs(&glu);
  return Report({&glu});
}
