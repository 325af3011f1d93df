// LinearAttention of prompts, in chunks on tensor cores, against its definition in double on the host. Exits 1 on a
// failure. `make cuda-programs` builds it.
#include "cuda/tests/tally.h"

namespace {

struct Heads {
  size_t q, k, v;
};

enum Decays { kNone, kUsual, kExtreme, kSlight };

struct Case {
  size_t batch, tokens, key, value;
  Heads heads;
  MojoType type;
  Decays decay;
  size_t beta_heads;  // 0: no delta rule
  bool l2_norm, past, in_place, present;
  bool channels = false;  // a decay for each channel of the keys

  size_t Decays() const { return channels ? key : 1; }
};

std::string NameOf(const Case& c) {
  char text[160];
  snprintf(text, sizeof(text), "%zux%zu keys %zu values %zu heads %zu/%zu/%zu %s decay %d%s beta %zu l2 %d past %d%s%s",
           c.batch, c.tokens, c.key, c.value, c.heads.q, c.heads.k, c.heads.v, TypeName(c.type), c.decay,
           c.channels ? " by channel" : "", c.beta_heads, c.l2_norm, c.past, c.in_place ? " in place" : "",
           c.present ? "" : " no present");
  return text;
}

// Call is a call's tensors.
struct Call {
  Case c;
  Numbers q, k, v, y, past, present, decay, beta;
  MojoLinearAttentionArgs args;

