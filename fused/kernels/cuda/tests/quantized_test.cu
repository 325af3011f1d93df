// Linear, Embedding and QMoE against their definitions in double on the host. Exits 1 on a failure.
// `make cuda-programs` builds it.
#include <memory>
#include <string>

#include "cuda/tests/host.h"

namespace {

// Format is a way to store weights.
struct Format {
  const char* name;
  mojo::Code code;
  MojoScales scales;
  size_t block;
  int zero;
  bool minus;
};

const Format kFormats[] = {{"q4_0", mojo::Code::kInt4, kMojoHalfScales, 32, 8, false},
                           {"q4_1", mojo::Code::kInt4, kMojoHalfScales, 32, 0, true},
                           {"q4_1 float", mojo::Code::kInt4, kMojoFloatScales, 32, 0, true},
                           {"q4_K", mojo::Code::kInt4, kMojoTwofoldScales, 32, 0, true},
                           {"q2_K", mojo::Code::kInt4, kMojoTwofoldScales, 16, 0, true},
                           {"q8_0", mojo::Code::kInt8, kMojoHalfScales, 32, 128, false},
                           {"q5_1", mojo::Code::kInt8, kMojoHalfScales, 32, 112, true},
                           {"q6_K", mojo::Code::kInt8, kMojoTwofoldScales, 16, 128, false},
                           {"float 16", mojo::Code::kInt8, kMojoFloatScales, 16, 128, true},
                           {"mxfp4", mojo::Code::kE2m1, kMojoExponentScales, 32, 0, false},
                           {"zero 3", mojo::Code::kInt4, kMojoHalfScales, 32, 3, false},
                           {"e4m3", mojo::Code::kE4m3, kMojoPanelScales, 128, 0, false},
                           {"great mxfp4", mojo::Code::kE2m1, kMojoExponentScales, 32, 0, false}};
const int kFP8 = 11;

// Bytes is an array on the host and on the device.
struct Bytes {
  std::vector<unsigned char> host;
  unsigned char* device = nullptr;
  ~Bytes() { cudaFree(device); }
  void* ToDevice() {
    if (host.empty()) return nullptr;
    Check(cudaMalloc(&device, host.size()), "cudaMalloc");
    Check(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice), "copy to device");
    return device;
  }
};

float FromE4M3(unsigned char code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float size = exponent == 0 ? ldexpf(mantissa, -9) : ldexpf(8 + mantissa, exponent - 10);
  return code < 128 ? size : -size;
}

// ToE4M3 is the nearest e4m3 number, up to 448.
float ToE4M3(float v) {
  const float unit = ldexpf(1, std::max(fabsf(v) < 0x1p-6f ? -6 : ilogbf(v), -6) - 3);
  return rintf(v / unit) * unit;
}

// Weights are random ones [n, k] of a format, n a multiple of 16 where matrices follow each other.
struct Weights {
  Format format;
  size_t n, k;
  Bytes codes, scale, minus, super_scale, super_minus;
  MojoQuantizedWeights args = {};
  std::vector<float> d, m, code;  // by element, for the reference

