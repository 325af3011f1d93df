// LinearAttention and CausalConv against their definitions in double on the host. Exits 1 on a failure. `make
// cuda-programs` builds it.
#include "cuda/tests/tally.h"

namespace {

struct Heads {
  size_t q, k, v;
};

struct Case {
  size_t batch, tokens, key, value;
  Heads heads;
  MojoType type;
  bool past, per_channel;
  int decay, beta;  // 0: absent; beta 1: of all heads, 2: of each
  bool l2_norm, in_place, present;
  size_t offset;
};

std::string NameOf(const Case& c) {
  char text[200];
  snprintf(text, sizeof(text),
           "%zux%zu keys %zu values %zu heads %zu/%zu/%zu %s past %d decay %d%s beta %d l2 %d%s%s at %zu", c.batch,
           c.tokens, c.key, c.value, c.heads.q, c.heads.k, c.heads.v, TypeName(c.type), c.past, c.decay,
           c.per_channel ? " by channel" : "", c.beta, c.l2_norm, c.in_place ? " in place" : "",
           c.present ? "" : " no present", c.offset);
  return text;
}

void TestLinear(Tally* tally, const Case& c) {
  const size_t rows = c.batch * c.tokens, y_heads = std::max(c.heads.q, c.heads.v);
  const size_t channels = c.per_channel ? c.key : 1, beta_heads = c.beta == 1 ? 1 : c.heads.v;
  const size_t states = c.batch * c.heads.v * c.key * c.value;
  Random random(rows * 31 + c.key * 7 + c.value + c.decay + c.beta);
  Numbers q(c.type, rows * c.heads.q * c.key, c.offset), k(c.type, rows * c.heads.k * c.key, c.offset),
      v(c.type, rows * c.heads.v * c.value, c.offset), y(c.type, rows * y_heads * c.value, c.offset);
  Numbers past(kMojoFloat32, states, c.offset), present(kMojoFloat32, states, c.offset);
  Numbers decay(kMojoFloat32, rows * c.heads.v * channels), beta(kMojoFloat32, rows * beta_heads);
  q.Fill(&random, 1), k.Fill(&random, c.l2_norm ? 1 : 0.3f), v.Fill(&random, 1), past.Fill(&random, 1);
  for (size_t i = 0; i < decay.count(); ++i) decay.Set(i, -0.2f * fabsf(random.Normal()));
  for (size_t i = 0; i < beta.count(); ++i) beta.Set(i, 0.5f + 0.2f * random.Normal());
  const double epsilon = 1e-6, scale = 0.125;
  Want want(y.count()), want_state(states);
  InParallel(c.batch * c.heads.v, [&](size_t begin, size_t end) {
    std::vector<double> s(c.key * c.value), off(c.key * c.value), u(c.value), one(c.key), other(c.key);
    for (size_t at = begin; at < end; ++at) {
      const size_t b = at / c.heads.v, h = at % c.heads.v, each = y_heads / c.heads.v;
      for (size_t i = 0; i < s.size(); ++i) s[i] = c.past ? past.Get(at * s.size() + i) : 0, off[i] = 0;
      const auto unit = [&](const Numbers& x, size_t first, std::vector<double>* out) {
        double squares = epsilon;
        for (size_t i = 0; i < c.key; ++i) squares += double{x.Get(first + i)} * x.Get(first + i);
        for (size_t i = 0; i < c.key; ++i) (*out)[i] = x.Get(first + i) / (c.l2_norm ? sqrt(squares) : 1);
      };
      for (size_t t = 0; t < c.tokens; ++t) {
        const size_t row = b * c.tokens + t;
        unit(k, (row * c.heads.k + h * c.heads.k / c.heads.v) * c.key, &one);
        for (size_t i = 0; i < s.size(); ++i) {
          if (c.decay) s[i] *= exp(double{decay.Get((row * c.heads.v + h) * channels + i / c.value % channels)});
        }
        for (size_t j = 0; j < c.value; ++j) {
          double sum = 0, size = 0;
          for (size_t i = 0; i < c.key; ++i)
            sum += s[i * c.value + j] * one[i], size += fabs(s[i * c.value + j] * one[i]);
          u[j] = v.Get((row * c.heads.v + h) * c.value + j);
          if (c.beta) u[j] = beta.Get(row * beta_heads + (c.beta == 1 ? 0 : h)) * (u[j] - sum);
          for (size_t i = 0; i < c.key; ++i) {
            double& now = s[i * c.value + j];
            now += one[i] * u[j];
            // Rounding errors of this token: of the sum at the key, and of the state itself.
            off[i * c.value + j] += (fabs(one[i]) * (size + fabs(u[j])) + fabs(now)) * 0x1p-22;
          }
        }
        for (size_t e = 0; e < each; ++e) {
          const size_t o = h * each + e;
          unit(q, (row * c.heads.q + o * c.heads.q / y_heads) * c.key, &other);
          for (size_t j = 0; j < c.value; ++j) {
            double sum = 0, size = 0;
            for (size_t i = 0; i < c.key; ++i) {
              sum += s[i * c.value + j] * other[i];
              size += fabs(other[i]) * (fabs(s[i * c.value + j]) * 0x1p-20 + off[i * c.value + j]);
            }
            const size_t to = (row * y_heads + o) * c.value + j;
            want.value[to] = RoundTo(c.type, scale * sum);
            want.off[to] = static_cast<float>(scale * size + fabs(scale * sum) * Unit(c.type) + Least(c.type));
          }
        }
      }
      for (size_t i = 0; i < s.size(); ++i) {
        want_state.value[at * s.size() + i] = static_cast<float>(s[i]);
        want_state.off[at * s.size() + i] = static_cast<float>(off[i] + fabs(s[i]) * 0x1p-22 + 1e-30);
      }
    }
  });
  q.ToDevice(), k.ToDevice(), v.ToDevice(), past.ToDevice(), decay.ToDevice(), beta.ToDevice();
  MojoLinearAttentionArgs args;
  args.q = q.device(), args.k = k.device(), args.v = v.device(), args.y = y.device();
  if (c.past) args.past = static_cast<const float*>(past.device());
  if (c.decay) args.decay = static_cast<const float*>(decay.device());
  if (c.beta) args.beta = static_cast<const float*>(beta.device());
  Numbers* state = c.in_place ? &past : &present;
  if (c.present) args.present = static_cast<float*>(state->device());
  args.batch = c.batch, args.tokens = c.tokens, args.key = c.key, args.value = c.value;
  args.q_heads = c.heads.q, args.k_heads = c.heads.k, args.heads = c.heads.v, args.y_heads = y_heads;
  args.beta_heads = beta_heads, args.channels = channels;
  args.scale = static_cast<float>(scale), args.l2_norm = c.l2_norm, args.epsilon = static_cast<float>(epsilon);
  args.type = c.type;
  Numbers scratch(kMojoFloat32, MojoLinearAttentionScratch(&args) / 4);
  args.scratch = scratch.device();
  Done(tally, NameOf(c), MojoCudaLinearAttention(&args, nullptr));
  Compare(tally, NameOf(c), &y, c.type, want, 0.1);
  if (c.present) Compare(tally, NameOf(c) + " present", state, kMojoFloat32, want_state, 1);
}

struct ConvCase {
  size_t batch, channels, tokens, width, kept;
  MojoType type;
  bool bias, past, silu, in_place;
};

void TestConv(Tally* tally, const ConvCase& c) {
  char name[120];
  snprintf(name, sizeof(name), "%zux%zux%zu width %zu kept %zu %s bias %d past %d silu %d%s", c.batch, c.channels,
           c.tokens, c.width, c.kept, TypeName(c.type), c.bias, c.past, c.silu, c.in_place ? " in place" : "");
  Random random(c.tokens * 31 + c.channels);
  const size_t rows = c.batch * c.channels;
  Numbers x(c.type, rows * c.tokens), weight(c.type, c.channels * c.width), bias(c.type, c.channels),
      past(c.type, rows * c.kept), y(c.type, rows * c.tokens), present(c.type, rows * c.kept);
  x.Fill(&random, 1), weight.Fill(&random, 1), bias.Fill(&random, 1), past.Fill(&random, 1);
  Want want(x.count()), want_state(past.count());
  for (size_t r = 0; r < rows; ++r) {
    const size_t channel = r % c.channels;
    const auto at = [&](int64_t t) -> float {
      if (t >= 0) return x.Get(r * c.tokens + t);
      return c.past ? past.Get((r + 1) * c.kept + t) : 0;
    };
    for (size_t t = 0; t < c.tokens; ++t) {
      double z = c.bias ? bias.Get(channel) : 0, size = fabs(z);
      for (size_t j = 0; j < c.width; ++j) {
        const double product = double{weight.Get(channel * c.width + j)} *
                               at(static_cast<int64_t>(t + j) - static_cast<int64_t>(c.width - 1));
        z += product, size += fabs(product);
      }
      const double result = c.silu ? Activation(mojo::Activation::kSilu, z, 1) : z;
      want.value[r * c.tokens + t] = RoundTo(c.type, result);
      want.off[r * c.tokens + t] = static_cast<float>(size * 0x1p-21 + fabs(result) * Unit(c.type) + Least(c.type));
    }
    for (size_t i = 0; i < c.kept; ++i) {
      want_state.value[r * c.kept + i] = at(static_cast<int64_t>(c.tokens + i) - static_cast<int64_t>(c.kept));
    }
  }
  x.ToDevice(), weight.ToDevice(), bias.ToDevice(), past.ToDevice();
  Numbers* state = c.in_place ? &past : &present;
  const MojoCausalConvArgs args = {x.device(),
                                   weight.device(),
                                   c.bias ? bias.device() : nullptr,
                                   c.past ? past.device() : nullptr,
                                   y.device(),
                                   state->device(),
                                   c.batch,
                                   c.channels,
                                   c.tokens,
                                   c.width,
                                   c.kept,
                                   c.silu,
                                   c.type};
  Done(tally, name, MojoCudaCausalConv(&args, nullptr));
  Compare(tally, name, &y, c.type, want, 0.1);
  Compare(tally, std::string(name) + " present", state, c.type, want_state, 0);
}

}  // namespace