  explicit Call(const Case& c)
      : c(c),
        q(c.type, c.batch * c.tokens * c.heads.q * c.key),
        k(c.type, c.batch * c.tokens * c.heads.k * c.key),
        v(c.type, c.batch * c.tokens * c.heads.v * c.value),
        y(c.type, v.count()),
        past(kMojoFloat32, c.batch * c.heads.v * c.key * c.value),
        present(kMojoFloat32, past.count()),
        decay(kMojoFloat32, c.batch * c.tokens * c.heads.v * c.Decays()),
        beta(kMojoFloat32, c.batch * c.tokens * c.beta_heads) {
    Random random(c.tokens * 31 + c.key * 7 + c.value * 3 + c.decay + c.beta_heads);
    // Without a norm, keys are about of length 1: the delta rule diverges with longer ones.
    q.Fill(&random, 1), k.Fill(&random, c.l2_norm ? 1 : 1 / sqrtf(static_cast<float>(c.key)));
    v.Fill(&random, 1), past.Fill(&random, 1);
    for (size_t i = 0; i < decay.count(); ++i) {
      const float x = fabsf(random.Normal());
      const size_t kind = random.Below(40);
      const float rare = kind == 0 ? -INFINITY : kind == 1 ? -1e4f : kind == 2 ? -90 : kind < 6 ? -20 * x : -0.01f * x;
      decay.Set(i, c.decay == kExtreme ? rare : c.decay == kSlight ? -1e-3f * x : -0.2f * x);
    }
    for (size_t i = 0; i < beta.count(); ++i) beta.Set(i, 0.5f + 0.2f * random.Normal());
    for (Numbers* n : {&q, &k, &v, &past, &decay, &beta}) n->ToDevice();
    args.q = q.device(), args.k = k.device(), args.v = v.device(), args.y = y.device();
    if (c.past) args.past = static_cast<const float*>(past.device());
    if (c.decay != kNone) args.decay = static_cast<const float*>(decay.device());
    if (c.beta_heads != 0) args.beta = static_cast<const float*>(beta.device());
    if (c.present) args.present = static_cast<float*>((c.in_place ? past : present).device());
    args.batch = c.batch, args.tokens = c.tokens, args.key = c.key, args.value = c.value;
    args.q_heads = c.heads.q, args.k_heads = c.heads.k, args.heads = c.heads.v, args.y_heads = c.heads.v;
    args.beta_heads = c.beta_heads, args.channels = c.Decays();
    args.scale = 0.125f, args.l2_norm = c.l2_norm, args.epsilon = 1e-6f, args.type = c.type;
  }
};

cudaError_t Run(MojoLinearAttentionArgs args) {
  Numbers scratch(kMojoFloat32, MojoLinearAttentionScratch(&args) / 4);
  args.scratch = scratch.device();
  const cudaError_t error = MojoCudaLinearAttention(&args, nullptr);
  Check(cudaDeviceSynchronize(), "LinearAttention");
  if (!scratch.Guarded()) {
    printf("scratch memory: it wrote beside it\n");
    exit(1);
  }
  return error;
}

// Apart fails when the results are further from the expected ones, in the norm, than a unit of type.
void Apart(Tally* tally, const std::string& name, const Numbers& got, MojoType type, const Want& want) {
  double squares = 0, all = 0;
  for (size_t i = 0; i < want.value.size(); ++i) {
    const double off = double{got.Get(i)} - want.value[i];
    squares += off * off, all += double{want.value[i]} * want.value[i];
  }
  char what[80];
  snprintf(what, sizeof(what), "off by %.2e in the norm", sqrt(squares / all));
  if (!(squares <= all * Unit(type) * Unit(type))) Fail(tally, name, what);
}

// Test follows the definition token by token, and beside the state the variance of its roundings to the type, as if
// they were independent: of u, of its terms, and of products with q. Three units of their sum are allowed.
void Test(Tally* tally, const Case& c) {
  Call call(c);
  const size_t states = call.past.count();
  Want want(call.y.count()), want_state(states);
  const double epsilon = 1e-6, scale = 0.125, unit = Unit(c.type);
  InParallel(c.batch * c.heads.v, [&](size_t begin, size_t end) {
    std::vector<double> s(c.key * c.value), off(c.key * c.value), k(c.key), q(c.key);
    const auto read = [&](const Numbers& x, size_t first, std::vector<double>* out) {
      double squares = epsilon;
      for (size_t i = 0; i < c.key; ++i) squares += double{x.Get(first + i)} * x.Get(first + i);
      for (size_t i = 0; i < c.key; ++i) (*out)[i] = x.Get(first + i) / (c.l2_norm ? sqrt(squares) : 1);
    };
    std::vector<double> sum(c.value), size(c.value), u(c.value), more(c.value);
    for (size_t at = begin; at < end; ++at) {
      const size_t b = at / c.heads.v, h = at % c.heads.v;
      for (size_t i = 0; i < s.size(); ++i) s[i] = c.past ? call.past.Get(at * s.size() + i) : 0, off[i] = 0;
      for (size_t t = 0; t < c.tokens; ++t) {
        const size_t row = b * c.tokens + t, to = (row * c.heads.v + h) * c.value;
        read(call.k, (row * c.heads.k + h * c.heads.k / c.heads.v) * c.key, &k);
        read(call.q, (row * c.heads.q + h * c.heads.q / c.heads.v) * c.key, &q);
        std::fill(sum.begin(), sum.end(), 0), std::fill(size.begin(), size.end(), 0);
        for (size_t i = 0; i < c.key; ++i) {
          const size_t decay = (row * c.heads.v + h) * c.Decays() + (c.channels ? i : 0);
          const double factor = c.decay == kNone ? 1 : exp(double{call.decay.Get(decay)});
          for (size_t j = 0; j < c.value; ++j) {
            double& now = s[i * c.value + j];
            now *= factor, off[i * c.value + j] *= factor * factor;
            sum[j] += now * k[i], size[j] += now * k[i] * now * k[i];
          }
        }
        for (size_t j = 0; j < c.value; ++j) {
          const double v = call.v.Get(to + j);
          double beta = 1;
          if (c.beta_heads != 0) beta = call.beta.Get(row * c.beta_heads + (c.beta_heads == 1 ? 0 : h));
          u[j] = c.beta_heads == 0 ? v : beta * (v - sum[j]);
          more[j] = u[j] * u[j] + (c.beta_heads == 0 ? 0 : beta * beta * (v * v + size[j]));
        }
        std::fill(sum.begin(), sum.end(), 0), std::fill(size.begin(), size.end(), 0);
        for (size_t i = 0; i < c.key; ++i) {
          for (size_t j = 0; j < c.value; ++j) {
            double &now = s[i * c.value + j], &variance = off[i * c.value + j];
            now += k[i] * u[j], variance += k[i] * k[i] * more[j];
            sum[j] += now * q[i], size[j] += q[i] * q[i] * (variance + now * now);
          }
        }
        for (size_t j = 0; j < c.value; ++j) {
          want.value[to + j] = RoundTo(c.type, scale * sum[j]);
          want.off[to + j] = static_cast<float>(3 * unit * scale * sqrt(size[j] + sum[j] * sum[j]) + Least(c.type));
        }
      }
      for (size_t i = 0; i < s.size(); ++i) {
        want_state.value[at * s.size() + i] = static_cast<float>(s[i]);
        want_state.off[at * s.size() + i] = static_cast<float>(3 * unit * sqrt(off[i]) + fabs(s[i]) * 1e-5 + 1e-30);
      }
    }
  });
  ++tally->cases;
  const std::string name = NameOf(c);
  if (const cudaError_t error = Run(call.args)) return Fail(tally, name, cudaGetErrorString(error));
  Compare(tally, name, &call.y, c.type, want, 1);
  Apart(tally, name, call.y, c.type, want);
  if (!c.present) return;
  Numbers* state = c.in_place ? &call.past : &call.present;
  Compare(tally, name + " present", state, kMojoFloat32, want_state, 1);
  Apart(tally, name + " present", *state, c.type, want_state);
}

// TestParts compares a prompt, long enough for several passes over the scratch memory, with the same in parts of part
// tokens, each with the state of the last: chunks begin at the same tokens, so that all results are equal.
void TestParts(Tally* tally, const Case& c, size_t part) {
  Call whole(c), parts(c);
  const std::string name = NameOf(c) + " in parts";
  ++tally->cases;
  if (const cudaError_t error = Run(whole.args)) return Fail(tally, name, cudaGetErrorString(error));
  for (size_t first = 0; first < c.tokens; first += part) {
    MojoLinearAttentionArgs args = parts.args;
    const auto from = [&](const void* p, size_t numbers, size_t bytes) {
      return static_cast<const char*>(p) + first * numbers * bytes;
    };
    args.q = from(args.q, c.heads.q * c.key, 2), args.k = from(args.k, c.heads.k * c.key, 2);
    args.v = from(args.v, c.heads.v * c.value, 2);
    args.y = static_cast<char*>(args.y) + first * c.heads.v * c.value * 2;
    args.decay += first * c.heads.v * c.Decays();
    if (args.beta != nullptr) args.beta += first * c.beta_heads;
    if (first > 0) args.past = args.present;
    args.tokens = std::min(part, c.tokens - first);
    if (const cudaError_t error = Run(args)) return Fail(tally, name, cudaGetErrorString(error));
  }
  for (Numbers* n : {&whole.y, &whole.present, &parts.y, &parts.present}) n->ToHost();
  if (whole.y.bytes() != parts.y.bytes()) Fail(tally, name, "Y differs");
  if (whole.present.bytes() != parts.present.bytes()) Fail(tally, name, "present differs");
  for (size_t i = 0; i < whole.y.count(); ++i) {
    if (isnan(whole.y.Get(i))) return Fail(tally, name, "a result is missing");
  }
}

// TestOdd makes a number of one token infinite or NaN, and compares with the same call without it. By the definition
// the results of earlier tokens, of other heads and sequences, and those that do not depend on the number are the same;
// the others are not finite. From the chunk of the token on, the same results may differ by roundings: sums are in
// another order, and the state of other columns has another range.
void TestOdd(Tally* tally, const Case& c, char tensor, size_t token, float odd) {
  Call clean(c), call(c);
  const size_t batch = c.batch - 1, heads = c.heads.v, head = heads - 1, row = batch * c.tokens + token;
  Numbers* numbers = tensor == 'q'   ? &call.q
                     : tensor == 'k' ? &call.k
                     : tensor == 'v' ? &call.v
                     : tensor == 'd' ? &call.decay
                                     : &call.beta;
  const size_t key_head = head * c.heads.k / heads, query = head * c.heads.q / heads, value = c.value / 2;
  if (tensor == 'q') call.q.Set((row * c.heads.q + query) * c.key + c.key / 3, odd);
  if (tensor == 'k') call.k.Set((row * c.heads.k + key_head) * c.key + c.key / 3, odd);
  if (tensor == 'v') call.v.Set((row * heads + head) * c.value + value, odd);
  if (tensor == 'd') call.decay.Set((row * heads + head) * c.Decays() + (c.channels ? c.key / 3 : 0), odd);
  if (tensor == 'b') call.beta.Set(row * c.beta_heads + (c.beta_heads == 1 ? 0 : head), odd);
  numbers->ToDevice();
  ++tally->cases;
  char text[80];
  snprintf(text, sizeof(text), " %c of token %zu is %g", tensor, token, odd);
  const std::string name = NameOf(c) + text;
  for (Call* one : {&clean, &call}) {
    if (const cudaError_t error = Run(one->args)) return Fail(tally, name, cudaGetErrorString(error));
    one->y.ToHost(), one->present.ToHost();
  }
  double most = 0;
  for (size_t i = 0; i < clean.y.count(); ++i) most = std::max(most, fabs(double{clean.y.Get(i)}));
  // Takes reports whether a head reads the number.
  const auto takes = [&](size_t h) {
    if (tensor == 'q') return h * c.heads.q / heads == query;
    if (tensor == 'k') return h * c.heads.k / heads == key_head;
    return h == head || (tensor == 'b' && c.beta_heads == 1);
  };
  size_t wrong = 0, least = c.tokens;
  for (size_t i = 0; i < call.y.count(); ++i) {
    const size_t t = i / c.value / heads % c.tokens, b = i / c.value / heads / c.tokens;
    const bool reads = b == batch && takes(i / c.value % heads) && (tensor != 'v' || i % c.value == value);
    const float got = call.y.Get(i), want = clean.y.Get(i);
    const bool is_odd = reads && (tensor == 'q' ? t == token : t >= token);
    const bool exact = b != batch || !takes(i / c.value % heads) || t < token / 64 * 64;
    const bool right = is_odd  ? !isfinite(got)
                       : exact ? got == want
                               : fabs(double{got} - want) <= 4 * Unit(c.type) * most;
    if (!right) ++wrong, least = std::min(least, t);
  }
  for (size_t i = 0; i < call.present.count(); ++i) {
    const size_t h = i / c.value / c.key % heads, r = i / c.value % c.key, b = i / c.value / c.key / heads;
    const bool reads = b == batch && takes(h) && tensor != 'q' && (tensor != 'v' || i % c.value == value);
    // Without the delta rule, a number of a key, or a channel's decay, reaches its row of the state, and a key's by its
    // length all if it is NaN.
    const bool row_alone =
        c.beta_heads == 0 && ((tensor == 'k' && !(c.l2_norm && isnan(odd))) || (tensor == 'd' && c.channels));
    const bool is_odd = reads && (!row_alone || r == c.key / 3);
    const bool right = is_odd ? !isfinite(call.present.Get(i)) : isfinite(call.present.Get(i));
    if (!right) ++wrong, least = c.tokens;
  }
  if (wrong == 0) return;
  snprintf(text, sizeof(text), "%zu results are wrong, the first of token %zu (%zu: present)", wrong, least, c.tokens);
  Fail(tally, name, text);
}

}  // namespace