  Weights(const Format& f, size_t rows, size_t columns, Random* random) : format(f), n(rows), k(columns) {
    const size_t panels = (n + 15) / 16, blocks = panels * (k / f.block) * 16;
    const auto fill = [&](Bytes* b, size_t count) {
      b->host.resize(count);
      for (unsigned char& v : b->host) v = static_cast<unsigned char>(random->Next());
    };
    const auto halves = [&](Bytes* b, size_t count) {
      b->host.resize(2 * count);
      const float size = f.scales == kMojoTwofoldScales ? 0.002f : 0.05f;
      for (size_t i = 0; i < count; ++i) Store(b->host.data(), i, kMojoFloat16, random->Normal() * size);
    };
    const auto factors = [&](Bytes* b) {
      if (f.scales == kMojoHalfScales) return halves(b, blocks);
      if (f.scales == kMojoPanelScales) {
        b->host.resize(4 * blocks / 16);
        for (size_t i = 0; i < blocks / 16; ++i) Store(b->host.data(), i, kMojoFloat32, random->Normal() * 0.01f);
        return;
      }
      fill(b, f.scales == kMojoFloatScales ? 4 * blocks : blocks);
      for (size_t i = 0; i < blocks; ++i) {
        if (f.scales == kMojoFloatScales) Store(b->host.data(), i, kMojoFloat32, random->Normal() * 0.05f);
        if (f.scales == kMojoTwofoldScales) b->host[i] = static_cast<unsigned char>(random->Below(127) - 63);
        if (f.scales == kMojoExponentScales) b->host[i] = static_cast<unsigned char>(118 + random->Below(8));
        // Some of the greatest, with which products stay finite, and of the least.
        if (f.name[0] == 'g' && i % 5 == 0) b->host[i] = static_cast<unsigned char>(random->Below(2) * 230 + i % 5);
      }
    };
    fill(&codes, panels * (k / 32) * (Bits() == 8 ? 512 : 256));
    for (unsigned char& v : codes.host) {
      if (f.code == mojo::Code::kE4m3) v = (v & 0x9f) | 0x20;  // of about one size, so that no term is most of a sum
    }
    factors(&scale);
    if (f.minus) factors(&minus);
    if (f.scales == kMojoTwofoldScales) {
      halves(&super_scale, panels * (k / 256) * 16);
      if (f.minus) halves(&super_minus, panels * (k / 256) * 16);
    }
    args = {codes.ToDevice(),
            scale.ToDevice(),
            minus.ToDevice(),
            super_scale.ToDevice(),
            super_minus.ToDevice(),
            n,
            k,
            f.block,
            f.code,
            f.scales,
            f.zero};
    d.resize(n * k);
    m.resize(n * k);
    code.resize(n * k);
    InParallel(n, [&](size_t begin, size_t end) {
      for (size_t row = begin; row < end; ++row) {
        for (size_t c = 0; c < k; ++c) {
          d[row * k + c] = Factor(scale, super_scale, row, c);
          m[row * k + c] = f.minus ? Factor(minus, super_minus, row, c) : 0;
          code[row * k + c] = Code(row, c);
        }
      }
    });
  }

  int Bits() const { return format.code == mojo::Code::kInt8 || format.code == mojo::Code::kE4m3 ? 8 : 4; }

  float Factor(const Bytes& of, const Bytes& super, size_t row, size_t column) const {
    const size_t panel = row / 16, r = row % 16, at = (panel * (k / format.block) + column / format.block) * 16 + r;
    switch (format.scales) {
      case kMojoFloatScales: return Load(of.host.data(), at, kMojoFloat32);
      case kMojoHalfScales: return Load(of.host.data(), at, kMojoFloat16);
      case kMojoExponentScales: return ldexpf(1, of.host[at] - 127);
      case kMojoPanelScales: return Load(of.host.data(), at / 16, kMojoFloat32);
      default:
        return static_cast<float>(static_cast<signed char>(of.host[at])) *
               Load(super.host.data(), (panel * (k / 256) + column / 256) * 16 + r, kMojoFloat16);
    }
  }
  float Code(size_t row, size_t column) const {
    const unsigned char* const block =
        codes.host.data() + (row / 16 * (k / 32) + column / 32) * (Bits() == 8 ? 512 : 256);
    const size_t c = column % 32, r = row % 16;
    if (format.code == mojo::Code::kInt8) return block[c / 4 * 64 + r * 4 + c % 4];
    if (format.code == mojo::Code::kE4m3) return FromE4M3(block[c / 4 * 64 + r * 4 + c % 4]);
    const int byte = block[c % 16 / 4 * 64 + r * 4 + c % 4], bits = c < 16 ? byte & 15 : byte >> 4;
    if (format.code == mojo::Code::kInt4) return static_cast<float>(bits);
    const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return bits < 8 ? values[bits] : -values[bits - 8];
  }
  float Middle() const { return format.code == mojo::Code::kInt4 ? 8 : format.code == mojo::Code::kInt8 ? 128 : 0; }

  // Product is the product of a row with activations and their rounded form; size is the sum of its terms' magnitudes.
  double Product(size_t row, const double* x, const double* rounded, double* size) const {
    const float middle = Middle(), zero = static_cast<float>(format.zero);
    double sum = 0;
    for (size_t c = 0; c < k; ++c) {
      const double scale_of = d[row * k + c];
      const double main = scale_of * (code[row * k + c] - middle) * rounded[c];
      const double rest = (m[row * k + c] + scale_of * (middle - zero)) * x[c];
      sum += main + rest;
      *size += fabs(main) + fabs(rest);
    }
    return sum;
  }
};

