// LinearAttention with decays of every strength against the formula in double.
#include <math.h>

#include <algorithm>

#include "tests/testing.h"

namespace mojo_test {
namespace {

using mojo::LinearScanArgs;

// Sizes are the sizes and the rule of a scan.
struct Sizes {
  size_t tokens, depth, columns, queries;
  bool by_channel, beta, past;
};

float* Floats(Buffer& b) { return static_cast<float*>(b.data()); }

// CompareTypes runs a scan with 16-bit numbers: Y is the rounded Y of float32.
template <class Args, class Run>
void CompareTypes(const char* name, Args& args, size_t results, size_t numbers, Run run) {
  const Args before = args;
  for (const ElementType type : {mojo::kFloat16, mojo::kBFloat16}) {
    Buffer v(type, numbers), wide(mojo::kFloat32, numbers), y(type, results), exact(mojo::kFloat32, results);
    for (size_t i = 0; i < numbers; ++i) v.Set(i, static_cast<const float*>(before.v)[i]), wide.Set(i, v.Get(i));
    args.v = wide.data(), args.y = exact.data();
    run();
    args.v = v.data(), args.y = y.data(), args.type = type;
    run();
    args = before;
    for (size_t i = 0; i < results; ++i) {
      const double got = y.Get(i);
      y.Set(i, exact.Get(i));
      Check(got == y.Get(i), "%s: %s: y[%zu] is %.9g, want %.9g", name, TypeName(type), i, got, y.Get(i));
    }
  }
}

// Compare runs the columns as one task and as several, which must agree to the bit, and compares them with the formula.
void Compare(const mojo::KernelTable& kernels, const Sizes& s, double least, double most, std::mt19937* rng) {
  const size_t channels = s.by_channel ? s.depth : 1, state = s.depth * s.columns;
  const double size = 1 / sqrt(static_cast<double>(s.depth));
  Buffer q(mojo::kFloat32, Random(rng, s.tokens * s.queries * s.depth, size));
  Buffer k(mojo::kFloat32, Random(rng, s.tokens * s.depth, size));
  Buffer v(mojo::kFloat32, Random(rng, s.tokens * s.columns, 1)), past(mojo::kFloat32, Random(rng, state, 1));
  Buffer factors(mojo::kFloat32, s.tokens * channels), beta(mojo::kFloat32, s.tokens);
  for (size_t i = 0; i < factors.size(); ++i) {
    factors.Set(i, exp(std::uniform_real_distribution<double>(log(least), log(most))(*rng)));
  }
  if (least < 1e-30) factors.Set(factors.size() / 2, 0);
  for (size_t i = 0; i < s.tokens; ++i) beta.Set(i, std::uniform_real_distribution<double>(0, 1)(*rng));
  Buffer y(mojo::kFloat32, s.tokens * s.queries * s.columns), present(mojo::kFloat32, state);
  Buffer room(mojo::kFloat32, state), parts(mojo::kFloat32, y.size());
  LinearScanArgs args{};
  args.q = Floats(q), args.q_step = s.queries * s.depth, args.queries = s.queries;
  args.k = Floats(k), args.k_step = s.depth;
  args.v = v.data(), args.v_step = s.columns;
  args.factors = Floats(factors), args.factors_step = channels, args.by_channel = s.by_channel;
  args.beta = s.beta ? Floats(beta) : nullptr, args.beta_step = 1;
  args.y = y.data(), args.y_step = s.queries * s.columns;
  args.past = s.past ? Floats(past) : nullptr, args.present = Floats(present), args.room = Floats(room);
  args.tokens = s.tokens, args.depth = s.depth, args.columns = s.columns, args.scale = 0.5f;
  const mojo::LinearScanFn run = kernels.linear_scan;
  run(args, 0, s.columns);

  std::vector<double> want(state), results(y.size());
  double greatest = 0, greatest_state = 0;
  for (size_t i = 0; s.past && i < state; ++i) want[i] = past.Get(i);
  for (size_t t = 0; t < s.tokens; ++t) {
    for (size_t c = 0; c < s.columns; ++c) {
      double update = v.Get(t * s.columns + c), found = 0;
      for (size_t i = 0; i < s.depth; ++i) {
        want[i * s.columns + c] *= factors.Get(t * channels + (s.by_channel ? i : 0));
        found += k.Get(t * s.depth + i) * want[i * s.columns + c];
      }
      if (s.beta) update = beta.Get(t) * (update - found);
      for (size_t i = 0; i < s.depth; ++i) {
        want[i * s.columns + c] += k.Get(t * s.depth + i) * update;
        greatest_state = fmax(greatest_state, fabs(want[i * s.columns + c]));
        for (size_t head = 0; head < s.queries; ++head) {
          results[(t * s.queries + head) * s.columns + c] +=
              0.5 * q.Get((t * s.queries + head) * s.depth + i) * want[i * s.columns + c];
        }
      }
    }
  }
  for (const double result : results) greatest = fmax(greatest, fabs(result));
  const double units = 4 * Epsilon(mojo::kFloat32) * sqrt(static_cast<double>(s.tokens));
  const auto check = [&](const char* how) {
    for (size_t i = 0; i < y.size(); ++i) {
      Check(Near(y.Get(i), results[i], units * fmax(greatest, greatest_state)),
            "%s: LinearAttention of %zu tokens%s, decays from %g to %g: y[%zu] is %.9g, want %.9g", kernels.name,
            s.tokens, how, least, most, i, y.Get(i), results[i]);
    }
    for (size_t i = 0; i < state; ++i) {
      Check(Near(present.Get(i), want[i], units * greatest_state),
            "%s: LinearAttention of %zu tokens%s, decays from %g to %g: present[%zu] is %.9g, want %.9g", kernels.name,
            s.tokens, how, least, most, i, present.Get(i), want[i]);
    }
  };
  check("");
  if (s.tokens > 3) {
    LinearScanArgs turn = args;
    turn.tokens = s.tokens / 2, turn.present = nullptr;
    run(turn, 0, s.columns);
    turn.q += turn.tokens * turn.q_step, turn.k += turn.tokens * turn.k_step;
    turn.v = Floats(v) + turn.tokens * turn.v_step, turn.y = Floats(y) + turn.tokens * turn.y_step;
    turn.factors += turn.tokens * turn.factors_step;
    if (s.beta) turn.beta += turn.tokens;
    turn.tokens = s.tokens - turn.tokens, turn.present = args.present, turn.resumes = true;
    run(turn, 0, s.columns);
    check(" in two turns");
    run(args, 0, s.columns);
  }
  CompareTypes(kernels.name, args, y.size(), s.tokens * s.columns, [&] { run(args, 0, s.columns); });
  args.y = parts.data();
  for (size_t begin = 0; begin < s.columns; begin += kernels.linear_columns) {
    run(args, begin, std::min(begin + kernels.linear_columns, s.columns));
  }
  for (size_t i = 0; i < y.size(); ++i) {
    Check(y.Get(i) == parts.Get(i), "%s: LinearAttention in tasks: y[%zu] is %.9g, want %.9g", kernels.name, i,
          parts.Get(i), y.Get(i));
  }
}

// CompareChannels compares states of one column that share queries and keys with the formula, and with the same
// channels in two tasks.
void CompareChannels(const mojo::KernelTable& kernels, size_t tokens, size_t depth, size_t channels, size_t rates,
                     bool past, std::mt19937* rng) {
  Buffer q(mojo::kFloat32, Random(rng, tokens * depth, 1)), k(mojo::kFloat32, Random(rng, tokens * depth, 1));
  Buffer v(mojo::kFloat32, Random(rng, tokens * channels, 1));
  Buffer first(mojo::kFloat32, Random(rng, channels * depth, 1));
  Buffer decay(mojo::kFloat32, tokens * channels * rates), room(mojo::kFloat32, channels * depth);
  for (size_t i = 0; i < decay.size(); ++i) decay.Set(i, std::uniform_real_distribution<double>(-2, 0)(*rng));
  if (rates > 0) decay.Set(decay.size() / 2, -1000);
  Buffer y(mojo::kFloat32, v.size()), present(mojo::kFloat32, channels * depth);
  Buffer parts(mojo::kFloat32, v.size()), state(mojo::kFloat32, channels * depth);
  mojo::ChannelScanArgs args{};
  args.q = Floats(q), args.k = Floats(k), args.v = v.data(), args.y = y.data();
  args.decay = rates > 0 ? Floats(decay) : nullptr, args.by_key = rates > 1;
  args.past = past ? Floats(first) : nullptr, args.present = Floats(present), args.room = Floats(room);
  args.tokens = tokens, args.depth = depth, args.channels = channels, args.scale = 0.5f;
  const mojo::ChannelScanFn run = kernels.channel_scan;
  run(args, 0, channels);
  const double off = 16 * Epsilon(mojo::kFloat32) * sqrt(static_cast<double>(tokens + depth));
  for (size_t c = 0; c < channels; ++c) {
    for (size_t i = 0; i < depth; ++i) state.Set(c * depth + i, past ? first.Get(c * depth + i) : 0);
    for (size_t t = 0; t < tokens; ++t) {
      double want = 0;
      for (size_t i = 0; i < depth; ++i) {
        const size_t at = (t * channels + c) * rates + (rates > 1 ? i : 0);
        const double s = state.Get(c * depth + i) * (rates > 0 ? exp(decay.Get(at)) : 1) +
                         k.Get(t * depth + i) * v.Get(t * channels + c);
        state.Set(c * depth + i, s);
        want += 0.5 * q.Get(t * depth + i) * s;
      }
      const double got = y.Get(t * channels + c);
      Check(Near(got, want, off * (4 + fabs(want))), "%s: channel %zu of %zu, token %zu: y is %.9g, want %.9g",
            kernels.name, c, channels, t, got, want);
    }
    for (size_t i = 0; i < depth; ++i) {
      const double got = present.Get(c * depth + i), want = state.Get(c * depth + i);
      Check(Near(got, want, off * (1 + fabs(want))), "%s: channel %zu of %zu: present[%zu] is %.9g, want %.9g",
            kernels.name, c, channels, i, got, want);
    }
  }
  CompareTypes(kernels.name, args, y.size(), v.size(), [&] { run(args, 0, channels); });
  args.y = parts.data();
  run(args, 0, channels / 3);
  run(args, channels / 3, channels);
  for (size_t i = 0; i < y.size(); ++i) {
    Check(y.Get(i) == parts.Get(i), "%s: channels in tasks: y[%zu] is %.9g, want %.9g", kernels.name, i, parts.Get(i),
          y.Get(i));
  }
}

}  // namespace

MOJO_TEST(TestChannelScan) {
  std::mt19937 rng(1);
  for (const size_t tokens : {1, 2, 70}) {
    for (const size_t depth : {1, 16, 20, 64}) {
      for (const size_t channels : {1, 37, 200}) {
        for (const bool past : {false, true}) {
          for (const size_t rates : {size_t{0}, size_t{1}, depth}) {
            CompareChannels(kernels, tokens, depth, channels, rates, past, &rng);
          }
        }
      }
    }
  }
}

MOJO_TEST(TestLinearScan) {
  std::mt19937 rng(1);
  for (const size_t tokens : {1, 2, 3, 65, 200}) {
    for (const size_t columns : {1, 7, 85, 149}) {
      for (int rule = 0; rule < 16; ++rule) {
        const Sizes sizes = {
            tokens, 20, columns, rule & 8 ? size_t{3} : size_t{1}, (rule & 1) != 0, (rule & 2) != 0, (rule & 4) != 0};
        Compare(kernels, sizes, 0.9, 1, &rng);
        Compare(kernels, sizes, 1e-3, 1.01, &rng);
        Compare(kernels, sizes, 1e-35, 1, &rng);
      }
    }
  }
}

}  // namespace mojo_test
