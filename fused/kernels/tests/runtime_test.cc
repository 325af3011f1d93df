// Runs the ops inside a stand-in for onnxruntime: runtime_test API_VERSION, a number or "latest".
//
// Good cases return the same bits on one thread and on several, over their inputs and not, without an allocation. Bad
// cases, with any shapes and attributes, return an error that says the cause.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/moe_runtime_test.h"
#include "tests/runtime_test.h"
#include "tests/stand_in.h"

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base);

namespace mojo_test {
namespace {

int failures = 0;

// Bits encodes f, which is 0 or between 2^-14 and 2^15 in magnitude, dropping bits that do not fit.
uint32_t Bits(ONNXTensorElementDataType type, float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof(bits));
  if (type == kBF16) return bits >> 16;
  if (type == kF32 || f == 0) return bits;
  return (bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - (112u << 23)) >> 13;
}

// Attributes of a node, as "axis=-1 epsilon=0.5 side=last": numbers with a point are floats.
OrtKernelInfo Node(const std::string& text) {
  OrtKernelInfo info;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size()), equals = text.find('=', at);
    const std::string name = text.substr(at, equals - at), value = text.substr(equals + 1, end - equals - 1);
    if (value.find_first_not_of("-0123456789.") != std::string::npos || value.empty()) {
      info.strings[name] = value;
    } else if (value.find('.') != std::string::npos) {
      info.floats[name] = strtof(value.c_str(), nullptr);
    } else {
      info.ints[name] = strtoll(value.c_str(), nullptr, 10);
    }
    at = end + 1;
  }
  return info;
}

struct Case {
  const char* op;
  std::vector<Dims> shapes;
  std::string attributes;
  std::vector<int> over{0};                            // per output: the input whose memory it may take, or -1
  int constant = -1;                                   // an input that is a constant as well
  Dims declared{};                                     // the shape that the model declares for X
  int missing = -1;                                    // an input, or -2: output 0
  std::vector<ONNXTensorElementDataType> out_types{};  // per output; if empty, the inputs' type
};

const OrtCustomOp* FindOp(const char* name, ONNXTensorElementDataType type) {
  for (const OrtCustomOp* op : the_domain.ops) {
    const size_t last = op->GetInputTypeCount(op) - 1;
    if (strcmp(op->GetName(op), name) == 0 && op->GetInputType(op, 0) == type && op->GetInputType(op, last) == type) {
      return op;
    }
  }
  return nullptr;
}

// Run makes a kernel and runs it, twice if the second run must return the same.
Result Run(const Case& c, const OrtApi& api, ONNXTensorElementDataType type, int threads, bool in_place) {
  std::vector<OrtValue> inputs, outputs;
  for (size_t i = 0; i < c.shapes.size(); ++i) {
    inputs.push_back(Tensor(type, c.shapes[i], 0.5f * static_cast<float>(i)));
  }
  for (size_t i = 0; i < c.over.size(); ++i) {
    outputs.push_back(Tensor(c.out_types.empty() ? type : c.out_types[i], c.shapes[0], 9));
  }
  OrtKernelInfo info = Node(c.attributes);
  if (c.constant >= 0) info.constants[static_cast<size_t>(c.constant)] = &inputs[static_cast<size_t>(c.constant)];
  const OrtValue declared{c.declared, {}, nullptr};
  if (!c.declared.empty()) info.declared = &declared;
  OrtKernelContext context{{}, {}, threads};
  for (size_t i = 0; i < inputs.size(); ++i) {
    context.inputs.push_back(c.missing == static_cast<int>(i) ? nullptr : &inputs[i]);
  }
  for (size_t i = 0; i < c.over.size(); ++i) {
    const int over = in_place ? c.over[i] : -1;
    context.outputs.push_back(over >= 0 ? &inputs[static_cast<size_t>(over)] : &outputs[i]);
  }
  if (c.missing == -2) context.outputs[0] = nullptr;
  const OrtCustomOp* op = FindOp(c.op, type);
  void* kernel = nullptr;
  OrtStatus* status = op->CreateKernelV2(op, &api, &info, &kernel);
  if (status == nullptr) {
    SetInKernel(true);
    status = op->KernelComputeV2(kernel, &context);
    if (status == nullptr && !in_place) status = op->KernelComputeV2(kernel, &context);
    SetInKernel(false);
    op->KernelDestroy(kernel);
  }
  Result result;
  if (status != nullptr) {
    result.error = status->message;
    api.ReleaseStatus(status);
  } else {
    for (OrtValue* v : context.outputs) {
      if (v->data != nullptr) result.bytes.append(v->data, v->memory.data() + v->memory.size());
    }
  }
  Check(live_objects == 0, c.op, "a status or a shape is not released");
  return result;
}

