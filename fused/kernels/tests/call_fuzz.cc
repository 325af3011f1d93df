// Calls every op with random and hostile shapes, types, attributes and data, inside a stand-in for onnxruntime:
//
//   mojo_call_fuzz [--calls N] [--seed S] [--op NAME] [--call K]
//
// N calls of each op (1,000), or only call number K. Each call begins as a form of the catalogue. Its dimensions are
// renamed, then a few things go wrong: zero, negative or huge dimensions, other ranks, attributes out of range or of
// another type, omitted inputs and outputs, invalid ids. A call may succeed or return an error. It must not access
// memory of others, which the sanitizers detect, leak, or take longer than kMostSeconds. A failing call is printed,
// with the arguments that repeat it.
//
// Built with the CUDA backends, it calls them as well, with replacements for their kernels: they must refuse the shapes
// and attributes that the CPU refuses.
#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/forms.h"
#include "tests/stand_in.h"

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*)());

#ifdef MOJO_CUDA_BACKENDS
#include "tests/any_launch.h"
namespace mojo_test {
cudaError_t Launched(cudaStream_t) { return cudaSuccess; }
}  // namespace mojo_test
#endif

namespace mojo_test {
namespace {

using Type = ONNXTensorElementDataType;

// Of processor time, for one call under the sanitizers.
constexpr int kMostSeconds = 20;

// Larger tensors only claim their elements: a read beyond so many bytes of zeros crashes.
constexpr uint64_t kMostElements = 1 << 20;
constexpr size_t kClaimed = size_t{1} << 44;

// Random is splitmix64: the same numbers everywhere.
struct Random {
  uint64_t state;