int main() {
  Tally tally{"LinearAttention"};
  const Heads heads[] = {{2, 2, 2}, {2, 1, 4}, {1, 1, 3}};
  for (const MojoType type : {kMojoFloat16, kMojoBFloat16}) {
    for (const size_t tokens : {1, 63, 64, 65, 80, 127, 128, 129, 130, 192, 193, 512}) {
      for (const Decays decay : {kNone, kUsual, kExtreme, kSlight}) {
        for (const bool delta : {false, true}) {
          const Heads& h = heads[(tokens + decay) % 3];
          const size_t beta = delta ? (tokens % 2 == 0 ? h.v : 1) : 0;
          const bool past = decay != kUsual || tokens % 2 == 0, l2_norm = decay != kExtreme;
          for (const bool channels : {false, true}) {
            Test(&tally,
                 {1, tokens, 128, 128, h, type, decay, beta, l2_norm, past, tokens == 130, tokens != 129, channels});
          }
        }
      }
    }
    for (const size_t key : {8, 40, 64, 72, 128, 200, 256}) {
      for (const size_t value : {8, 64, 72, 128, 256}) {
        for (const bool delta : {false, true}) {
          const size_t beta = delta ? 4 : 0;
          for (const bool channels : {false, true}) {
            Test(&tally,
                 {2, 150, key, value, {2, 1, 4}, type, kUsual, beta, key != 72, true, value == 64, true, channels});
          }
        }
      }
    }
    for (const char tensor : {'q', 'k', 'v', 'd', 'b'}) {
      for (const size_t token : {0, 1, 15, 37, 52, 64, 90, 149}) {
        for (const float odd : {NAN, INFINITY}) {
          for (const size_t beta : {0, 1, 4}) {
            if (tensor == 'b' && beta == 0) continue;
            const bool l2_norm = token % 2 == 0;
            TestOdd(&tally, {2, 150, 128, 128, {2, 1, 4}, type, kUsual, beta, l2_norm, true, false, true}, tensor,
                    token, odd);
            TestOdd(&tally, {2, 150, 128, 128, {2, 1, 4}, type, kUsual, beta, l2_norm, true, false, true, true}, tensor,
                    token, odd);
            if (isnan(odd)) {
              for (const size_t key : {40, 200, 264}) {  // narrow chunks, and token by token
                TestOdd(&tally, {2, 150, key, 72, {2, 1, 4}, type, kUsual, beta, l2_norm, true, false, true}, tensor,
                        token, odd);
              }
            }
          }
        }
      }
    }
    for (const bool delta : {false, true}) {
      const size_t beta = delta ? 4 : 0;
      Test(&tally, {1, 4096, 128, 64, {2, 2, 4}, type, kUsual, beta, true, true, false, true});
      Test(&tally, {1, 4000, 128, 64, {2, 2, 4}, type, kSlight, beta, true, true, false, true});
      Test(&tally, {1, 4000, 128, 64, {2, 2, 4}, type, kSlight, beta, true, true, false, true, true});
      for (const bool channels : {false, true}) {
        TestParts(&tally, {1, 8300, 128, 128, {16, 16, 32}, type, kUsual, 8 * beta, true, true, false, true, channels},
                  1024);
      }
    }
  }
  return Report({&tally});
}
