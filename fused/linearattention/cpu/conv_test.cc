// CausalConv token by token against all tokens at once: the same bits.
#include "tests/testing.h"

namespace mojo_test {
namespace {

using mojo::ConvArgs;

void StepsAndCompare(const mojo::KernelTable& kernels, const ConvArgs& sizes, ElementType type, std::mt19937* rng) {
  const size_t sequences = 2, rows = sequences * sizes.channels, tokens = sizes.tokens, kept = sizes.kept;
  const Buffer x(type, Random(rng, rows * tokens, 1)), weight(type, Random(rng, sizes.channels * sizes.width, 1));
  const Buffer bias(type, Random(rng, sizes.channels, 1)), past(type, Random(rng, rows * kept, 1));
  Buffer y(type, rows * tokens), present(type, rows * kept);
  ConvArgs args = sizes;
  args.x = x.data(), args.weight = weight.data(), args.bias = bias.data(), args.past = past.data();
  args.y = y.data(), args.present = present.data();
  const mojo::ConvFn run = kernels.conv(type);
  run(args, 0, rows);

  Buffer state(past), column(type, rows), row(type, rows);
  args.x = column.data(), args.y = row.data(), args.past = args.present = state.data();
  args.tokens = 1;
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t r = 0; r < rows; ++r) column.Set(r, x.Get(r * tokens + t));
    const size_t cut = rows * (t + 1) / (tokens + 1);  // as two tasks
    run(args, 0, cut);
    run(args, cut, rows);
    for (size_t r = 0; r < rows; ++r) {
      Check(row.Get(r) == y.Get(r * tokens + t),
            "%s: CausalConv %s width %zu kept %zu row %zu token %zu: %.9g, want %.9g", kernels.name, TypeName(type),
            sizes.width, kept, r, t, row.Get(r), y.Get(r * tokens + t));
    }
  }
  for (size_t i = 0; i < rows * kept; ++i) {
    Check(state.Get(i) == present.Get(i), "%s: CausalConv %s width %zu kept %zu: present[%zu] is %.9g, want %.9g",
          kernels.name, TypeName(type), sizes.width, kept, i, state.Get(i), present.Get(i));
  }
}

}  // namespace

MOJO_TEST(TestConvSteps) {
  std::mt19937 rng(1);
  for (const ElementType type : kTypes) {
    for (size_t width = 1; width <= 5; ++width) {
      for (size_t kept = width - 1; kept <= width + 1; ++kept) {
        for (const size_t channels : {1, 19, 50}) {
          ConvArgs sizes{};
          sizes.channels = channels, sizes.tokens = 7, sizes.width = width, sizes.kept = kept, sizes.silu = true;
          StepsAndCompare(kernels, sizes, type, &rng);
        }
      }
    }
  }
}

}  // namespace mojo_test