  uint64_t Next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  size_t Below(size_t n) { return static_cast<size_t>(Next() % n); }
  bool OneIn(size_t n) { return Below(n) == 0; }
  template <class T>
  const T& Of(const std::vector<T>& list) {
    return list[Below(list.size())];
  }
};

// Call is one call of an op.
struct Call {
  const mojo::OpDef* op = nullptr;
  const mojo::TypeCombo* types = nullptr;
  OrtKernelInfo attributes;
  std::vector<Dims> inputs;    // kLeftOut for an omitted one
  std::vector<bool> constant;  // inputs that the node knows beforehand
  std::vector<bool> left_out;  // outputs
  Dims declared;               // the model's declaration of input 0; empty for nothing
  int threads = 1, data = 0;
  bool in_place = false;
  uint64_t seed = 0;  // of the data
};

// Elements is the number of elements of a shape, or kMostElements + 1 if it is invalid or has more.
uint64_t Elements(const Dims& dims) {
  uint64_t n = 1;
  for (int64_t d : dims) {
    if (d == 0) n = 0;
    if (d < 0) return kMostElements + 1;
  }
  for (int64_t d : dims) {
    if (n > 0 && static_cast<uint64_t>(d) > kMostElements / n) return kMostElements + 1;
    n *= static_cast<uint64_t>(d);
  }
  return n;
}

const std::vector<int64_t> kSizes{0,  1,  2,  3,  4,  5,  7,  8,   9,   15,  16, 17,
                                  31, 32, 33, 48, 64, 65, 96, 100, 128, 256, 257};
const std::vector<int64_t> kHostile{0,
                                    1,
                                    2,
                                    -1,
                                    -2,
                                    INT64_MIN,
                                    INT64_MAX,
                                    int64_t{1} << 31,
                                    (int64_t{1} << 31) - 1,
                                    int64_t{1} << 32,
                                    int64_t{1} << 40,
                                    int64_t{1} << 61,
                                    int64_t{1} << 62,
                                    -(int64_t{1} << 32)};
const std::vector<float> kFloats{0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 1e-45f, 1e-38f, FLT_MAX, -FLT_MAX, 65504.0f};

float AnyFloat(Random* r) {
  if (r->OneIn(6)) return r->OneIn(2) ? NAN : r->OneIn(2) ? INFINITY : -INFINITY;
  return r->Of(kFloats);
}

int64_t AnyDim(Random* r, int64_t now) {
  switch (r->Below(8)) {
    case 0: return now == INT64_MAX ? now : now + 1;
    case 1: return now == INT64_MIN ? now : now - 1;
    case 2: return now > INT64_MAX / 2 || now < INT64_MIN / 2 ? now : 2 * now;
    case 3: return now / 2;
    case 4: return 0;
    case 5: return r->Of(kSizes);
    default: return r->Of(kHostile);
  }
}

// Rename changes all dimensions of one size to another one, and the attributes of that size as well.
void Rename(Random* r, Call* c) {
  std::vector<int64_t> sizes;
  for (const Dims& dims : c->inputs) {
    if (dims != kLeftOut) sizes.insert(sizes.end(), dims.begin(), dims.end());
  }
  if (sizes.empty()) return;
  const int64_t from = r->Of(sizes);
  const int64_t to = r->OneIn(6) ? r->Of(kHostile) : r->OneIn(3) ? from / 2 + from % 2 : r->Of(kSizes);
  std::vector<Dims> renamed = c->inputs;
  for (Dims& dims : renamed) {
    if (dims == kLeftOut) continue;
    std::replace(dims.begin(), dims.end(), from, to);
    if (Elements(dims) > kMostElements) return;  // all of it fits together, and would be read
  }
  c->inputs = renamed;
  for (auto& attribute : c->attributes.ints) {
    if (attribute.second == from && from > 1) attribute.second = to;
  }
}

void ChangeShape(Random* r, Call* c) {
  if (c->inputs.empty()) return;
  Dims& dims = c->inputs[r->Below(c->inputs.size())];
  if (dims == kLeftOut) {
    if (r->OneIn(2)) dims = r->Of(c->inputs);
    return;
  }
  switch (r->Below(6)) {
    case 0: dims.insert(dims.begin() + static_cast<int64_t>(r->Below(dims.size() + 1)), r->OneIn(2) ? 1 : 0); return;
    case 1:
      if (!dims.empty()) dims.erase(dims.begin() + static_cast<int64_t>(r->Below(dims.size())));
      return;
    case 2:
      if (dims.size() > 1) std::swap(dims[0], dims[1 + r->Below(dims.size() - 1)]);
      return;
    case 3:
      dims = r->OneIn(3) ? Dims() : r->OneIn(2) ? Dims(17, 1) : Dims(1 + r->Below(16), r->OneIn(2) ? 0 : 1);
      return;
    case 4: std::swap(dims, c->inputs[r->Below(c->inputs.size())]); return;
    default:
      for (int64_t& dim : dims) {
        if (r->OneIn(2)) dim = AnyDim(r, dim);
      }
  }
}

void ChangeAttribute(Random* r, Call* c) {
  const mojo::OpDef& op = *c->op;
  if (op.attribute_count == 0) return;
  const mojo::AttributeDef& def = op.attributes[r->Below(op.attribute_count)];
  OrtKernelInfo& a = c->attributes;
  if (r->OneIn(10)) {  // it is missing, or of another type
    a.ints.erase(def.name), a.floats.erase(def.name), a.strings.erase(def.name);
    if (r->OneIn(2)) a.ints[def.name] = 1;
    return;
  }
  switch (def.type) {
    case mojo::AttributeType::kInt: a.ints[def.name] = AnyDim(r, a.ints[def.name]); return;
    case mojo::AttributeType::kFloat: a.floats[def.name] = AnyFloat(r); return;
    default:
      a.strings[def.name] = r->OneIn(8)                           ? std::string(r->Below(200), 'x')
                            : r->OneIn(8) || def.value_count == 0 ? std::string()
                                                                  : def.values[r->Below(def.value_count)];
  }
}

void Spoil(Random* r, Call* c) {
  switch (r->Below(11)) {
    case 0:
    case 1:
    case 2: {
      Dims& dims = c->inputs[r->Below(c->inputs.size())];
      if (dims == kLeftOut || dims.empty()) return;
      int64_t& dim = dims[r->Below(dims.size())];
      dim = AnyDim(r, dim);
      return;
    }
    case 3: return ChangeShape(r, c);
    case 4:
    case 5: return ChangeAttribute(r, c);
    case 6: c->inputs[r->Below(c->inputs.size())] = kLeftOut; return;
    case 7:
      if (r->OneIn(2)) {
        c->left_out[r->Below(c->left_out.size())] = true;
      } else {
        c->inputs.resize(1 + r->Below(c->inputs.size()));  // a node may have fewer than the op
      }
      return;
    case 8: c->types = &c->op->combos[r->Below(c->op->combo_count)]; return;
    case 9:
      c->declared = r->OneIn(3) ? Dims(r->Below(20), -1) : c->inputs[0] == kLeftOut ? Dims() : c->inputs[0];
      if (!c->declared.empty()) c->declared.back() = AnyDim(r, c->declared.back());
      return;
    default: c->data = static_cast<int>(r->Below(6)); return;
  }
}

Call Make(const std::vector<const Form*>& forms, uint64_t seed, uint64_t number) {
  Random r{seed * 0x2545f4914f6cdd1du + number};
  r.Next();
  const Form& form = *r.Of(forms);
  Call c;
  c.op = &form.op;
  c.types = &form.op.combos[r.Of(form.types)];
  c.attributes = form.attributes;
  c.inputs = form.inputs;
  c.left_out.assign(form.op.output_count, false);
  for (size_t i = form.op.required_outputs; i < form.op.output_count; ++i) c.left_out[i] = r.OneIn(3);
  c.threads = static_cast<int>(1 + r.Below(3));
  c.in_place = r.OneIn(3);
  c.data = r.OneIn(2) ? 0 : static_cast<int>(r.Below(6));
  for (size_t n = r.Below(3); n > 0; --n) Rename(&r, &c);
  for (size_t n = r.OneIn(4) ? 0 : 1 + r.Below(3); n > 0; --n) Spoil(&r, &c);
  for (const Dims& dims : c.inputs) {  // a constant has the memory that it claims
    c.constant.push_back(r.OneIn(4) && dims != kLeftOut && Elements(dims) <= kMostElements);
  }
  c.seed = r.Next();
  return c;
}

size_t Size(Type type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return 8;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return 4;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16: return 2;
    default: return 1;
  }
}

const char* Name(Type type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return "int64";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return "int32";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return "float32";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: return "float16";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16: return "bfloat16";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: return "uint8";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN: return "float8e4m3fn";
    default: return "int8";
  }
}