// RoundTo rounds blocks as the definition does. Where numbers to be rounded may be off by kOffBefore of their block's
// greatest, those so near to the middle between two integers may become either: either gets the step for these.
constexpr float kOffBefore = 1e-5f;
void RoundTo(mojo::Activations rounding, std::vector<double>* x, std::vector<double>* either = nullptr) {
  if (either != nullptr) either->assign(x->size(), 0);
  if (rounding == mojo::Activations::kFloat) return;
  const bool eights = rounding == mojo::Activations::kFp8;
  const float limit = eights ? 448.0f : rounding == mojo::Activations::kInt16 ? 32767.0f : 127.0f;
  const size_t block = eights ? 128 : 32;
  for (size_t b = 0; b < x->size(); b += block) {
    float greatest = 0;
    for (size_t c = b; c < b + block; ++c) greatest = fmaxf(greatest, fabsf(static_cast<float>((*x)[c])));
    const volatile float factor = greatest < 0x1p-100f ? 0 : limit / greatest, step = greatest / limit;
    for (size_t c = b; c < b + block; ++c) {
      const volatile float scaled = static_cast<float>((*x)[c]) * factor;
      if (either != nullptr && !eights && fabsf(scaled - floorf(scaled) - 0.5f) < kOffBefore * limit)
        (*either)[c] = step;
      (*x)[c] = static_cast<double>(eights ? ToE4M3(scaled) : rintf(scaled)) * step;
    }
  }
}

double HalfUnit(MojoType type) { return type == kMojoFloat32 ? 0 : Unit(type) / 2; }

const char* RoundingName(mojo::Activations r) {
  return r == mojo::Activations::kFloat   ? "float"
         : r == mojo::Activations::kInt16 ? "int16"
         : r == mojo::Activations::kInt8  ? "int8"
                                          : "e4m3";
}

// The loss of Hopper's tensor cores over 128 columns of e4m3, which they do not sum in full float32.
constexpr double kLossOfE4M3 = 1e-3;

int cases = 0, failed = 0;
double most = 0;

void Tell(const std::string& name, double worst, bool guarded) {
  ++cases;
  most = std::max(most, worst);
  if (worst <= 1 && guarded) return;
  if (++failed <= 40)
    printf("FAIL %s: %.3g of what it may be off%s\n", name.c_str(), worst, guarded ? "" : ", and wrote elsewhere");
}

// Off is the error of got over the allowed error.
double Off(double got, double want, double allowed) {
  const double off = fabs(got - want) / allowed;
  return isnan(off) ? HUGE_VAL : off;
}

void TryLinear(const Weights& w, size_t rows, MojoType type, mojo::Activations rounding, bool has_bias, size_t offset,
               Random* random) {
  const size_t n = w.n, k = w.k;
  Numbers x(type, rows * k, offset), bias(type, n), y(type, rows * n, offset);
  x.Fill(random, 1);
  bias.Fill(random, 1);
  for (size_t i = 0; rows > 2 && i < 32; ++i) x.Set(k + i, 0);
  if (rows > 2) x.Set(2 * k + 5, 50);
  x.ToDevice();
  bias.ToDevice();
  MojoLinearArgs a = {};
  a.weights = w.args;
  a.x = x.device();
  a.bias = has_bias ? bias.device() : nullptr;
  a.y = y.device();
  a.rows = rows;
  a.type = type;
  a.rounding = rounding;
  const size_t bytes = MojoLinearScratch(&a);
  Numbers scratch(kMojoFloat32, bytes / 4 + 1);
  a.scratch = scratch.device();
  Check(MojoCudaLinear(&a, nullptr), "MojoCudaLinear");
  Check(cudaDeviceSynchronize(), "Linear");
  y.ToHost();
  std::vector<double> worst(rows);
  InParallel(rows, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      std::vector<double> in(k), rounded;
      for (size_t c = 0; c < k; ++c) in[c] = x.Get(i * k + c);
      rounded = in;
      RoundTo(rounding, &rounded);
      for (size_t o = 0; o < n; ++o) {
        double size = 0, want = w.Product(o, in.data(), rounded.data(), &size) + (has_bias ? bias.Get(o) : 0);
        const double loss = rounding == mojo::Activations::kFp8 ? kLossOfE4M3 : 1e-6;
        worst[i] =
            std::max(worst[i], Off(y.Get(i * n + o), want, size * loss + fabs(want) * HalfUnit(type) * 1.01 + 1e-7));
      }
    }
  });
  char name[200];
  snprintf(name, sizeof name, "Linear %s [%zu, %zu], %zu rows of %s, %s, offset %zu", w.format.name, n, k, rows,
           TypeName(type), RoundingName(rounding), offset);
  Tell(name, *std::max_element(worst.begin(), worst.end()), y.Guarded() && scratch.Guarded());
}