const Dims kBig{3, 300, 70}, kRow{70};
const std::string kNorm = "axis=-1 scale_after_cast=0 epsilon=0.001";
const std::string kGLU = "activation=silu alpha=1. limit=0. up_offset=0.";

// Rotary is the attributes of RotaryEmbedding.
std::string Rotary(int64_t r, int interleaved = 0, const char* side = "first", const char* layout = "halves") {
  return "interleaved=" + std::to_string(interleaved) + " rotary_dim=" + std::to_string(r) + " rotated_side=" + side +
         " output_layout=" + layout;
}

// NormRotary is the attributes of NormRotary around the attributes of a rotation.
std::string NormRotary(const std::string& rotary, int after = 0, const char* epsilon = "0.001") {
  return "scale_after_cast=" + std::to_string(after) + " epsilon=" + epsilon + " " + rotary;
}

// Router is the attributes of TopKRouter.
std::string Router(int64_t k, int64_t groups = 1, int64_t kept = 1, const char* order = "score_first",
                   const char* group_score = "max") {
  return "top_k=" + std::to_string(k) + " score=sigmoid order=" + order + " groups=" + std::to_string(groups) +
         " group_top_k=" + std::to_string(kept) + " group_score=" + group_score +
         " excluded_score=0. renormalize=1 epsilon=0.001 scale=2.5";
}

// Route is a case of TopKRouter.
Case Route(const std::vector<Dims>& shapes, const std::string& attributes) {
  Case c{"TopKRouter", shapes, attributes, {-1, -1}};
  c.out_types = {kF32, kI64};
  return c;
}

void TestGood(const OrtApi& api) {
  std::vector<Case> cases{
      {"RMSNorm", {kBig, kRow}, kNorm},
      {"RMSNorm", {kBig, kRow}, kNorm, {0}, 1},
      {"AddRMSNorm", {kBig, kBig, kRow}, kNorm, {1, 0}, 2},
      {"GLU", {kBig, kBig}, kGLU},
      {"GLU", {kBig, kBig}, kGLU, {1}},
      {"RMSNorm", {{0, int64_t{1} << 40, 70}, kRow}, kNorm},
      {"RMSNorm", {{5, 0}, {0}}, kNorm},
      {"AddRMSNorm", {{3, 0, 70}, {3, 0, 70}, kRow}, kNorm, {1, 0}},
      {"GLU", {{int64_t{1} << 62, 0, 8}, {int64_t{1} << 62, 0, 8}}, kGLU},
      {"RotaryEmbedding", {{int64_t{1} << 40, 0, 70}, kRow, {1, 35}}, Rotary(70)},
      {"RotaryEmbedding", {kBig, {300, 35}, {3, 1, 70}}, Rotary(70), {0}, -1, {-1, -1, 70}},
      {"NormRotary", {{int64_t{1} << 40, 0, 70}, kRow, kRow, {1, 35}}, NormRotary(Rotary(70))},
      {"NormRotary", {kBig, kRow, {300, 35}, {3, 1, 70}}, NormRotary(Rotary(70), 1), {0}, 1, {-1, -1, 70}},
  };
  for (const int interleaved : {0, 1}) {
    for (const char* layout : {"halves", "interleaved"}) {
      for (const char* side : {"first", "last"}) {
        for (const int64_t r : {70, 22}) {
          cases.push_back({"RotaryEmbedding", {kBig, {300, r}, {3, 1, r}}, Rotary(r, interleaved, side, layout)});
          cases.push_back({"RotaryEmbedding", {kBig, {r / 2}, {3, 300, r / 2}}, Rotary(r, interleaved, side, layout)});
          const std::string normed = NormRotary(Rotary(r, interleaved, side, layout), interleaved);
          cases.push_back({"NormRotary", {kBig, kRow, {300, r}, {3, 1, r}}, normed, {0}, 1});
          cases.push_back({"NormRotary", {kBig, kRow, {r / 2}, {3, 300, r / 2}}, normed});
        }
      }
    }
  }
  for (const int64_t k : {1, 8}) {
    cases.push_back(Route({kBig}, Router(k)));
    cases.push_back(Route({kBig, kRow}, Router(k, 1, 1, "top_k_first")));
    cases.push_back(Route({kBig, kRow}, Router(k, 10, 3, "score_first", "top2_sum")));
  }
  cases.push_back(Route({{0, 70}, kRow}, Router(2)));
  const auto same_everywhere = [&](const Case& c, ONNXTensorElementDataType type) {
    const Result want = Run(c, api, type, 1, false);
    Check(want.error.empty(), c.op + (" " + c.attributes), want.error);
    for (const Way& way : kWays) {
      Check(Run(c, api, type, way.threads, way.in_place) == want, c.op + (" " + c.attributes),
            "threads or memory change the result");
    }
  };
  for (const auto type : {kF32, kF16, kBF16}) {
    for (const Case& c : cases) same_everywhere(c, type);
  }
  Check(allocations == 0, "allocations while kernels ran", std::to_string(allocations));
  // Rows so long that moving their pairs in place needs a copy.
  for (const int interleaved : {0, 1}) {
    const char* layout = interleaved ? "halves" : "interleaved";
    same_everywhere({"RotaryEmbedding", {{7, 5003}, {7, 2500}, {5000}}, Rotary(5000, interleaved, "last", layout)},
                    kF16);
    same_everywhere(
        {"NormRotary", {{7, 5003}, {5003}, {7, 2500}, {5000}}, NormRotary(Rotary(5000, interleaved, "last", layout))},
        kF16);
  }
  // So many experts that choosing among them needs memory.
  same_everywhere(Route({{5, 2003}, {2003}}, Router(9)), kF32);
}

