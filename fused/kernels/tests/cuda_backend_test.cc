// Runs the CUDA backends inside the stand-in for onnxruntime: cuda_backend_test API_VERSION. The functions of
// cuda_calls.cc replace the kernels, so it needs no GPU.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda_calls.h"
#include "tests/forms.h"
#include "tests/stand_in.h"

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base);

namespace mojo_test {
namespace {

using Type = ONNXTensorElementDataType;
constexpr Type kF32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, kF16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
               kBF16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, kI64 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
               kU8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, kI8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;

int failures = 0;

void Check(bool ok, const std::string& what) {
  if (ok) return;
  ++failures;
  fprintf(stderr, "API %u: %s\n", version, what.c_str());
}

// Case is a node: its op, the types and shapes of its inputs (undefined: omitted), and its attributes.
struct Case {
  const char* op;
  std::vector<Type> types;
  std::vector<Dims> shapes;
  OrtKernelInfo info;
  size_t outputs = 1;
};

// The tensors of the last Run, at different addresses; their contents are unused.
char in[mojo::kMaxInputs], out[mojo::kMaxOutputs];
std::vector<int64_t> out_shape[mojo::kMaxOutputs];

// Run makes the CUDA kernel of a node, runs it and returns its error, or "".
std::string Run(const Case& c, const OrtApi& api) {
  const OrtCustomOp* op = nullptr;
  for (const OrtCustomOp* candidate : the_domain.ops) {
    const char* provider = candidate->GetExecutionProviderType(candidate);
    if (provider == nullptr || strcmp(candidate->GetName(candidate), c.op) != 0) continue;
    Check(strcmp(provider, "CUDAExecutionProvider") == 0, std::string("the provider is ") + provider);
    bool same = true;
    for (size_t i = 0; i < c.types.size(); ++i) {
      same = same && candidate->GetInputType(candidate, i) == c.types[i];
      Check(candidate->GetInputMemoryType(candidate, i) == OrtMemTypeDefault, "an input is not on the device");
    }
    if (same) op = candidate;
  }
  if (op == nullptr) return "there is no such kernel";
  const auto error = [&](OrtStatus* status) {
    std::string text;
    if (status != nullptr) text = status->message, api.ReleaseStatus(status);
    return text;
  };
  const int before = live_objects;
  OrtValue inputs[mojo::kMaxInputs], outputs[mojo::kMaxOutputs];
  OrtKernelContext context{{}, {}, 1};
  for (size_t i = 0; i < c.shapes.size(); ++i) {
    inputs[i].shape = c.shapes[i];
    inputs[i].data = &in[i];
    context.inputs.push_back(c.shapes[i] == kLeftOut ? nullptr : &inputs[i]);
  }
  for (size_t i = 0; i < mojo::kMaxOutputs; ++i) {
    outputs[i].data = &out[i];
    context.outputs.push_back(i < c.outputs ? &outputs[i] : nullptr);
  }
  call = Call();
  void* kernel = nullptr;
  std::string text = error(op->CreateKernelV2(op, &api, &c.info, &kernel));
  if (text.empty()) text = error(op->KernelComputeV2(kernel, &context));
  op->KernelDestroy(kernel);
  for (size_t i = 0; i < mojo::kMaxOutputs; ++i) out_shape[i] = outputs[i].shape;
  Check(live_objects == before, std::string(c.op) + " leaves something behind");
  if (call.count > 0)
    Check(call.stream == reinterpret_cast<cudaStream_t>(&the_stream), std::string(c.op) + ": another stream");
  return text;
}

OrtKernelInfo Node(std::map<std::string, int64_t> ints, std::map<std::string, float> floats,
                   std::map<std::string, std::string> strings = {}) {
  OrtKernelInfo info;
  info.ints = ints, info.floats = floats, info.strings = strings;
  return info;
}

const OrtKernelInfo kNorm = Node({{"axis", -2}, {"scale_after_cast", 0}}, {{"epsilon", 0.5f}});
const OrtKernelInfo kGate = Node({}, {{"alpha", 1}, {"limit", 2}, {"up_offset", 3}}, {{"activation", "gelu_tanh"}});
const OrtKernelInfo kRotate =
    Node({{"interleaved", 1}, {"rotary_dim", 4}}, {}, {{"rotated_side", "last"}, {"output_layout", "halves"}});
const OrtKernelInfo kNormRotate =
    Node({{"scale_after_cast", 1}, {"interleaved", 0}, {"rotary_dim", 4}}, {{"epsilon", 0.25f}},
         {{"rotated_side", "last"}, {"output_layout", "interleaved"}});
const OrtKernelInfo kRoute = Node({{"top_k", 3}, {"groups", 4}, {"group_top_k", 2}, {"renormalize", 1}},
                                  {{"excluded_score", 0}, {"epsilon", 0.25f}, {"scale", 2.5f}},
                                  {{"score", "sigmoid"}, {"order", "score_first"}, {"group_score", "top2_sum"}});
const OrtKernelInfo kExperts =
    Node({}, {{"alpha", 1.5f}, {"limit", 7}, {"up_offset", 1}},
         {{"activation", "silu"}, {"packing", "interleaved"}, {"gate_up_layout", "in_out"}, {"down_layout", "out_in"}});

const OrtKernelInfo kAttend = Node({{"causal", 1}, {"window", 7}}, {{"scale", 0.25f}, {"softcap", 30}},
                                   {{"empty", "mean"},
                                    {"head_order", "cyclic"},
                                    {"q_layout", "bsnh"},
                                    {"k_layout", "bnsh"},
                                    {"v_layout", "bsnh"},
                                    {"y_layout", "bsnh"}});

Case Attention(Type type) {
  return {"Attention",
          {type, type, type, kI64, type, type, kI64, kF32, kF32},
          {{2, 3, 6, 8}, {2, 2, 3, 8}, {2, 3, 2, 4}, {2, 21}, {2, 2, 20, 8}, {2, 2, 20, 4}, {2}, {3, 1}, {6}},
          kAttend,
          3};
}

const OrtKernelInfo kAttendLatents =
    Node({{"causal", 1}}, {{"scale", 0.25f}},
         {{"empty", "mean"}, {"q_layout", "bsnh"}, {"y_layout", "bnsh"}, {"w_layout", "out_in"}});

// LatentAttention has 6 heads of 5 + 3 channels, values of 4, latents of 10 and three new tokens in a room of 20.
Case LatentAttention(Type type) {
  return {"LatentAttention",
          {type, type, type, type, kI64, type, kI64},
          {{2, 3, 6, 8}, {2, 3, 10}, {2, 1, 3, 3}, {54, 10}, {2, 21}, {2, 1, 20, 13}, {1}},
          kAttendLatents,
          2};
}

Case MoE(Type x, Type v) {
  return {"MoE",
          {x, kF32, kI64, v, v, v, v},
          {{2, 5, 8}, {10, 3}, {2, 5, 3}, {4, 8, 12}, {4, 8, 6}, kLeftOut, {4, 8}},
          kExperts};
}

void TestArguments(const OrtApi& api) {
  Check(Run({"RMSNorm", {kBF16, kF32}, {{2, 3, 4, 5}, {4, 5}}, kNorm}, api).empty(), "RMSNorm fails");
  const MojoRMSNormArgs& n = call.norm;
  Check(!added && n.x == &in[0] && n.scale == &in[1] && n.y == &out[0] && n.rows == 6 && n.width == 20 &&
            n.epsilon == 0.5f && n.x_type == kMojoBFloat16 && n.scale_type == kMojoFloat32 && !n.scale_after_cast,
        "RMSNorm's arguments");
  for (size_t outputs : {1, 2}) {
    Check(Run({"AddRMSNorm", {kF16, kF16, kF16}, {{3, 4, 5}, {3, 4, 5}, {4, 5}}, kNorm, outputs}, api).empty(),
          "AddRMSNorm fails");
    Check(added && n.residual == &in[1] && n.scale == &in[2] && n.sum == (outputs == 2 ? &out[1] : nullptr) &&
              n.rows == 3,
          "AddRMSNorm's arguments");
  }
  Check(Run({"GLU", {kF32, kF32}, {{3, 7}, {3, 7}}, kGate}, api).empty(), "GLU fails");
  const MojoGLUArgs& g = call.glu;
  Check(g.gate == &in[0] && g.up == &in[1] && g.y == &out[0] && g.count == 21 && g.type == kMojoFloat32 &&
            g.activation == mojo::Activation::kGeluTanh && g.alpha == 1 && g.limit == 2 && g.up_offset == 3,
        "GLU's arguments");
  Check(Run({"RotaryEmbedding", {kF16, kF16, kF16}, {{2, 3, 5, 6}, {2, 1, 5, 4}, {5, 2}}, kRotate}, api).empty(),
        "RotaryEmbedding fails");
  const MojoRotaryArgs& r = call.rotary;
  Check(r.x == &in[0] && r.cos == &in[1] && r.sin == &in[2] && r.y == &out[0] && r.type == kMojoFloat16 &&
            r.rank == 3 && r.dims[0] == 2 && r.dims[1] == 3 && r.dims[2] == 5 && r.cos_step[0] == 20 &&
            r.cos_step[1] == 0 && r.cos_step[2] == 4 && r.sin_step[0] == 0 && r.sin_step[2] == 2 && r.width == 6 &&
            r.first == 2 && r.rotated == 4 && r.cos_wide && !r.sin_wide && r.interleaved && !r.output_interleaved,
        "RotaryEmbedding's arguments");
  Check(Run({"NormRotary", {kF32, kF16, kF16, kF16}, {{2, 3, 5, 6}, {6}, {2, 1, 5, 4}, {5, 2}}, kNormRotate}, api)
            .empty(),
        "NormRotary fails");
  const MojoNormRotaryArgs& b = call.norm_rotary;
  const MojoRotaryArgs& q = b.rotary;
  Check(q.x == &in[0] && b.scale == &in[1] && q.cos == &in[2] && q.sin == &in[3] && q.y == &out[0] &&
            q.type == kMojoFloat16 && b.x_type == kMojoFloat32 && b.scale_type == kMojoFloat16 && b.scale_after_cast &&
            b.epsilon == 0.25f && q.rank == 3 && q.dims[2] == 5 && q.cos_step[0] == 20 && q.cos_step[1] == 0 &&
            q.sin_step[2] == 2 && q.width == 6 && q.first == 2 && q.rotated == 4 && q.cos_wide && !q.sin_wide &&
            !q.interleaved && q.output_interleaved && out_shape[0] == Dims{2, 3, 5, 6},
        "NormRotary's arguments");
  Check(Run({"NormRotary", {kBF16, kF32, kBF16, kBF16}, {{3, 6}, {1, 6}, {2}, {2}}, kNormRotate}, api)
                .find("scale_after_cast is 1") != std::string::npos,
        "NormRotary takes a scale that its norm does not");
}

// TestAttention has lengths on the device: the backend must not read them.
void TestAttention(const OrtApi& api) {
  Check(Run(Attention(kBF16), api).empty(), "Attention fails");
  const MojoAttentionArgs& a = call.attention;
  Check(a.q == &in[0] && a.k == &in[1] && a.v == &in[2] && static_cast<const void*>(a.key_valid) == &in[3] &&
            a.past_key == &in[4] && a.past_value == &in[5] && static_cast<const void*>(a.past_lengths) == &in[6] &&
            static_cast<const void*>(a.bias) == &in[7] && static_cast<const void*>(a.sink) == &in[8] &&
            a.y == &out[0] && a.present_key == &out[1] && a.present_value == &out[2] && a.scratch != nullptr,
        "Attention's tensors");
  Check(a.batch == 2 && a.heads == 6 && a.key_heads == 2 && a.queries == 3 && a.added == 3 && a.past == 20 &&
            a.room == 20 && a.width == 8 && a.value_width == 4 && a.valid_step == 21 && !a.one_length &&
            a.bias_keys == 1 && a.bias_steps[2] == 1 && a.bias_steps[3] == 0 && a.bias_steps[1] == 0,
        "Attention's sizes");
  Check(a.q_steps.head == 8 && a.q_steps.row == 48 && a.k_steps.head == 24 && a.k_steps.row == 8 &&
            a.v_steps.head == 4 && a.v_steps.row == 8 && a.y_steps.row == 24 && a.y_steps.batch == 72,
        "Attention's steps");
  Check(a.scale == 0.25f && a.causal && a.window == 7 && a.softcap == 30 && a.empty_mean && a.cyclic &&
            a.type == kMojoBFloat16,
        "Attention's attributes");
  Check(out_shape[0] == Dims{2, 3, 6, 4} && out_shape[1] == Dims{2, 2, 20, 8} && out_shape[2] == Dims{2, 2, 20, 4},
        "the shapes of Attention's outputs");
}

void TestLatentAttention(const OrtApi& api) {
  Check(Run(LatentAttention(kF16), api).empty(), "LatentAttention fails");
  const MojoLatentAttentionArgs& a = call.latent;
  Check(a.q == &in[0] && a.c == &in[1] && a.k_pe == &in[2] && a.w == &in[3] &&
            static_cast<const void*>(a.key_valid) == &in[4] && a.past_latents == &in[5] &&
            static_cast<const void*>(a.past_lengths) == &in[6] && a.y == &out[0] && a.present == &out[1] &&
            a.scratch != nullptr,
        "LatentAttention's tensors");
  Check(a.batch == 2 && a.heads == 6 && a.queries == 3 && a.added == 3 && a.past == 20 && a.room == 20 && a.nope == 5 &&
            a.rotated == 3 && a.latent == 10 && a.value_width == 4 && a.valid_step == 21 && a.one_length,
        "LatentAttention's sizes");
  Check(a.q_steps.batch == 144 && a.q_steps.head == 8 && a.q_steps.row == 48 && a.y_steps.batch == 72 &&
            a.y_steps.head == 12 && a.y_steps.row == 4,
        "LatentAttention's steps");
  Check(a.scale == 0.25f && a.causal && a.empty_mean && a.w_out_in && a.type == kMojoFloat16,
        "LatentAttention's attributes");
  Check(out_shape[0] == Dims{2, 6, 3, 4} && out_shape[1] == Dims{2, 1, 20, 13},
        "the shapes of LatentAttention's outputs");
}

bool IsWeights(const MojoQuantizedWeights& w, size_t codes, size_t scale, size_t minus, size_t super_scale,
               size_t super_minus) {
  const auto at = [](size_t i) { return i == 0 ? nullptr : static_cast<const void*>(&in[i]); };
  return w.codes == at(codes) && w.scale == at(scale) && w.minus == at(minus) && w.super_scale == at(super_scale) &&
         w.super_minus == at(super_minus);
}

void TestQuantized(const OrtApi& api) {
  const OrtKernelInfo weights =
      Node({{"zero", 3}, {"block", 16}, {"n", 20}, {"k", 512}}, {}, {{"code", "int4"}, {"activations", "int8"}});
  const Dims codes = {2, 16, 4, 64}, scale = {2, 32, 16}, super = {2, 2, 16};
  Check(Run({"Linear",
             {kF16, kU8, kI8, kI8, kF16, kF16, kF16},
             {{3, 2, 512}, codes, scale, scale, super, super, {20}},
             weights},
            api)
            .empty(),
        "Linear fails");
  const MojoLinearArgs& l = call.linear;
  Check(l.x == &in[0] && IsWeights(l.weights, 1, 2, 3, 4, 5) && l.bias == &in[6] && l.y == &out[0] && l.rows == 6 &&
            l.scratch != nullptr && l.type == kMojoFloat16 && l.rounding == mojo::Activations::kInt8,
        "Linear's arguments");
  Check(l.weights.n == 20 && l.weights.k == 512 && l.weights.block == 16 && l.weights.zero == 3 &&
            l.weights.code == mojo::Code::kInt4 && l.weights.scales == kMojoTwofoldScales,
        "Linear's weights");
  const OrtKernelInfo table = Node({{"zero", 0}, {"block", 32}, {"n", 20}, {"k", 64}}, {}, {{"code", "e2m1"}});
  Check(Run({"Embedding",
             {kI64, kU8, kU8, kU8, kF16, kF16},
             {{3, 2}, {2, 2, 4, 64}, {2, 2, 16}, kLeftOut, kLeftOut, kLeftOut},
             table},
            api)
            .empty(),
        "Embedding fails");
  const MojoEmbeddingArgs& e = call.embedding;
  Check(static_cast<const void*>(e.ids) == &in[0] && IsWeights(e.weights, 1, 2, 0, 0, 0) &&
            static_cast<void*>(e.y) == &out[0] && e.count == 6 && e.weights.code == mojo::Code::kE2m1 &&
            e.weights.scales == kMojoExponentScales && out_shape[0] == Dims{3, 2, 64},
        "Embedding's arguments");
  const OrtKernelInfo experts = Node({{"gate_up_zero", 0},
                                      {"gate_up_block", 32},
                                      {"down_zero", 128},
                                      {"down_block", 32},
                                      {"hidden", 64},
                                      {"inner", 32}},
                                     {{"alpha", 1.5f}, {"limit", 7}, {"up_offset", 1}},
                                     {{"activation", "silu"},
                                      {"packing", "interleaved"},
                                      {"gate_up_code", "e2m1"},
                                      {"down_code", "int8"},
                                      {"activations", "int16"}});
  Case q = {"QMoE",
            {kBF16, kF32, kI64, kU8, kU8, kU8, kF16, kU8, kF16, kF16, kF16, kF16, kF16, kF32, kF32},
            {{2, 5, 64}, {10, 3}, {2, 5, 3}, {4, 4, 2, 4, 64}, {4, 4, 2, 16}, {4, 4, 1, 8, 64}, {4, 4, 1, 16}},
            experts};
  q.shapes.resize(13, kLeftOut);
  q.shapes.push_back({4, 64});
  q.shapes.push_back({4, 64});
  const std::string text = Run(q, api);
  Check(text.empty(), "QMoE fails: " + text);
  const MojoQMoEArgs& m = call.qmoe;
  Check(m.moe.x == &in[0] && m.moe.weights == &in[1] && static_cast<const void*>(m.moe.ids) == &in[2] &&
            IsWeights(m.gate_up, 3, 4, 0, 0, 0) && IsWeights(m.down, 5, 6, 0, 0, 0) && m.moe.gate_up_bias == &in[13] &&
            m.moe.down_bias == &in[14] && m.moe.y == &out[0] && m.moe.scratch != nullptr,
        "QMoE's tensors");
  Check(m.moe.tokens == 10 && m.moe.top_k == 3 && m.moe.experts == 4 && m.moe.hidden == 64 && m.moe.inner == 32 &&
            m.gate_up.n == 64 && m.gate_up.k == 64 && m.down.n == 64 && m.down.k == 32 &&
            m.gate_up.code == mojo::Code::kE2m1 && m.down.code == mojo::Code::kInt8 && m.down.zero == 128 &&
            m.down.scales == kMojoHalfScales,
        "QMoE's sizes");
  Check(m.moe.x_type == kMojoBFloat16 && m.moe.weights_type == kMojoFloat32 &&
            m.moe.packing == mojo::Packing::kInterleaved && m.moe.gate.alpha == 1.5f && m.moe.gate.limit == 7 &&
            m.moe.gate.up_offset == 1 && m.rounding == mojo::Activations::kInt16,
        "QMoE's attributes");
}

// TestTables tests the tables of experts that a node reads.
void TestTables(const OrtApi& api) {
  const std::string path = "moe_table_" + std::to_string(getpid()) + ".json";
  const auto with = [&](const std::string& shape, const char* entries) {
    FILE* const file = fopen(path.c_str(), "w");
    fprintf(file, "{\"shape\": {%s, \"experts\": 4, \"top_k\": 3, \"capability\": 90}, %s}", shape.c_str(), entries);
    fclose(file);
    setenv("MOJO_MOE_CONFIG", path.c_str(), 1);
  };
  Case moe = MoE(kBF16, kBF16);
  moe.info.strings["gate_up_layout"] = "out_in";
  moe.shapes[3] = {4, 12, 8};
  const std::string shape = "\"format\": \"bfloat16\", \"hidden\": 8, \"inner\": 6";
  with(shape, R"("1": {"kernel": "few"}, "16": {"kernel": "mma", "block_m": 64})");
  std::string text = Run(moe, api);
  Check(text.empty() && call.moe.config.kernel == kMojoMma && call.moe.config.tile == 64, "a table's entry: " + text);
  with(shape, R"("1": {"kernel": "few"}, "16": {"kernel": "mma", "block_m": 24})");
  text = Run(moe, api);
  Check(text.find("mojo.MoE: MOJO_MOE_CONFIG: " + path + ": \"16\": the kernels have no such way") == 0,
        "a table that asks for too much: " + text);
  with("\"format\": \"mxfp4\", \"hidden\": 8, \"inner\": 6", R"("16": {"kernel": "mma", "block_m": 24})");
  text = Run(moe, api);
  Check(text.empty() && call.moe.config.kernel == kMojoAnyKernel, "a table of another format: " + text);
  with(shape, R"("16": {"kernel": "mma")");
  text = Run(moe, api);
  Check(text.find("mojo.MoE: MOJO_MOE_CONFIG: " + path + ": it is no JSON object") == 0, "half a table: " + text);
  unsetenv("MOJO_MOE_CONFIG");
  remove(path.c_str());
}

// TestScratch tests the ops that take memory for a run.
void TestScratch(const OrtApi& api) {
  for (size_t bytes : {0, 1024}) {
    wants = bytes;
    Check(Run({"TopKRouter", {kBF16, kF16}, {{2, 5, 16}, bytes == 0 ? kLeftOut : Dims{16}}, kRoute, 2}, api).empty(),
          "TopKRouter fails");
    const MojoTopKRouterArgs& t = call.router;
    Check(t.logits == &in[0] && t.bias == (bytes == 0 ? nullptr : &in[1]) && static_cast<void*>(t.weights) == &out[0] &&
              static_cast<void*>(t.ids) == &out[1] && t.rows == 10 && t.experts == 16 && t.top_k == 3 &&
              t.logits_type == kMojoBFloat16 && t.bias_type == kMojoFloat16 && t.score == mojo::Score::kSigmoid &&
              !t.top_k_first && t.groups == 4 && t.group_top_k == 2 && t.top2_sum && t.excluded_score == 0 &&
              t.renormalize && t.epsilon == 0.25f && t.scale == 2.5f && (t.scratch != nullptr) == (bytes > 0),
          "TopKRouter's arguments");
    Check(out_shape[0] == Dims{2, 5, 3} && out_shape[1] == Dims{2, 5, 3}, "the shapes of TopKRouter's outputs");
    Check(Run(MoE(kBF16, kF16), api).empty(), "MoE fails");
    const MojoMoEArgs& m = call.moe;
    Check(m.x == &in[0] && m.weights == &in[1] && static_cast<const void*>(m.ids) == &in[2] && m.gate_up == &in[3] &&
              m.down == &in[4] && m.gate_up_bias == nullptr && m.down_bias == &in[6] && m.y == &out[0] &&
              m.tokens == 10 && m.top_k == 3 && m.experts == 4 && m.hidden == 8 && m.inner == 6 &&
              m.x_type == kMojoBFloat16 && m.weights_type == kMojoFloat32 && m.expert_type == kMojoFloat16 &&
              m.packing == mojo::Packing::kInterleaved && m.gate_up_in_out && !m.down_in_out &&
              m.gate.activation == mojo::Activation::kSilu && m.gate.alpha == 1.5f && m.gate.limit == 7 &&
              m.gate.up_offset == 1 && (m.scratch != nullptr) == (bytes > 0),
          "MoE's arguments");
  }
  wants = size_t{1} << 40;
  const std::string text = Run(MoE(kF32, kF32), api);
  Check(call.count == 0 &&
            text.find("mojo.MoE: no 1099511627776 bytes of scratch memory on the device: there is not") == 0,
        "too much: " + text);
  wants = 64;
}

void TestErrors(const OrtApi& api) {
  gives = cudaErrorInvalidConfiguration;
  std::vector<Case> all = {{"RMSNorm", {kF32, kF32}, {{2, 4, 5}, {4, 5}}, kNorm},
                           {"AddRMSNorm", {kF32, kF32, kF32}, {{4, 5}, {4, 5}, {4, 5}}, kNorm, 2},
                           {"GLU", {kF32, kF32}, {{3}, {3}}, kGate},
                           {"RotaryEmbedding", {kF32, kF32, kF32}, {{3, 6}, {2}, {2}}, kRotate},
                           {"NormRotary", {kF32, kF32, kF32, kF32}, {{3, 6}, {6}, {2}, {2}}, kNormRotate}};
  if (version >= 18)
    all.insert(
        all.end(),
        {{"TopKRouter", {kF32, kF32}, {{5, 16}}, kRoute, 2}, MoE(kF32, kF32), Attention(kF32), LatentAttention(kF32)});
  for (const Case& c : all) {
    const std::string text = Run(c, api);
    Check(text.find(std::string("mojo.") + c.op + ": the CUDA kernel was not launched: ") == 0 &&
              text.find("cudaErrorInvalidConfiguration") != std::string::npos,
          std::string(c.op) + " says " + text);
  }
  gives = cudaSuccess;
  for (Case& c : all) {
    c.shapes[0].insert(c.shapes[0].begin(), -1);
    const std::string text = Run(c, api);
    Check(call.count == 0 && text.find(std::string("mojo.") + c.op + ": ") == 0,
          std::string(c.op) + " takes a shape that is none: " + text);
  }
}

// HasCode reports whether weights of a node have a code.
bool HasCode(const OrtKernelInfo& attributes, const std::string& code) {
  for (const char* name : {"code", "gate_up_code", "down_code"}) {
    const auto at = attributes.strings.find(name);
    if (at != attributes.strings.end() && at->second == code) return true;
  }
  return false;
}

// TestForms passes every op that has a kernel for CUDA to its backend, in every form and combination of types of the
// catalogue: the backend must accept the attributes and shapes and launch one kernel, or no kernel for an empty result.
// It must refuse forms without a kernel.
void TestForms(const OrtApi& api) {
  for (const Form& form : Forms()) {
    for (const size_t at : form.types) {
      const mojo::TypeCombo& types = form.op.combos[at];
      if (FindKernel(form.op, types, "CUDAExecutionProvider") == nullptr) continue;
      const std::vector<Type> inputs(types.inputs, types.inputs + form.op.input_count);
      const std::string text = Run({form.op.name, inputs, form.inputs, form.attributes, form.outputs.size()}, api);
      const auto activations = form.attributes.strings.find("activations");
      if (HasCode(form.attributes, "e4m3") && activations != form.attributes.strings.end() &&
          activations->second != "fp8") {
        Check(call.count == 0 && text.find("there is no CUDA kernel of it for code=e4m3") != std::string::npos,
              std::string(form.op.name) + " takes e4m3: " + text);
        continue;
      }
      const bool empty = std::all_of(form.outputs.begin(), form.outputs.end(), [](const Dims& dims) {
        return std::find(dims.begin(), dims.end(), 0) != dims.end();
      });
      Check(text.empty() && call.count == (empty ? 0 : 1),
            std::string(form.op.name) + " in a form of the catalogue: " + text);
      for (size_t i = 0; i < form.outputs.size(); ++i) {
        Check(out_shape[i] == form.outputs[i],
              std::string(form.op.name) + " gives another shape than the catalogue says");
      }
    }
  }
}

int Main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "latest") != 0) version = static_cast<uint32_t>(atoi(argv[1]));
  static const OrtApi api = StandIn();
  OrtApiBase base;
  base.GetApi = [](uint32_t v) noexcept -> const OrtApi* { return v <= version ? &api : nullptr; };
  base.GetVersionString = []() noexcept -> const char* { return "unknown"; };
  Check(RegisterCustomOps(nullptr, &base) == nullptr, "registration fails");
  TestArguments(api);
  if (version >= 18) {
    TestForms(api);
    TestAttention(api);
    TestLatentAttention(api);
    TestQuantized(api);
    TestScratch(api);
    TestTables(api);
  } else {
    Check(Run(MoE(kF32, kF32), api).find("mojo.MoE: its device kernel needs onnxruntime 1.18") == 0,
          "an old runtime is not refused");
  }
  TestErrors(api);
  printf("CUDA backends, API %-3u %s\n", version, failures == 0 ? "good" : "failed");
  return failures != 0;
}

}  // namespace
}  // namespace mojo_test

int main(int argc, char** argv) { return mojo_test::Main(argc, argv); }