void Fill(Random* r, Type type, int kind, char* to, size_t n) {
  const bool floats = type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  for (size_t i = 0; i < n; ++i) {
    uint64_t bits = r->Next();
    if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64) {
      bits = kind == 0   ? bits % 2
             : kind == 1 ? bits % 8
             : kind == 2 ? static_cast<uint64_t>(r->Of(kHostile))
                         : static_cast<uint64_t>(static_cast<int64_t>(bits % 7) - 3);
      memcpy(to + 8 * i, &bits, 8);
    } else if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32) {
      const auto number = static_cast<int32_t>(kind == 2 ? static_cast<uint64_t>(r->Of(kHostile)) : bits % 9 - 2);
      memcpy(to + 4 * i, &number, 4);
    } else if (Size(type) == 1 || kind == 3) {  // any bits
      memcpy(to + Size(type) * i, &bits, Size(type));
    } else if (floats) {
      const float f = kind == 4 ? AnyFloat(r) : kind == 5 ? 0 : static_cast<float>(bits % 1000) / 250 - 2;
      memcpy(to + 4 * i, &f, 4);
    } else {  // a half of either kind: a small number, or a zero
      const uint16_t half = kind == 5 ? 0 : static_cast<uint16_t>(0x3800 | (bits & 0x83ff));
      memcpy(to + 2 * i, &half, 2);
    }
  }
}

