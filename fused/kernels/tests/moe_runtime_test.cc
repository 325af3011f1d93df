// MoE inside the stand-in for onnxruntime: against a naive reference in double, on one thread and on
// several.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "common/ort.h"
#include "moe/cpu/moe.h"
#include "tests/activations.h"
#include "tests/moe_runtime_test.h"

namespace mojo_test {
namespace {

using Type = ONNXTensorElementDataType;
constexpr auto kF32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
constexpr auto kF16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
constexpr auto kBF16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16;
constexpr auto kI64 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
const char* const kActivations[] = {"silu", "gelu", "gelu_tanh", "relu", "relu2"};
const char* const kPackings[] = {"halves", "interleaved", "none"};

size_t Size(Type type) { return type == kI64 ? 8 : type == kF32 ? 4 : 2; }

// Put encodes v, which is a multiple of 1/16 and at most 2 in magnitude: exact in every type.
void Put(Type type, char* to, double v) {
  const float f = static_cast<float>(v);
  uint32_t bits;
  memcpy(&bits, &f, sizeof(bits));
  if (type == kBF16) {
    bits >>= 16;
  } else if (type == kF16 && v != 0) {
    bits = (bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - (112u << 23)) >> 13;
  }
  memcpy(to, &bits, type == kF32 ? 4 : 2);
}

double Got(Type type, const char* from) {
  uint32_t bits = 0;
  memcpy(&bits, from, type == kF32 ? 4 : 2);
  if (type == kF16) {
    const double mantissa = (bits & 0x3ff) / 1024.0;
    const int exponent = bits >> 10 & 31;
    const double v = exponent == 0 ? ldexp(mantissa, -14) : ldexp(1 + mantissa, exponent - 15);
    return exponent == 31 ? NAN : bits & 0x8000 ? -v : v;
  }
  if (type == kBF16) bits <<= 16;
  float f;
  memcpy(&f, &bits, sizeof(f));
  return f;
}

// Form is a node and its sizes.
struct Form {
  Type x = kF32, weights = kF32, experts = kF32;
  int64_t tokens = 3, k = 2, count = 4, hidden = 8, inner = 6;
  int packing = 0, activation = 0;
  bool gate_up_in_out = false, down_in_out = false, gate_up_bias = false, down_bias = false;
  float alpha = 1, limit = 0, up_offset = 0;

