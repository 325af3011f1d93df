// aclopCompileAndExecute, for the operators that onnxruntime's provider runs one by one.
#include <cmath>
#include <cstring>
#include <set>

#include "desc.h"

using namespace cann_emulation;

namespace {

struct Operator {
  std::string type;
  std::vector<Tensor> in, out;
  std::vector<std::vector<uint8_t>> constants;  // the value of a constant input; empty for others
  aclopAttr attr;

  double Number(const char* name, double otherwise) const {
    auto found = attr.numbers.find(name);
    return found == attr.numbers.end() ? otherwise : found->second;
  }
};

using Unary = double (*)(double);
const std::map<std::string, Unary>& Unaries() {
  static const std::map<std::string, Unary>& table = *new std::map<std::string, Unary>{
      {"Abs", [](double x) { return std::fabs(x); }},
      {"Neg", [](double x) { return -x; }},
      {"Floor", [](double x) { return std::floor(x); }},
      {"Ceil", [](double x) { return std::ceil(x); }},
      {"Round", [](double x) { return std::nearbyint(x); }},
      {"Reciprocal", [](double x) { return 1 / x; }},
      {"Sqrt", [](double x) { return std::sqrt(x); }},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Log", [](double x) { return std::log(x); }},
      {"Erf", [](double x) { return std::erf(x); }},
      {"Sin", [](double x) { return std::sin(x); }},
      {"Cos", [](double x) { return std::cos(x); }},
      {"Relu", [](double x) { return x > 0 || std::isnan(x) ? x : 0; }},
  };
  return table;
}

using Binary = double (*)(double, double);
const std::map<std::string, Binary>& Binaries() {
  static const std::map<std::string, Binary>& table = *new std::map<std::string, Binary>{
      {"Add", [](double a, double b) { return a + b; }},
      {"Sub", [](double a, double b) { return a - b; }},
      {"Mul", [](double a, double b) { return a * b; }},
      {"Div", [](double a, double b) { return a / b; }},
  };
  return table;
}

// a[m, k] times b[k, n], both row-major.
std::vector<double> Product(const std::vector<double>& a, const std::vector<double>& b, int64_t m, int64_t k,
                            int64_t n) {
  std::vector<double> c(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + p] * b[p * n + j];
    }
  }
  return c;
}

Tensor Transposed(const Tensor& t, bool transposed) { return transposed ? Permuted(t, {1, 0}) : t; }

void BatchMatMul(const Operator& op) {
  // A vector is a matrix of one row on the left, of one column on the right, as in ONNX.
  Tensor a = op.in[0], b = op.in[1];
  if (a.dims.size() == 1) a = Contiguous(a.type, {1, a.dims[0]}, a.data);
  if (b.dims.size() == 1) b = Contiguous(b.type, {b.dims[0], 1}, b.data);
  const int64_t m = a.Dim(-2), k = a.Dim(-1), n = b.Dim(-1);
  std::vector<int64_t> a_batch(a.dims.begin(), a.dims.end() - 2), b_batch(b.dims.begin(), b.dims.end() - 2), batch;
  if (b.Dim(-2) != k || !Broadcast(a_batch, b_batch, &batch)) {
    throw Failure{ACL_ERROR_OP_INPUT_NOT_MATCH,
                  Text("BatchMatMul: %s and %s do not match", Dims(a.dims).c_str(), Dims(b.dims).c_str())};
  }
  std::vector<int64_t> a_dims = batch, b_dims = batch;
  a_dims.insert(a_dims.end(), {m, k});
  b_dims.insert(b_dims.end(), {k, n});
  const std::vector<double> x = Load(Expanded(a, a_dims)), y = Load(Expanded(b, b_dims));
  std::vector<double> z;
  for (size_t at = 0; at * m * k < x.size(); ++at) {
    const auto one = Product({x.begin() + at * m * k, x.begin() + (at + 1) * m * k},
                             {y.begin() + at * k * n, y.begin() + (at + 1) * k * n}, m, k, n);
    z.insert(z.end(), one.begin(), one.end());
  }
  z.resize(op.out[0].Size());
  Store(op.out[0], z);
}

void Gemm(const Operator& op) {
  const Tensor a = Transposed(op.in[0], op.Number("transpose_a", 0)),
               b = Transposed(op.in[1], op.Number("transpose_b", 0));
  const int64_t m = a.dims[0], n = b.dims[1];
  std::vector<double> y = Product(Load(a), Load(b), m, a.dims[1], n);
  const std::vector<double> c = Load(Expanded(op.in[2], {m, n}));
  const double alpha = Load(op.in[3])[0], beta = Load(op.in[4])[0];
  for (size_t i = 0; i < y.size(); ++i) y[i] = alpha * y[i] + beta * c[i];
  Store(op.out[0], y);
}

void Run(const Operator& op) {
  const Tensor& out = op.out[0];
  if (out.Size() == 0) return;
  auto unary = Unaries().find(op.type);
  auto binary = Binaries().find(op.type);
  if (unary != Unaries().end()) {
    std::vector<double> x = Load(op.in[0]);
    for (double& v : x) v = unary->second(v);
    Store(out, x);
  } else if (binary != Binaries().end()) {
    std::vector<double> a = Load(op.in[0]), b = Load(op.in[1]);
    for (size_t i = 0; i < a.size(); ++i) a[i] = binary->second(a[i], b[i]);
    Store(out, a);
  } else if (op.type == "BatchMatMul") {
    BatchMatMul(op);
  } else if (op.type == "GEMM") {
    Gemm(op);
  } else if (op.type == "TransposeD") {
    Store(out, Load(Permuted(op.in[0], op.attr.lists.at("perm"))));
  } else if (op.type == "BroadcastToD") {
    Store(out, Load(Expanded(op.in[0], out.dims)));
  } else if (op.type == "Fill") {
    Store(out, std::vector<double>(out.Size(), Load(op.in[1])[0]));
  } else {  // Cast, Flatten: the same values in another type or shape
    Store(out, Load(op.in[0]));
  }
}