// Value makes a tensor. Its memory ends with its elements.
OrtValue Value(Random* r, Type type, const Dims& dims, int kind) {
  static char* const claimed =
      static_cast<char*>(mmap(nullptr, kClaimed, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  OrtValue v{dims, {}, nullptr};
  const uint64_t n = Elements(dims);
  if (n > kMostElements) {
    v.data = claimed;
    return v;
  }
  const size_t before = r->Below(3) * Size(type), bytes = static_cast<size_t>(n) * Size(type);
  v.memory.resize(before + bytes);
  if (bytes > 0) {
    v.data = v.memory.data() + before;
    Fill(r, type, kind, v.data, static_cast<size_t>(n));
  } else if (r->OneIn(2)) {
    v.data = v.memory.data();  // no elements: some memory or null
  }
  return v;
}

std::string Text(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(dims[i]);
  return text + "]";
}

// Describe formats a call as text.
std::string Describe(const Call& c) {
  std::string text = "  attributes:";
  for (const auto& a : c.attributes.ints) text += " " + a.first + "=" + std::to_string(a.second);
  for (const auto& a : c.attributes.floats) text += " " + a.first + "=" + std::to_string(a.second);
  for (const auto& a : c.attributes.strings) text += " " + a.first + "=" + a.second;
  text += "\n  inputs:";
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    text += std::string(" ") + c.op->input_names[i] + "=";
    text += c.inputs[i] == kLeftOut ? "-" : Name(c.types->inputs[i]) + Text(c.inputs[i]);
    if (c.constant[i]) text += " (constant)";
  }
  text += "\n  outputs left out:";
  for (size_t i = 0; i < c.left_out.size(); ++i) text += c.left_out[i] ? std::string(" ") + c.op->output_names[i] : "";
  return text + "\n  threads " + std::to_string(c.threads) + ", data " + std::to_string(c.data) +
         (c.in_place ? ", in place" : "") + (c.declared.empty() ? "" : ", X declared as " + Text(c.declared)) + "\n";
}

char under_way[8192];  // the current call, printed when a signal ends the program

void Say() {
  const size_t length = strlen(under_way);
  if (write(2, under_way, length) != static_cast<ssize_t>(length)) return;
}

void Ended(int signal) {
  const char* what = signal == SIGPROF ? "the call takes too long\n" : "the call crashes\n";
  if (write(2, what, strlen(what)) >= 0) Say();
  _exit(1);
}

// FillPaged makes the numbers of a PagedAttention right if the shapes are, most of the time except one number.
void FillPaged(Random* r, const Call& c, std::vector<OrtValue>* values) {
  const auto fits = [&](size_t input, size_t rank) {
    return c.inputs[input] != kLeftOut && c.inputs[input].size() == rank && Elements(c.inputs[input]) > 0 &&
           Elements(c.inputs[input]) <= kMostElements;
  };
  constexpr size_t kFirst = mojo::kPagedAttentionCumulativeSequenceLength;
  if (c.inputs.size() < mojo::kPagedAttentionSlotMapping || !fits(mojo::kPagedAttentionQ, 3) ||
      !fits(mojo::kPagedAttentionKeyCache, 4) || !fits(mojo::kPagedAttentionBlockTable, 2)) {
    return;
  }
  for (size_t i = kFirst; i < c.inputs.size(); ++i) {
    if (c.types->inputs[i] != mojo::kI32 || !fits(i, i == mojo::kPagedAttentionBlockTable ? 2 : 1)) continue;
    const auto n = static_cast<size_t>(Elements(c.inputs[i])), spoiled = r->OneIn(8) ? r->Below(n) : n;
    for (size_t k = 0; k < n; ++k) {
      const auto number =
          k == spoiled ? static_cast<int32_t>(r->Of(kHostile)) : PagedNumber(c.inputs, i, static_cast<int64_t>(k));
      memcpy((*values)[i].data + 4 * k, &number, 4);
    }
  }
}

// Run makes the kernel of a call and runs it twice. It returns the error, empty on success.
std::string Run(const OrtApi& api, const OrtCustomOp* op, const Call& c) {
  Random r{c.seed};
  std::vector<OrtValue> inputs, outputs(c.op->output_count);
  inputs.reserve(c.inputs.size());
  OrtKernelInfo info = c.attributes;
  OrtKernelContext context{{}, {}, c.threads};
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.push_back(Value(&r, c.types->inputs[i], c.inputs[i], c.data));
    context.inputs.push_back(c.inputs[i] == kLeftOut ? nullptr : &inputs[i]);
    if (c.constant[i] && c.inputs[i] != kLeftOut) info.constants[i] = &inputs[i];
  }
  if ((c.op == &mojo::kPagedAttention || c.op == &mojo::kQPagedAttention) && c.data < 2) FillPaged(&r, c, &inputs);
  const OrtValue declared{c.declared, {}, nullptr};
  if (!c.declared.empty()) info.declared = &declared;
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].element = Size(c.types->outputs[i]);
    context.outputs.push_back(c.left_out[i] ? nullptr : &outputs[i]);
  }
  if (c.in_place && op->version >= 18 && op->GetMayInplace != nullptr) {
    int *from, *to;
    const size_t pairs = op->GetMayInplace(&from, &to);
    for (size_t i = 0; i < pairs; ++i) {
      const size_t in = static_cast<size_t>(from[i]), out = static_cast<size_t>(to[i]);
      const bool there = in < inputs.size() && context.inputs[in] != nullptr;
      if (there && Elements(inputs[in].shape) <= kMostElements && c.types->inputs[in] == c.types->outputs[out])
        outputs[out].over = &inputs[in];
    }
    op->ReleaseMayInplace(from, to);
  }
  void* kernel = nullptr;
  OrtStatus* status = op->CreateKernelV2(op, &api, &info, &kernel);
  if (status == nullptr) {
    status = op->KernelComputeV2(kernel, &context);
    if (status == nullptr && !c.in_place) status = op->KernelComputeV2(kernel, &context);
    op->KernelDestroy(kernel);
  }
  const std::string error = status == nullptr ? "" : status->message;
  if (status != nullptr) api.ReleaseStatus(status);
  if (live_objects != 0) {
    fprintf(stderr, "a status or a shape is not released\n");
    Say();
    exit(1);
  }
  return error;
}