int main() {
  Tally linear{"LinearAttention"}, conv{"CausalConv"};
  const Heads heads[] = {{2, 2, 2}, {2, 1, 4}, {4, 2, 2}, {3, 3, 6}};
  for (const MojoType type : {kMojoFloat32, kMojoFloat16, kMojoBFloat16}) {
    for (const Heads& h : heads) {
      for (const size_t key : {1, 7, 32, 64, 128, 200, 256, 300}) {
        for (const size_t value : {1, 8, 30, 64, 128}) {
          const bool l2_norm = value % 8 == 0, by_channel = key % 3 == 1;
          for (const size_t tokens : {0, 1, 3, 70}) {
            TestLinear(&linear, {2, tokens, key, value, h, type, true, by_channel, 1, 2, l2_norm, key == 64, true, 0});
            TestLinear(&linear, {1, tokens, key, value, h, type, tokens == 3, !by_channel, tokens != 1, tokens == 70,
                                 true, false, key != 300, 4});
          }
          TestLinear(&linear, {3, 5, key, value, h, type, true, by_channel, 1, 0, false, true, true, 0});
          TestLinear(&linear, {3, 5, key, value, h, type, false, false, 0, 0, l2_norm, false, true, 0});
        }
      }
    }
    for (const size_t width : {1, 3, 4, 9}) {
      for (const size_t tokens : {0, 1, 2, 5, 300}) {
        for (const bool silu : {false, true}) {
          TestConv(&conv, {2, 70, tokens, width, width - 1, type, silu, true, silu, tokens == 1});
          TestConv(&conv, {1, 33, tokens, width, width + 2, type, !silu, true, silu, true});
          TestConv(&conv, {1, 5, tokens, width, width - 1, type, !silu, false, silu, false});
        }
      }
    }
  }
  return Report({&linear, &conv});
}