void TryEmbedding(const Weights& w) {
  const std::vector<int64_t> rows = {0, static_cast<int64_t>(w.n) - 1, -1,
                                     3, static_cast<int64_t>(w.n),     17 % static_cast<int64_t>(w.n)};
  Ids ids(rows.size());
  ids.host = rows;
  ids.ToDevice();
  Numbers y(kMojoFloat32, rows.size() * w.k);
  const MojoEmbeddingArgs a = {w.args, ids.device, static_cast<float*>(y.device()), rows.size()};
  Check(MojoCudaEmbedding(&a, nullptr), "MojoCudaEmbedding");
  Check(cudaDeviceSynchronize(), "Embedding");
  y.ToHost();
  double worst = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows[i] < 0 ? rows[i] + static_cast<int64_t>(w.n) : rows[i];
    for (size_t c = 0; c < w.k; ++c) {
      const float got = y.Get(i * w.k + c);
      if (row >= static_cast<int64_t>(w.n)) {
        if (!isnan(got)) worst = HUGE_VAL;
        continue;
      }
      const size_t at = static_cast<size_t>(row) * w.k + c;
      const volatile float product = w.d[at] * (w.code[at] - static_cast<float>(w.format.zero));
      const volatile float want = w.format.minus ? product + w.m[at] : product;
      if (got != want) worst = HUGE_VAL;
    }
  }
  Tell(std::string("Embedding ") + w.format.name, worst, y.Guarded());
}

struct Mixture {
  int up, down;  // numbers of formats
  mojo::Packing packing;
  bool biases, clamped;
  size_t experts, top_k, hidden, inner;
};