  int64_t Packed() const { return packing == 2 ? inner : 2 * inner; }
  std::string Text() const {
    std::string text = std::string("MoE ") + kActivations[activation] + " " + kPackings[packing];
    for (const int64_t n : {int64_t{x}, int64_t{weights}, int64_t{experts}, tokens, k, count, hidden, inner}) {
      text += " " + std::to_string(n);
    }
    return text + (gate_up_in_out ? " in_out" : " out_in") + (down_in_out ? " in_out" : " out_in");
  }
};

// Inputs are the values of a node: as numbers, and as the tensors that hold them.
struct Inputs {
  std::vector<std::vector<double>> values;
  std::vector<OrtValue> tensors;
};

Inputs Make(const Form& f, std::mt19937* rng) {
  struct Input {
    Type type;
    std::vector<int64_t> shape;
  };
  const std::vector<int64_t> gate_up{f.count, f.gate_up_in_out ? f.hidden : f.Packed(),
                                     f.gate_up_in_out ? f.Packed() : f.hidden};
  const std::vector<int64_t> down{f.count, f.down_in_out ? f.inner : f.hidden, f.down_in_out ? f.hidden : f.inner};
  const Input list[] = {{f.x, {1, f.tokens, f.hidden}},
                        {f.weights, {1, f.tokens, f.k}},
                        {kI64, {f.tokens, f.k}},
                        {f.experts, gate_up},
                        {f.experts, down},
                        {f.experts, {f.count, f.Packed()}},
                        {f.experts, {f.count, f.hidden}}};
  Inputs made;
  for (const Input& input : list) {
    size_t n = 1;
    for (const int64_t d : input.shape) n *= static_cast<size_t>(d);
    const size_t size = Size(input.type);
    OrtValue v{input.shape, std::vector<char>((n + 1) * size), nullptr};
    v.data = v.memory.data() + size;  // aligned to the elements only
    std::vector<double> values(n);
    // All tokens on one expert now and then, unused experts, and choices of no expert.
    const bool one = (*rng)() % 4 == 0;
    for (size_t i = 0; i < n; ++i) {
      if (input.type == kI64) {
        const int64_t of_all = static_cast<int64_t>((*rng)() % static_cast<uint64_t>(f.count + 1)) - 1;
        const int64_t id = one ? f.count - 1 : of_all;
        values[i] = static_cast<double>(id);
        memcpy(v.data + i * size, &id, size);
      } else {
        values[i] = (static_cast<int>((*rng)() % 33) - 16) / 16.0;
        Put(input.type, v.data + i * size, values[i]);
      }
    }
    made.values.push_back(values);
    made.tensors.push_back(std::move(v));
    made.tensors.back().data = made.tensors.back().memory.data() + size;
  }
  return made;
}

double Activated(int activation, double g, double alpha) {
  if (activation == 0) return mojo_test::Silu(g, alpha);
  if (activation == 1) return mojo_test::Gelu(g);
  if (activation == 2) return mojo_test::GeluTanh(g);
  return g > 0 ? g : 0;
}

// Reference returns the expected row of a token, and the sum of the magnitudes of its terms.
void Reference(const Form& f, const Inputs& in, int64_t token, std::vector<double>* y, std::vector<double>* size) {
  const auto at = [&](int input, int64_t i) { return in.values[static_cast<size_t>(input)][static_cast<size_t>(i)]; };
  y->assign(static_cast<size_t>(f.hidden), 0);
  *size = *y;
  for (int64_t j = 0; j < f.k; ++j) {
    const int64_t e = static_cast<int64_t>(at(2, token * f.k + j)), packed = f.Packed();
    if (e == mojo::kNoExpert) continue;
    std::vector<double> first, a;
    for (int64_t p = 0; p < packed; ++p) {
      double sum = f.gate_up_bias ? at(5, e * packed + p) : 0;
      for (int64_t h = 0; h < f.hidden; ++h) {
        sum += at(0, token * f.hidden + h) *
               at(3, e * packed * f.hidden + (f.gate_up_in_out ? h * packed + p : p * f.hidden + h));
      }
      first.push_back(sum);
    }
    for (int64_t i = 0; i < f.inner; ++i) {
      double g = first[static_cast<size_t>(f.packing == 1 ? 2 * i : i)], u = 1;
      if (f.packing != 2) u = first[static_cast<size_t>(f.packing == 1 ? 2 * i + 1 : f.inner + i)];
      if (f.limit > 0) {
        g = std::min<double>(g, f.limit);
        u = std::max<double>(std::min<double>(u, f.limit), -f.limit);
      }
      a.push_back(Activated(f.activation, g, f.alpha) * (u + f.up_offset));
    }
    for (int64_t h = 0; h < f.hidden; ++h) {
      double sum = f.down_bias ? at(6, e * f.hidden + h) : 0, magnitude = fabs(sum);
      for (int64_t i = 0; i < f.inner; ++i) {
        const double v = a[static_cast<size_t>(i)] *
                         at(4, e * f.hidden * f.inner + (f.down_in_out ? i * f.hidden + h : h * f.inner + i));
        sum += v;
        magnitude += fabs(v);
      }
      (*y)[static_cast<size_t>(h)] += at(1, token * f.k + j) * sum;
      (*size)[static_cast<size_t>(h)] += fabs(at(1, token * f.k + j)) * magnitude;
    }
  }
}

const OrtCustomOp* FindOp(const Form& f) {
  for (const OrtCustomOp* op : the_domain.ops) {
    if (strcmp(op->GetName(op), "MoE") == 0 && op->GetInputType(op, 0) == f.x && op->GetInputType(op, 1) == f.weights &&
        op->GetInputType(op, 3) == f.experts) {
      return op;
    }
  }
  return nullptr;
}

// Run returns the bytes of Y, or an error after "error: ".
std::string Run(const OrtApi& api, const Form& f, Inputs* in, int threads) {
  OrtKernelInfo info;
  info.strings = {{"activation", kActivations[f.activation]},
                  {"packing", kPackings[f.packing]},
                  {"gate_up_layout", f.gate_up_in_out ? "in_out" : "out_in"},
                  {"down_layout", f.down_in_out ? "in_out" : "out_in"}};
  info.floats = {{"alpha", f.alpha}, {"limit", f.limit}, {"up_offset", f.up_offset}};
  OrtKernelContext context{{}, {}, threads};
  for (OrtValue& v : in->tensors) context.inputs.push_back(&v);
  if (!f.gate_up_bias) context.inputs[5] = nullptr;
  if (!f.down_bias) context.inputs[6] = nullptr;
  OrtValue y{{}, std::vector<char>(in->tensors[0].memory.size(), 0x5a), nullptr};
  y.data = y.memory.data() + Size(f.x);
  context.outputs = {&y};
  const OrtCustomOp* op = FindOp(f);
  void* kernel = nullptr;
  OrtStatus* status = op->CreateKernelV2(op, &api, &info, &kernel);
  if (status == nullptr) {
    SetInKernel(true);
    status = op->KernelComputeV2(kernel, &context);
    SetInKernel(false);
    op->KernelDestroy(kernel);
  }
  if (status == nullptr) return std::string(y.data, y.memory.data() + y.memory.size());
  const std::string error = "error: " + status->message;
  api.ReleaseStatus(status);
  return error;
}

void TestForm(const OrtApi& api, const Form& f, std::mt19937* rng, const Checker& check) {
  Inputs in = Make(f, rng);
  const std::string y = Run(api, f, &in, 1);
  check(y.compare(0, 6, "error:") != 0, f.Text(), y.substr(0, 300));
  if (y.compare(0, 6, "error:") == 0) return;
  check(Run(api, f, &in, 4) == y, f.Text(), "threads change the result");
  const size_t row = static_cast<size_t>(f.hidden) * Size(f.x);
  const double unit = f.x == kF32 ? 0 : f.x == kF16 ? 0x1p-11 : 0x1p-8;
  for (int64_t t = 0; t < f.tokens; t += std::max<int64_t>(1, f.tokens / 4)) {
    std::vector<double> want, size;
    Reference(f, in, t, &want, &size);
    for (size_t h = 0; h < want.size(); ++h) {
      const double got = Got(f.x, y.data() + static_cast<size_t>(t) * row + h * Size(f.x));
      const double tolerance = 2e-6 * size[h] + 1.01 * unit * fabs(want[h]) + 1e-6;
      check(fabs(got - want[h]) <= tolerance, f.Text(),
            "token " + std::to_string(t) + ", channel " + std::to_string(h) + ": " + std::to_string(got) + ", want " +
                std::to_string(want[h]));
    }
  }
}

// TestGoes runs with so little memory that every token takes a separate pass.
void TestGoes(const OrtApi& api, const Checker& check) {
  const size_t tokens = 7, k = 3, experts = 4, hidden = 20, inner = 10;
  std::vector<float> x(tokens * hidden), weights(tokens * k), gate_up(experts * 2 * inner * hidden),
      down(experts * hidden * inner), y[2] = {x, x};
  std::vector<int64_t> ids;
  for (auto* v : {&x, &weights, &gate_up, &down}) {
    for (size_t i = 0; i < v->size(); ++i) (*v)[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  }
  for (size_t i = 0; i < tokens * k; ++i) ids.push_back(static_cast<int64_t>(i * 7 % experts));
  for (const size_t bytes : {size_t{1}, size_t{1} << 20}) {
    mojo::MoEArgs args;
    args.x = x.data();
    args.weights = weights.data();
    args.ids = ids.data();
    args.gate_up = {gate_up.data(), nullptr, true};
    args.down = {down.data(), nullptr, true};
    args.y = y[bytes == 1].data();
    args.tokens = tokens;
    args.top_k = k;
    args.experts = experts;
    args.hidden = hidden;
    args.inner = inner;
    args.gated = true;
    args.scratch_bytes = bytes;
    OrtKernelContext context{{}, {}, 2};
    OrtStatus* status = mojo::RunMoE(mojo::TheApi(), &context, mojo::HostMemory{}, args);
    check(status == nullptr, "MoE in goes", "it failed");
    if (status != nullptr) api.ReleaseStatus(status);
  }
  for (size_t i = 0; i < y[0].size(); ++i) {
    check(fabs(y[0][i] - y[1][i]) < 1e-4, "MoE in goes",
          "the size of the scratch memory changes element " + std::to_string(i));
  }
}

// TestBad wants errors that say the cause.
void TestBad(const OrtApi& api, std::mt19937* rng, const Checker& check) {
  const auto fails = [&](const Form& f, Inputs* in, std::initializer_list<const char*> words) {
    const std::string got = Run(api, f, in, 4);
    for (const char* word : words) {
      check(got.compare(0, 6, "error:") == 0 && got.find(word) != std::string::npos,
            std::string("MoE should say ") + word, got.compare(0, 6, "error:") == 0 ? got : "there is no error");
    }
  };
  const Form f;
  for (const int64_t id : {int64_t{4}, int64_t{-2}, INT64_MIN, INT64_MAX}) {
    Inputs in = Make(f, rng);
    memcpy(in.tensors[2].data + 5 * sizeof(id), &id, sizeof(id));
    fails(f, &in, {"MoE", "token 2", "choice 1", "E = 4", std::to_string(id).c_str()});
  }
  const std::vector<std::vector<int64_t>> wrong[] = {{{1, 3, 7}}, {{1, 4, 8}},  {{8}},
                                                     {{}},        {{1, 3, -8}}, {std::vector<int64_t>(17, 1)}};
  for (size_t input = 0; input < 7; ++input) {
    for (const auto& shape : wrong) {
      Form biased = f;
      biased.gate_up_bias = biased.down_bias = true;
      Inputs in = Make(biased, rng);
      in.tensors[input].shape = shape[0];
      fails(biased, &in, {"MoE"});
    }
  }
  Inputs in = Make(f, rng);
  in.tensors[3].shape = {int64_t{1} << 50, 0, 8};
  in.tensors[4].shape = {int64_t{1} << 50, 8, 0};
  fails(f, &in, {"memory"});
}

}  // namespace

void TestMoE(const OrtApi& api, const Checker& check) {
  std::mt19937 rng(23);
  struct Sizes {
    int64_t tokens, k, count, hidden, inner;
  };
  const Sizes sizes[] = {{1, 2, 4, 16, 8},    {3, 2, 5, 70, 33},  {13, 3, 4, 34, 65},  {7, 1, 3, 131, 129},
                         {210, 2, 2, 10, 12}, {8, 2, 2, 1030, 5}, {0, 2, 3, 8, 8},     {5, 0, 3, 8, 8},
                         {4, 2, 3, 8, 0},     {2, 2, 3, 0, 4},    {9, 2, 2, 260, 140}, {75, 3, 4, 40, 37}};
  int n = 0;
  for (const Type x : {kF32, kF16, kBF16}) {
    for (const Type weights : {kF32, x}) {
      for (const Type experts : {kF32, kF16, kBF16}) {
        for (const Sizes& s : sizes) {
          Form f{x, weights, experts, s.tokens, s.k, s.count, s.hidden, s.inner};
          ++n;
          f.packing = n % 3;
          f.activation = n % 4;
          f.gate_up_in_out = n & 1;
          f.down_in_out = n & 2;
          f.gate_up_bias = n % 5 < 2;
          f.down_bias = n % 7 < 3;
          if (f.activation == 0) f.alpha = 1.5f;
          if (f.packing != 2 && n % 3 == 0) f.limit = 0.75f, f.up_offset = 1;
          TestForm(api, f, &rng, check);
        }
      }
    }
  }
  TestGoes(api, check);
  TestBad(api, &rng, check);
  check(live_objects == 0, "MoE", "memory or a status is not released");
}

}  // namespace mojo_test