struct Bad {
  Case c;
  std::vector<const char*> words;  // of the error
};

void TestBad(const OrtApi& api) {
  const Dims x{2, 3, 8}, table{3, 8}, none{}, negative{2, -3, 8}, many(17, 1);
  const int64_t huge = int64_t{1} << 62;
  const Dims too_large{huge, 2, 8}, wraps{int64_t{1} << 32, int64_t{1} << 32, 8};
  const std::string rotary = Rotary(8);
  std::vector<Bad> table_of{
      {{"RMSNorm", {x, {4}}, kNorm}, {"RMSNorm", "scale has shape [4]", "X [2,3,8]", "must be [8]"}},
      {{"RMSNorm", {x, {4}}, kNorm, {0}, 1}, {"scale has shape [4]"}},
      {{"RMSNorm", {x, {0}}, kNorm, {0}, 1}, {"scale has shape [0]"}},
      {{"RMSNorm", {x, none}, kNorm}, {"scale has shape []"}},
      {{"RMSNorm", {none, {8}}, kNorm}, {"X []", "axis -1"}},
      {{"RMSNorm", {{8}, {8}}, "axis=-2 scale_after_cast=0 epsilon=0.1"}, {"X [8]", "axis -2"}},
      {{"RMSNorm", {many, {1}}, kNorm}, {"RMSNorm", "X has rank 17"}},
      {{"RMSNorm", {{1}, many}, kNorm, {0}, 1}, {"RMSNorm", "scale has rank 17"}},
      {{"RMSNorm", {negative, {8}}, kNorm}, {"X has shape [2,-3,8]"}},
      {{"RMSNorm", {x, {-8}}, kNorm, {0}, 1}, {"scale has shape [-8]"}},
      {{"RMSNorm", {too_large, {8}}, kNorm}, {"X has shape [4611686018427387904,2,8]"}},
      {{"RMSNorm", {{2, huge}, {huge}}, kNorm, {0}, 1}, {"scale has shape [4611686018427387904]"}},
      {{"RMSNorm", {x, {8}}, kNorm, {0}, -1, {}, 1}, {"RMSNorm", "scale is missing"}},
      {{"RMSNorm", {x, {8}}, kNorm, {0}, -1, {}, -2}, {"RMSNorm", "output 0"}},
      {{"RMSNorm", {x, {8}}, kGLU}, {"RMSNorm", "the_node", "axis"}},
      {{"RMSNorm", {x, {8}}, "axis=0 scale_after_cast=0 epsilon=0.1"}, {"axis is 0", "the_node"}},
      {{"RMSNorm", {x, {8}}, "axis=-17 scale_after_cast=0 epsilon=0.1"}, {"axis is -17"}},
      {{"RMSNorm", {x, {8}}, "axis=-1 scale_after_cast=-1 epsilon=0.1"}, {"scale_after_cast is -1"}},
      {{"RMSNorm", {x, {8}}, "axis=-1 scale_after_cast=0 epsilon=-0.5"}, {"epsilon is -0.5"}},
      {{"AddRMSNorm", {x, {8}, {8}}, kNorm, {0, 1}}, {"AddRMSNorm", "residual has shape [8]", "[2,3,8]"}},
      {{"AddRMSNorm", {x, x, {3, 8}}, kNorm, {0, 1}}, {"AddRMSNorm", "scale has shape [3,8]"}},
      {{"AddRMSNorm", {x, many, {8}}, kNorm, {0, 1}}, {"AddRMSNorm", "residual has rank 17"}},
      {{"GLU", {x, {8}}, kGLU}, {"GLU", "gate", "[2,3,8]", "up has shape [8]"}},
      {{"GLU", {wraps, wraps}, kGLU}, {"GLU", "gate has shape [4294967296,4294967296,8]"}},
      {{"GLU", {x, negative}, kGLU}, {"GLU", "up has shape [2,-3,8]"}},
      {{"GLU", {x, x}, kNorm}, {"GLU", "the_node", "activation"}},
      {{"GLU", {x, x}, "activation=relu alpha=1. limit=0. up_offset=0."}, {"activation is \"relu\""}},
      {{"GLU", {x, x}, "activation=silu alpha=1. limit=-1. up_offset=0."}, {"limit is -1"}},
      {{"RotaryEmbedding", {x, {7, 4}, table}, rotary}, {"RotaryEmbedding", "cos has shape [7,4]", "X [2,3,8]"}},
      {{"RotaryEmbedding", {x, table, {3, 6}}, rotary}, {"sin has shape [3,6]", "[2,3,8] or [2,3,4]"}},
      {{"RotaryEmbedding", {x, table, {0, 8}}, rotary}, {"sin has shape [0,8]"}},
      {{"RotaryEmbedding", {x, {3, 0}, table}, rotary}, {"cos has shape [3,0]"}},
      {{"RotaryEmbedding", {x, none, table}, rotary}, {"cos has shape []"}},
      {{"RotaryEmbedding", {x, {1, 1, 3, 8}, table}, rotary}, {"cos has shape [1,1,3,8]"}},
      {{"RotaryEmbedding", {x, table, {2, 1, 3, 8}}, rotary}, {"sin has shape [2,1,3,8]"}},
      {{"RotaryEmbedding", {none, table, table}, rotary}, {"X has shape []"}},
      {{"RotaryEmbedding", {{2, 3, 6}, table, table}, rotary}, {"X [2,3,6]", "rotary_dim 8"}},
      {{"RotaryEmbedding", {{3, 0}, table, table}, rotary}, {"X [3,0]"}},
      {{"RotaryEmbedding", {x, table, table}, Rotary(huge)}, {"rotary_dim 4611686018427387904"}},
      {{"RotaryEmbedding", {negative, table, table}, rotary}, {"X has shape [2,-3,8]"}},
      {{"RotaryEmbedding", {x, {-3, 8}, table}, rotary}, {"cos has shape [-3,8]"}},
      {{"RotaryEmbedding", {{2, 3, -8}, table, table}, rotary}, {"X has shape [2,3,-8]"}},
      {{"RotaryEmbedding", {too_large, table, table}, rotary}, {"X has shape [4611686018427387904,2,8]"}},
      {{"RotaryEmbedding", {x, many, table}, rotary}, {"RotaryEmbedding", "cos has rank 17"}},
      {{"RotaryEmbedding", {many, table, table}, rotary}, {"RotaryEmbedding", "X has rank 17"}},
      {{"RotaryEmbedding", {x, table, table}, rotary, {0}, -1, {}, 2}, {"RotaryEmbedding", "sin is missing"}},
      {{"RotaryEmbedding", {x, table, table}, rotary, {0}, -1, {2, -1, 6}},
       {"rotary_dim is 8", "at most 6", "the_node"}},
      {{"RotaryEmbedding", {x, table, table}, Rotary(7)}, {"rotary_dim is 7", "the_node"}},
      {{"NormRotary", {x, {4}, table, table}, NormRotary(rotary)},
       {"NormRotary", "scale has shape [4]", "must be [8]"}},
      {{"NormRotary", {x, {4}, table, table}, NormRotary(rotary), {0}, 1}, {"scale has shape [4]"}},
      {{"NormRotary", {x, {3, 8}, table, table}, NormRotary(rotary)}, {"scale has shape [3,8]"}},
      {{"NormRotary", {x, none, table, table}, NormRotary(rotary)}, {"scale has shape []"}},
      {{"NormRotary", {none, {8}, table, table}, NormRotary(rotary)}, {"NormRotary", "X has shape []"}},
      {{"NormRotary", {{3, 0}, {0}, table, table}, NormRotary(rotary)}, {"NormRotary", "X [3,0]"}},
      {{"NormRotary", {x, {8}, {7, 4}, table}, NormRotary(rotary)}, {"NormRotary", "cos has shape [7,4]", "X [2,3,8]"}},
      {{"NormRotary", {x, {8}, table, {3, 6}}, NormRotary(rotary)},
       {"NormRotary", "sin has shape [3,6]", "[2,3,8] or [2,3,4]"}},
      {{"NormRotary", {negative, {8}, table, table}, NormRotary(rotary)}, {"NormRotary", "X has shape [2,-3,8]"}},
      {{"NormRotary", {too_large, {8}, table, table}, NormRotary(rotary)}, {"X has shape [4611686018427387904,2,8]"}},
      {{"NormRotary", {many, {1}, table, table}, NormRotary(rotary)}, {"NormRotary", "X has rank 17"}},
      {{"NormRotary", {x, {8}, table, table}, NormRotary(rotary), {0}, -1, {}, 1}, {"NormRotary", "scale is missing"}},
      {{"NormRotary", {x, {8}, table, table}, NormRotary(rotary), {0}, -1, {}, -2}, {"NormRotary", "output 0"}},
      {{"NormRotary", {x, {8}, table, table}, NormRotary(rotary), {0}, -1, {2, -1, 6}},
       {"rotary_dim is 8", "at most 6", "the_node"}},
      {{"NormRotary", {x, {8}, table, table}, rotary}, {"NormRotary", "the_node", "epsilon"}},
      {{"NormRotary", {x, {8}, table, table}, NormRotary(rotary, 0, "-0.5")}, {"epsilon is -0.5"}},
      {{"NormRotary", {x, {8}, table, table}, NormRotary(rotary, 2)}, {"scale_after_cast is 2"}},
      {{"NormRotary", {x, {8}, table, table}, NormRotary(Rotary(8, 2))}, {"interleaved is 2"}},
      {{"RotaryEmbedding", {x, table, table}, Rotary(0)}, {"rotary_dim is 0"}},
      {{"RotaryEmbedding", {x, table, table}, Rotary(-8)}, {"rotary_dim is -8"}},
      {{"RotaryEmbedding", {x, table, table}, Rotary(INT64_MIN)}, {"rotary_dim is -9223372036854775808"}},
      {{"RotaryEmbedding", {x, table, table}, Rotary(8, 2)}, {"interleaved is 2"}},
      {{"RotaryEmbedding", {x, table, table}, Rotary(8, -1)}, {"interleaved is -1"}},
      {{"RotaryEmbedding", {x, table, table}, Rotary(8, 0, "middle")}, {"rotated_side is \"middle\"", "\"last\""}},
      {{"RotaryEmbedding", {x, table, table}, Rotary(8, 0, "first", "")}, {"output_layout is \"\"", "\"halves\""}},
      {{"RotaryEmbedding", {x, table, table}, Rotary(8, 0, std::string(99, 'x').c_str())},
       {"rotated_side", "the_node"}},
      {{"RotaryEmbedding", {x, table, table}, "interleaved=0 rotary_dim=8"}, {"rotated_side", "required"}},
      {{"RotaryEmbedding", {x, table, table}, kNorm}, {"interleaved", "required"}},
      {Route({x, {4}}, Router(2)), {"TopKRouter", "correction_bias has shape [4]", "logits [2,3,8]", "must be [8]"}},
      {Route({x, {1, 8}}, Router(2)), {"correction_bias has shape [1,8]"}},
      {Route({x}, Router(9)), {"logits [2,3,8]", "top_k 9", "here 9 and 8"}},
      {Route({x}, Router(3, 4, 1)), {"top_k 3", "here 3 and 2"}},
      {Route({x}, Router(2, 3, 2)), {"groups 3", "logits [2,3,8]"}},
      {Route({x}, Router(2, 8, 8, "score_first", "top2_sum")), {"top2_sum", "two experts or more"}},
      {Route({none}, Router(2)), {"logits has shape []"}},
      {Route({{2, 0}}, Router(2)), {"here 2 and 0"}},
      {Route({negative}, Router(2)), {"logits has shape [2,-3,8]"}},
      {Route({{3, huge}}, Router(2)), {"logits has shape [3,4611686018427387904]"}},
      {Route({many}, Router(1)), {"logits has rank 17"}},
      {Route({x}, Router(0)), {"top_k is 0", "at least 1", "the_node"}},
      {Route({x}, Router(INT64_MIN)), {"top_k is -9223372036854775808"}},
      {Route({x}, Router(2, 0)), {"groups is 0"}},
      {Route({x}, Router(2, 2, 3)), {"group_top_k is 3", "at most groups"}},
      {Route({x}, Router(2, huge, huge)), {"groups 4611686018427387904"}},
      {Route({x}, Router(2, 2, 1, "top_k_first")), {"groups is 2", "top_k_first"}},
      {Route({x}, Router(2, 1, 1, "last")), {"order is \"last\"", "\"score_first\" or \"top_k_first\""}},
      {Route({x}, Router(2, 2, 1, "score_first", "mean")), {"group_score is \"mean\""}},
      {Route({x}, kNorm), {"top_k", "required"}},
  };
  for (const Bad& bad : table_of) {
    const Result result = Run(bad.c, api, kF32, 4, false);
    for (const char* word : bad.words) {
      Check(result.error.find(word) != std::string::npos, bad.c.op + std::string(" should say ") + word,
            result.error.empty() ? "there is no error" : result.error);
    }
  }
}