struct Options {
  uint64_t calls = 1000, first = 0, seed = 1;
  const char* op = nullptr;
};

// FuzzOp makes calls of one op.
void FuzzOp(const OrtApi& api, const mojo::OpDef& op, const Options& o) {
  std::vector<const Form*> forms;
  for (const Form& form : Forms()) {
    if (&form.op == &op) forms.push_back(&form);
  }
  uint64_t found = 0, took = 0;
  for (uint64_t k = o.first; k < o.first + o.calls; ++k) {
    const Call c = Make(forms, o.seed, k);
    const OrtCustomOp* kernel = FindKernel(op, *c.types, nullptr);
    const OrtCustomOp* on_cuda = FindKernel(op, *c.types, "CUDAExecutionProvider");
    if (kernel == nullptr) continue;
    ++found;
    snprintf(under_way, sizeof(under_way),
             "call %llu of %s:\n%sto repeat it: mojo_call_fuzz --seed %llu --op %s --call %llu\n",
             static_cast<unsigned long long>(k), op.name, Describe(c).c_str(), static_cast<unsigned long long>(o.seed),
             op.name, static_cast<unsigned long long>(k));
    const itimerval limit{{0, 0}, {kMostSeconds, 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
    const std::string error = Run(api, kernel, c);
    took += error.empty();
    if (on_cuda == nullptr) continue;
    const std::string there = Run(api, on_cuda, c);
    const bool of_a_shape =
        error.find("has shape") != std::string::npos || error.find("attribute") != std::string::npos;
    if (of_a_shape && there.empty() && error.find("past_length of sequence") == std::string::npos) {
      fprintf(stderr, "the CUDA backend takes what the CPU refuses: %s\n", error.c_str());
      Say();
      exit(1);
    }
  }
  const itimerval none{};
  setitimer(ITIMER_PROF, &none, nullptr);
  printf("%-16s %llu calls, %llu taken\n", op.name, static_cast<unsigned long long>(o.calls),
         static_cast<unsigned long long>(took));
  fflush(stdout);
  if (o.calls >= 100 && found > 0 && took < o.calls / 20) {  // a library may lack the op
    fprintf(stderr, "%s takes hardly any call: the calls are too wild to find anything\n", op.name);
    exit(1);
  }
}

int Main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) {
      fprintf(stderr, "usage: %s [--calls N] [--seed S] [--op NAME] [--call K]\n", argv[0]);
      return 2;
    }
    const uint64_t number = strtoull(argv[i + 1], nullptr, 10);
    if (name == "--calls") o.calls = number;
    if (name == "--seed") o.seed = number;
    if (name == "--op") o.op = argv[i + 1];
    if (name == "--call") o.first = number, o.calls = 1;
  }
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(Say);
  signal(SIGPROF, Ended);
  if (__sanitizer_set_death_callback == nullptr) {
    for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL}) signal(s, Ended);
  }
  static const OrtApi api = StandIn();
  OrtApiBase base;
  base.GetApi = [](uint32_t v) noexcept -> const OrtApi* { return v <= version ? &api : nullptr; };
  base.GetVersionString = []() noexcept -> const char* { return "unknown"; };
  if (RegisterCustomOps(nullptr, &base) != nullptr) return 1;
  const mojo::OpDef* last = nullptr;
  size_t ops = 0;
  for (const Form& form : Forms()) {
    if (&form.op == last) continue;
    last = &form.op;
    if (o.op != nullptr && strcmp(o.op, form.op.name) != 0) continue;
    FuzzOp(api, form.op, o);
    ++ops;
  }
  if (ops == 0) fprintf(stderr, "no op is called %s\n", o.op);
  return ops == 0 ? 2 : 0;
}

}  // namespace
}  // namespace mojo_test

int main(int argc, char** argv) { return mojo_test::Main(argc, argv); }