void TryQMoE(const Mixture& f, const Weights& up, const Weights& down, size_t tokens, bool all_on_one, MojoType type,
             mojo::Activations rounding, Random* random) {
  const size_t packed = f.packing == mojo::Packing::kNone ? f.inner : 2 * f.inner, choices = tokens * f.top_k;
  Numbers x(type, tokens * f.hidden), weights(kMojoFloat32, choices), y(type, tokens * f.hidden),
      up_bias(kMojoFloat32, f.experts * packed), down_bias(kMojoFloat32, f.experts * f.hidden);
  Ids ids(choices);
  x.Fill(random, 0.3f);
  up_bias.Fill(random, 0.5f);
  down_bias.Fill(random, 0.5f);
  for (size_t i = 0; i < choices; ++i) {
    weights.Set(i, 0.05f + static_cast<float>(random->Below(1000)) / 1000);
    ids.host[i] =
        all_on_one
            ? 1
            : static_cast<int64_t>((i % f.top_k == 0 ? random->Below(f.experts) : ids.host[i - 1] + 1) % f.experts);
  }
  if (tokens > 1 && f.top_k > 1) ids.host[f.top_k] = -1;
  for (Numbers* n : {&x, &weights, &up_bias, &down_bias}) n->ToDevice();
  ids.ToDevice();
  MojoQMoEArgs a = {};
  MojoMoEArgs& m = a.moe;
  m.x = x.device();
  m.weights = weights.device();
  m.ids = ids.device;
  m.gate_up_bias = f.biases ? up_bias.device() : nullptr;
  m.down_bias = f.biases ? down_bias.device() : nullptr;
  m.y = y.device();
  m.tokens = tokens;
  m.top_k = f.top_k;
  m.experts = f.experts;
  m.hidden = f.hidden;
  m.inner = f.inner;
  m.x_type = type;
  m.weights_type = m.expert_type = kMojoFloat32;
  m.packing = f.packing;
  m.gate.activation = mojo::Activation::kSilu;
  m.gate.alpha = f.clamped ? 1.702f : 1;
  m.gate.limit = f.clamped ? 7.0f : 0;
  m.gate.up_offset = f.clamped ? 1.0f : 0;
  a.gate_up = up.args;
  a.gate_up.n = packed;
  a.down = down.args;
  a.down.n = f.hidden;
  a.rounding = rounding;
  const size_t bytes = MojoQMoEScratch(&a);
  Numbers scratch(kMojoFloat32, bytes / 4 + 1);
  m.scratch = scratch.device();
  Check(MojoCudaQMoE(&a, nullptr), "MojoCudaQMoE");
  Check(cudaDeviceSynchronize(), "QMoE");
  y.ToHost();
  // Numbers between the products may be rounded to x's type; numbers to be rounded to integers are float32 before.
  const double loss = rounding == mojo::Activations::kFp8     ? 2e-2
                      : rounding != mojo::Activations::kFloat ? 1e-4
                      : type == kMojoBFloat16                 ? 3e-3
                                                              : 2e-5;
  // In large calls, the outputs of choices may be rounded too.
  const double of_outputs = tokens * f.top_k * f.hidden > size_t{10} << 20 ? HalfUnit(type) * 1.01 : 0;
  std::vector<double> worst(tokens);
  InParallel(tokens, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      std::vector<double> in(f.hidden), rounded, between(f.inner), out(f.hidden), allowed(f.hidden, 1e-6);
      for (size_t h = 0; h < f.hidden; ++h) in[h] = x.Get(t * f.hidden + h);
      rounded = in;
      RoundTo(rounding, &rounded);
      for (size_t j = 0; j < f.top_k; ++j) {
        const int64_t id = ids.host[t * f.top_k + j];
        if (id < 0) continue;
        const size_t e = static_cast<size_t>(id);
        double none = 0;
        const auto first = [&](size_t row) {
          return up.Product(e * packed + row, in.data(), rounded.data(), &none) +
                 (f.biases ? up_bias.Get(e * packed + row) : 0);
        };
        for (size_t i = 0; i < f.inner; ++i) {
          const bool turns = f.packing == mojo::Packing::kInterleaved;
          double gate = first(turns ? 2 * i : i);
          double other = f.packing == mojo::Packing::kNone ? 1 : first(turns ? 2 * i + 1 : f.inner + i);
          if (f.clamped) {
            gate = fmin(gate, 7);
            other = fmax(fmin(other, 7), -7);
          }
          between[i] = gate / (1 + exp(-m.gate.alpha * gate)) *
                       (f.packing == mojo::Packing::kNone ? 1 : other + m.gate.up_offset);
        }
        std::vector<double> last = between, either;
        RoundTo(rounding, &last, &either);
        const std::vector<double> nothing(f.inner);
        const double weight = weights.Get(t * f.top_k + j);
        for (size_t h = 0; h < f.hidden; ++h) {
          double terms = 0, flips = 0;
          down.Product(e * f.hidden + h, nothing.data(), either.data(), &flips);
          const double sum = down.Product(e * f.hidden + h, between.data(), last.data(), &terms) +
                             (f.biases ? down_bias.Get(e * f.hidden + h) : 0);
          out[h] += weight * sum;
          allowed[h] += weight * (loss * terms + flips + of_outputs * fabs(sum));
        }
      }
      for (size_t h = 0; h < f.hidden; ++h) {
        allowed[h] += fabs(out[h]) * (1e-6 + HalfUnit(type) * 1.01);
        worst[t] = std::max(worst[t], Off(y.Get(t * f.hidden + h), out[h], allowed[h]));
      }
    }
  });
  char name[200];
  snprintf(name, sizeof name, "QMoE %s, %s, packing %d, %zu of %zu experts [%zu, %zu], %zu tokens of %s, %s",
           up.format.name, down.format.name, static_cast<int>(f.packing), f.top_k, f.experts, f.inner, f.hidden, tokens,
           TypeName(type), RoundingName(rounding));
  Tell(name, *std::max_element(worst.begin(), worst.end()), y.Guarded() && scratch.Guarded());
}

}  // namespace