int Main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "latest") != 0) version = static_cast<uint32_t>(atoi(argv[1]));
  static const OrtApi api = StandIn();
  static const OrtApi other = StandIn();
  static const OrtApi* serve = &api;
  OrtApiBase base;
  base.GetApi = [](uint32_t v) noexcept -> const OrtApi* { return v <= version ? serve : nullptr; };
  base.GetVersionString = []() noexcept -> const char* { return "unknown"; };
  OrtStatus* status = RegisterCustomOps(nullptr, &base);
  if (version < 16) {
    Check(status != nullptr, "register", "a runtime that is too old was not refused");
    if (status != nullptr) api.ReleaseStatus(status);
    printf("API %-3u %s\n", version, failures == 0 ? "refused" : "failed");
    return failures != 0;
  }
  Check(status == nullptr && RegisterCustomOps(nullptr, &base) == nullptr, "register", "it failed");
  serve = &other;
  status = RegisterCustomOps(nullptr, &base);
  Check(status != nullptr, "register", "a second runtime was not refused");
  if (status != nullptr) api.ReleaseStatus(status);
  // The versions between differ only in how values are asked for.
  const bool thorough = version == ORT_API_VERSION;
  TestForms(api, thorough);
  TestAttributes(api);
  TestBad(api);
  TestEmpty(api);
  if (thorough) {
    TestGood(api);
    TestMoE(api, Check);
  }
  printf("API %-3u %s\n", version, failures == 0 ? "good" : "failed");
  return failures != 0;
}

}  // namespace

