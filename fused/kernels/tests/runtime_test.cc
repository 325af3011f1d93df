// Runs the ops inside a stand-in for onnxruntime: runtime_test API_VERSION, a number or "latest".
//
// The table of an older version ends early, as the real ones do, so a call that is not in it crashes
// here. The stand-in counts what the real one hides: statuses that nobody frees and allocations
// made while a kernel runs. Its ParallelFor starts threads, so the thread sanitizer sees the tasks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "onnxruntime_c_api.h"

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base);

// What onnxruntime's opaque types are here.
struct OrtStatus {
  std::string message;
};
struct OrtValue {
  std::vector<int64_t> shape;
  std::vector<char> memory;
  char* data;
};
struct OrtTensorTypeAndShapeInfo {
  const OrtValue* value;
};
struct OrtKernelContext {
  std::vector<OrtValue*> inputs, outputs;
  int threads;
};
struct OrtKernelInfo {
  std::map<std::string, int64_t> ints;
  std::map<std::string, float> floats;
  std::map<std::string, std::string> strings;
  std::map<size_t, const OrtValue*> constants;
};
struct OrtCustomOpDomain {
  std::vector<const OrtCustomOp*> ops;
};

namespace {

uint32_t version = ORT_API_VERSION;
OrtCustomOpDomain& the_domain = *new OrtCustomOpDomain;  // lives as long as the library's
std::atomic<int> live_objects{0}, allocations{0};
thread_local bool in_kernel = false;
int failures = 0;

// Host marks a stretch of the runtime's own code inside a kernel's.
struct Host {
  bool before = in_kernel;
  Host() { in_kernel = false; }
  ~Host() { in_kernel = before; }
};

void Check(bool ok, const char* what, const std::string& detail) {
  if (ok) return;
  ++failures;
  fprintf(stderr, "API %u: %s: %s\n", version, what, detail.c_str());
}

OrtStatus* NewStatus(const char* message) {
  Host host;
  ++live_objects;
  return new OrtStatus{message};
}

// Find gives a node's attribute, or a status.
template <class Map, class T>
OrtStatus* Find(const Map& map, const char* name, T* out) {
  const auto it = map.find(name);
  if (it == map.end()) return NewStatus("no such attribute");
  *out = it->second;
  return nullptr;
}

OrtApi MakeTable() {
  OrtApi t;
  memset(static_cast<void*>(&t), 0, sizeof(t));
  t.CreateStatus = [](OrtErrorCode, const char* m) noexcept { return NewStatus(m); };
  t.ReleaseStatus = [](OrtStatus* s) noexcept { --live_objects, delete s; };
  t.GetErrorMessage = [](const OrtStatus* s) noexcept { return s->message.c_str(); };
  t.CreateCustomOpDomain = [](const char*, OrtCustomOpDomain** d) noexcept -> OrtStatus* {
    *d = &the_domain;
    return nullptr;
  };
  t.CustomOpDomain_Add = [](OrtCustomOpDomain* d, const OrtCustomOp* op) noexcept -> OrtStatus* {
    d->ops.push_back(op);
    return nullptr;
  };
  t.AddCustomOpDomain = [](OrtSessionOptions*, OrtCustomOpDomain*) noexcept -> OrtStatus* {
    return nullptr;
  };
  t.KernelContext_GetInput = [](const OrtKernelContext* c, size_t i,
                                const OrtValue** v) noexcept -> OrtStatus* {
    *v = c->inputs[i];
    return nullptr;
  };
  t.KernelContext_GetOutput = [](OrtKernelContext* c, size_t i, const int64_t* dims, size_t rank,
                                 OrtValue** v) noexcept -> OrtStatus* {
    Host host;
    *v = c->outputs[i];
    if (*v != nullptr) (*v)->shape.assign(dims, dims + rank);
    return nullptr;
  };
  t.GetTensorMutableData = [](OrtValue* v, void** data) noexcept -> OrtStatus* {
    *data = v->data;
    return nullptr;
  };
  t.GetTensorTypeAndShape = [](const OrtValue* v, OrtTensorTypeAndShapeInfo** i) noexcept -> OrtStatus* {
    Host host;
    ++live_objects;
    *i = new OrtTensorTypeAndShapeInfo{v};
    return nullptr;
  };
  t.ReleaseTensorTypeAndShapeInfo = [](OrtTensorTypeAndShapeInfo* i) noexcept { --live_objects, delete i; };
  t.GetDimensionsCount = [](const OrtTensorTypeAndShapeInfo* i, size_t* rank) noexcept -> OrtStatus* {
    *rank = i->value->shape.size();
    return nullptr;
  };
  t.GetDimensions = [](const OrtTensorTypeAndShapeInfo* i, int64_t* dims, size_t n) noexcept -> OrtStatus* {
    for (size_t k = 0; k < n; ++k) dims[k] = i->value->shape[k];
    return nullptr;
  };
  t.KernelInfoGetAttribute_int64 = [](const OrtKernelInfo* i, const char* n, int64_t* v) noexcept {
    return Find(i->ints, n, v);
  };
  t.KernelInfoGetAttribute_float = [](const OrtKernelInfo* i, const char* n, float* v) noexcept {
    return Find(i->floats, n, v);
  };
  t.KernelInfoGetAttribute_string = [](const OrtKernelInfo* i, const char* n, char* out,
                                       size_t* size) noexcept -> OrtStatus* {
    std::string value;
    if (OrtStatus* s = Find(i->strings, n, &value)) return s;
    if (value.size() >= *size) return NewStatus("the buffer is too small");
    strcpy(out, value.c_str());
    return nullptr;
  };
  t.KernelInfo_GetNodeName = [](const OrtKernelInfo*, char* out, size_t*) noexcept -> OrtStatus* {
    strcpy(out, "the_node");
    return nullptr;
  };
  t.KernelInfoGetConstantInput_tensor = [](const OrtKernelInfo* i, size_t index, int* is,
                                           const OrtValue** v) noexcept -> OrtStatus* {
    const auto it = i->constants.find(index);
    *is = it != i->constants.end();
    *v = *is ? it->second : nullptr;
    return nullptr;
  };
  t.KernelInfo_GetInputTypeInfo = [](const OrtKernelInfo*, size_t, OrtTypeInfo**) noexcept {
    return NewStatus("types are not known");
  };
  if (version >= 17) {
    t.KernelContext_ParallelFor = [](const OrtKernelContext* c, void (*fn)(void*, size_t), size_t total,
                                     size_t, void* state) noexcept -> OrtStatus* {
      Host host;
      std::atomic<size_t> next{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < c->threads; ++i) {
        threads.emplace_back([&] {
          in_kernel = true;
          for (size_t k; (k = next++) < total;) fn(state, k);
          in_kernel = false;
        });
      }
      for (auto& thread : threads) thread.join();
      return nullptr;
    };
  }
  if (version >= 24) {
    t.GetTensorElementTypeAndShapeDataReference =
        [](const OrtValue* v, ONNXTensorElementDataType* type, const int64_t** dims,
           size_t* rank) noexcept -> OrtStatus* {
      *type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
      *dims = v->shape.data();
      *rank = v->shape.size();
      return nullptr;
    };
  }
  return t;
}

// Tensor makes float32 values at an address that is aligned to 4 only.
OrtValue Tensor(const std::vector<int64_t>& shape, float seed) {
  size_t n = 1;
  for (int64_t d : shape) n *= static_cast<size_t>(d);
  OrtValue v{shape, std::vector<char>((n + 1) * 4), nullptr};
  v.data = v.memory.data() + 4;
  for (size_t i = 0; i < n; ++i) {
    const float f = seed + static_cast<float>(i * 37 % 101) / 50 - 1;
    memcpy(v.data + i * 4, &f, 4);
  }
  return v;
}

struct Case {
  const char* op;
  std::vector<std::vector<int64_t>> shapes;
  OrtKernelInfo info;
  std::vector<int> over;  // per output: the input whose memory it may take
  int constant;           // an input that is a constant as well, or -1
};

const OrtCustomOp* FindOp(const char* name) {
  for (const OrtCustomOp* op : the_domain.ops) {
    if (strcmp(op->GetName(op), name) == 0) return op;  // the first has float32 throughout
  }
  return nullptr;
}

// Run makes a kernel, runs it twice and gives its outputs' bytes, or the error's text.
std::string Run(const Case& c, const OrtApi& api, int threads, bool in_place) {
  std::vector<OrtValue> inputs, outputs;
  for (size_t i = 0; i < c.shapes.size(); ++i) inputs.push_back(Tensor(c.shapes[i], 0.5f * i));
  for (size_t i = 0; i < c.over.size(); ++i) outputs.push_back(Tensor(c.shapes[0], 9));
  OrtKernelInfo info = c.info;
  if (c.constant >= 0) info.constants[c.constant] = &inputs[c.constant];
  OrtKernelContext context{{}, {}, threads};
  for (auto& v : inputs) context.inputs.push_back(&v);
  for (size_t i = 0; i < c.over.size(); ++i) {
    context.outputs.push_back(in_place ? &inputs[c.over[i]] : &outputs[i]);
  }
  const OrtCustomOp* op = FindOp(c.op);
  void* kernel = nullptr;
  OrtStatus* status = op->CreateKernelV2(op, &api, &info, &kernel);
  if (status == nullptr) {
    in_kernel = true;
    status = op->KernelComputeV2(kernel, &context);
    if (status == nullptr && !in_place) status = op->KernelComputeV2(kernel, &context);
    in_kernel = false;
    op->KernelDestroy(kernel);
  }
  std::string result;
  if (status != nullptr) {
    result = status->message;
    api.ReleaseStatus(status);
  } else {
    for (OrtValue* v : context.outputs) result.append(v->data, v->memory.size() - 4);
  }
  Check(live_objects == 0, c.op, "a status or a shape is not released");
  return result;
}

}  // namespace