// An argument, whatever it is, leaves out most cases: for tools that slow the device down.
int main(int argc, char**) {
  const bool short_run = argc > 1;
  Random random(11);
  const MojoType types[] = {kMojoFloat32, kMojoFloat16, kMojoBFloat16};
  const mojo::Activations roundings[] = {mojo::Activations::kFloat, mojo::Activations::kInt16,
                                         mojo::Activations::kInt8};
  for (const Format& f : kFormats) {
    for (const size_t rows : {1, 3, 8, 9, 33, 64, 65, 150}) {
      if (short_run && rows != 3 && rows != 9 && rows != 65) continue;
      const size_t n = rows == 3 ? 5 : rows == 8 ? 80 : rows >= 65 ? 300 : 37;
      const size_t k = f.scales == kMojoTwofoldScales ? (rows == 8 ? 2048 : 512)
                       : f.code == mojo::Code::kE4m3  ? (rows == 1    ? 2048
                                                         : rows == 65 ? 128
                                                                      : 640)
                       : rows == 1                    ? 2080
                       : rows == 65                   ? 96
                                                      : 544;
      const Weights w(f, n, k, &random);
      for (const MojoType type : types) {
        if (f.name[0] == 'g' && type == kMojoFloat16) continue;  // too great for it
        if (f.code == mojo::Code::kE4m3) {
          if (MojoCudaMultipliesE4M3(mojo::Packing::kHalves)) {
            for (const size_t offset : {size_t{0}, SizeOf(type)})
              TryLinear(w, rows, type, mojo::Activations::kFp8, rows != 9, offset, &random);
          }
          continue;
        }
        for (const mojo::Activations r : roundings) TryLinear(w, rows, type, r, rows != 9, 0, &random);
        TryLinear(w, rows, type, roundings[rows % 3], true, SizeOf(type), &random);
      }
      if (rows == 1 || rows == 65) TryEmbedding(w);
    }
  }
  printf("Linear and Embedding: %d cases, %d failed, at most %.3g of what they may be off\n", cases, failed, most);
  fflush(stdout);
  const Mixture mixtures[] = {{9, 9, mojo::Packing::kInterleaved, true, true, 8, 2, 96, 64},
                              {9, 9, mojo::Packing::kHalves, false, false, 5, 3, 288, 96},
                              {0, 1, mojo::Packing::kHalves, true, false, 4, 2, 96, 64},
                              {5, 0, mojo::Packing::kNone, false, false, 3, 1, 64, 32},
                              {3, 7, mojo::Packing::kInterleaved, true, true, 3, 2, 256, 256},
                              {9, 9, mojo::Packing::kInterleaved, true, true, 8, 4, 1440, 480},
                              {9, 9, mojo::Packing::kHalves, true, false, 8, 4, 4096, 32},
                              {kFP8, kFP8, mojo::Packing::kHalves, true, false, 6, 2, 256, 384},
                              {kFP8, kFP8, mojo::Packing::kInterleaved, false, true, 5, 3, 1152, 128},
                              {kFP8, kFP8, mojo::Packing::kHalves, false, false, 8, 4, 4096, 128}};
  most = 0;
  const int before = cases, failed_before = failed;
  for (const Mixture& f : mixtures) {
    if (short_run && f.inner > (f.up == kFP8 ? 128 : 100)) continue;
    const size_t packed = f.packing == mojo::Packing::kNone ? f.inner : 2 * f.inner;
    const Weights up(kFormats[f.up], f.experts * packed, f.hidden, &random);
    const Weights down(kFormats[f.down], f.experts * f.hidden, f.inner, &random);
    for (const size_t tokens : {1, 5, 24, 65, 100, 300, 700}) {
      if (short_run && tokens != 5 && tokens != 24 && tokens != 300) continue;
      if ((tokens == 700) != (f.hidden == 4096)) continue;
      const bool all_on_one = tokens == 24 || tokens == 65;
      for (const MojoType type : types) {
        if (f.up == kFP8) {
          if (MojoCudaMultipliesE4M3(f.packing))
            TryQMoE(f, up, down, tokens, all_on_one, type, mojo::Activations::kFp8, &random);
          continue;
        }
        for (const mojo::Activations r : roundings) {
          if (tokens == 700 && (type != kMojoBFloat16 || r != mojo::Activations::kFloat)) continue;
          TryQMoE(f, up, down, tokens, all_on_one, type, r, &random);
        }
      }
    }
  }
  printf("QMoE: %d cases, %d failed, at most %.3g of what they may be off\n", cases - before, failed - failed_before,
         most);
  return failed != 0;
}