void Check(bool ok, const std::string& what, const std::string& detail) {
  if (ok) return;
  ++failures;
  fprintf(stderr, "API %u: %s: %s\n", version, what.c_str(), detail.c_str());
}

OrtValue Tensor(ONNXTensorElementDataType type, const Dims& shape, float seed) {
  size_t n = 1;
  for (int64_t d : shape) n = d < 0 || d > 1 << 20 || n > 1 << 20 ? 0 : n * static_cast<size_t>(d);
  const bool byte = type == kI8 || type == kU8 || type == mojo::kF8;
  const size_t size = type == kI64 ? 8 : type == kF32 || type == mojo::kI32 ? 4 : byte ? 1 : 2;
  OrtValue v{shape, std::vector<char>((n + 1) * size), nullptr};
  v.data = v.memory.data() + size;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    v.memory.clear();
    v.data = nullptr;
  }
  const size_t period = 101;  // of the numbers
  for (size_t i = 0; i < std::min(n, period); ++i) {
    if (byte) {
      v.data[i] = static_cast<char>(i * 37 % period);
      continue;
    }
    if (type == kI64) {
      const int64_t number = i * 37 % period % 2;
      memcpy(v.data + i * size, &number, size);
      continue;
    }
    if (type == mojo::kI32) continue;
    const uint32_t bits = Bits(type, seed + static_cast<float>(i * 37 % period) / 50 - 1);
    memcpy(v.data + i * size, &bits, size);
  }
  for (size_t i = period; i < n; i *= 2) memcpy(v.data + i * size, v.data, std::min(i, n - i) * size);
  return v;
}

}  // namespace mojo_test

int main(int argc, char** argv) { return mojo_test::Main(argc, argv); }