// Every new of the program comes here; those of a running kernel count. delete is free's.
void* operator new(size_t n) {
  if (in_kernel) ++allocations;
  if (void* p = malloc(n)) return p;
  abort();
}
void* operator new(size_t n, const std::nothrow_t&) noexcept { return operator new(n); }
void* operator new[](size_t n) { return operator new(n); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return operator new(n); }
void operator delete(void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }
void operator delete[](void* p) noexcept { free(p); }
void operator delete[](void* p, size_t) noexcept { free(p); }

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "latest") != 0) version = static_cast<uint32_t>(atoi(argv[1]));
  static const OrtApi api = MakeTable();
  static const OrtApi other = MakeTable();
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

  const OrtKernelInfo norm{{{"axis", -1}, {"scale_after_cast", 0}}, {{"epsilon", 1e-5f}}, {}, {}};
  const OrtKernelInfo glu{{}, {{"alpha", 1}, {"limit", 0}, {"up_offset", 0}}, {{"activation", "silu"}}, {}};
  const OrtKernelInfo rotary{{{"interleaved", 0}, {"rotary_dim", 70}}, {}, {}, {}};
  const std::vector<int64_t> big{3, 500, 70}, row{70};
  const Case good[] = {
      {"RMSNorm", {big, row}, norm, {0}, -1},           {"RMSNorm", {big, row}, norm, {0}, 1},
      {"AddRMSNorm", {big, big, row}, norm, {1, 0}, 2}, {"GLU", {big, big}, glu, {0}, -1},
      {"GLU", {big, big}, glu, {1}, -1},
      {"RotaryEmbedding", {big, {500, 35}, {3, 1, 70}}, rotary, {0}, -1},
  };
  for (const Case& c : good) {
    const std::string want = Run(c, api, 1, false);
    Check(want.find("mojo") == std::string::npos, c.op, want);
    for (int threads : {1, 4}) {
      for (bool in_place : {false, true}) {
        Check(Run(c, api, threads, in_place) == want, c.op, "threads or memory change the result");
      }
    }
  }
  Check(allocations == 0, "allocations while kernels ran", std::to_string(allocations));

  const Case bad[] = {
      {"RMSNorm", {big, {4}}, norm, {0}, -1},   {"RMSNorm", {big, {4}}, norm, {0}, 1},
      {"AddRMSNorm", {big, row, row}, norm, {0, 1}, -1}, {"GLU", {big, row}, glu, {0}, -1},
      {"GLU", {big, big}, norm, {0}, -1},       {"RotaryEmbedding", {big, {7, 35}, row}, rotary, {0}, -1},
      {"RotaryEmbedding", {{1, 8}, {8}, {8}}, rotary, {0}, -1}, {"RMSNorm", {big, row}, glu, {0}, 1},
      {"RMSNorm", {std::vector<int64_t>(17, 1), {1}}, norm, {0}, -1},
  };
  for (const Case& c : bad) {
    const std::string text = Run(c, api, 1, false);
    Check(text.size() < 1024, c.op, "there is no error");
  }
  printf("API %-3u %s\n", version, failures == 0 ? "good" : "failed");
  return failures != 0;
}