// The number of inputs of an operator; 0 for one that is not emulated.
size_t Inputs(const std::string& type) {
  if (Unaries().count(type) || type == "Cast" || type == "Flatten" || type == "TransposeD" || type == "BroadcastToD")
    return 1;
  if (Binaries().count(type) || type == "BatchMatMul" || type == "Fill") return 2;
  return type == "GEMM" ? 5 : 0;
}

// Reads the tensors of one side and checks them against their buffers.
std::vector<Tensor> Tensors(const char* op, const char* side, int code, int count, const aclTensorDesc* const descs[],
                            const aclDataBuffer* const buffers[]) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < count; ++i) {
    if (!descs[i] || !buffers[i]) throw Failure{ACL_ERROR_INVALID_PARAM, Text("%s: %s %d is NULL", op, side, i)};
    Tensor t = Contiguous(descs[i]->type, descs[i]->dims, buffers[i]->data);
    const size_t bytes = aclGetTensorDescSize(descs[i]);
    if (!aclDataTypeSize(t.type)) throw Failure{code, Text("%s: %s %d has type %d", op, side, i, t.type)};
    if (bytes != buffers[i]->size) {
      throw Failure{code, Text("%s: %s %d is %s of %s, but its buffer has %zu bytes", op, side, i, TypeName(t.type),
                               Dims(t.dims).c_str(), buffers[i]->size)};
    }
    tensors.push_back(std::move(t));
  }
  return tensors;
}

// The checks before the operator runs; throws Failure.
void Check(const Operator& op) {
  const char* name = op.type.c_str();
  const size_t want = Inputs(op.type);
  if (!want) throw Failure{ACL_ERROR_OP_TYPE_NOT_MATCH, Text("%s: the emulation has no such operator", name)};
  if (op.in.size() != want) {
    throw Failure{ACL_ERROR_OP_INPUT_NOT_MATCH, Text("%s: %zu inputs, not %zu", name, op.in.size(), want)};
  }
  if (op.out.size() != 1) throw Failure{ACL_ERROR_OP_OUTPUT_NOT_MATCH, Text("%s: %zu outputs", name, op.out.size())};
  const Tensor& out = op.out[0];
  if (op.type == "Cast" ? op.Number("dst_type", -1) != out.type : op.type != "Fill" && op.in[0].type != out.type) {
    throw Failure{ACL_ERROR_OP_OUTPUT_NOT_MATCH, Text("%s: the output is %s", name, TypeName(out.type))};
  }
  const bool elementwise = Unaries().count(op.type) || Binaries().count(op.type) || op.type == "Cast";
  if (elementwise && (op.in[0].dims != out.dims || (want == 2 && op.in[1].dims != out.dims))) {
    throw Failure{ACL_ERROR_OP_INPUT_NOT_MATCH,
                  Text("%s: input of %s, output of %s", name, Dims(op.in[0].dims).c_str(), Dims(out.dims).c_str())};
  }
  if (op.type == "TransposeD") {
    auto perm = op.attr.lists.find("perm");
    std::set<int64_t> axes;
    if (perm != op.attr.lists.end()) axes.insert(perm->second.begin(), perm->second.end());
    const int64_t rank = out.dims.size();
    if (int64_t(axes.size()) != rank || op.in[0].dims.size() != out.dims.size() ||
        (rank && (*axes.begin() != 0 || *axes.rbegin() != rank - 1))) {
      throw Failure{ACL_ERROR_OP_ATTR_NOT_MATCH, "TransposeD: perm is no permutation of the axes"};
    }
  }
  for (size_t i = 0; i < op.in.size(); ++i) {
    if (op.constants[i].empty() && op.in[i].Size() && !IsDevice(op.in[i].data)) {
      throw Failure{ACL_ERROR_OP_INPUT_NOT_MATCH,
                    Text("%s: input %zu at %p is not on the device", name, i, op.in[i].data)};
    }
  }
}

}  // namespace

extern "C" aclError aclopCompileAndExecute(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[],
                                           const aclDataBuffer* const inputs[], int numOutputs,
                                           const aclTensorDesc* const outputDesc[], aclDataBuffer* const outputs[],
                                           const aclopAttr* attr, int, int, const char*, aclrtStream stream) {
  if (!opType) return Refuse(ACL_ERROR_INVALID_PARAM, "aclopCompileAndExecute: no operator");
  const std::string name = Text("aclopCompileAndExecute:%s", opType);
  if (int planted = Called(name)) return planted;
  if (int refused = NeedsDevice(name.c_str())) return refused;
  Operator op;
  op.type = opType;
  try {
    op.in = Tensors(opType, "input", ACL_ERROR_OP_INPUT_NOT_MATCH, numInputs, inputDesc, inputs);
    op.out = Tensors(opType, "output", ACL_ERROR_OP_OUTPUT_NOT_MATCH, numOutputs, outputDesc, outputs);
    for (int i = 0; i < numInputs; ++i) op.constants.push_back(inputDesc[i]->value);
    if (attr) op.attr = *attr;
    Check(op);
  } catch (const Failure& f) {
    return Refuse(f);
  }
  return Launch(stream, [op, name] {
    if (Called(name + "@device"))
      throw Failure{ACL_ERROR_RT_AICORE_EXCEPTION, name + ": planted failure on the device"};
    Run(op);
  });
}
