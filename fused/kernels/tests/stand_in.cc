#include "tests/stand_in.h"

#include <stdlib.h>
#include <string.h>

#include <new>
#include <thread>

namespace mojo_test {

uint32_t version = ORT_API_VERSION;
OrtCustomOpDomain& the_domain = *new OrtCustomOpDomain;  // lives as long as the library's
std::atomic<int> live_objects{0}, allocations{0};
char the_stream;

namespace {

thread_local bool in_kernel = false;

// The allocator of scratch memory, and its limit.
OrtAllocator the_memory{};
constexpr size_t kMostScratch = size_t{1} << 30;

// The largest output.
constexpr size_t kMostOutput = size_t{1} << 28;

// CountAllocation counts an allocation of a running kernel.
void CountAllocation() {
  if (in_kernel) ++allocations;
}

// Host marks a section of the runtime's code inside a kernel's.
struct Host {
  bool before = in_kernel;
  Host() { in_kernel = false; }
  ~Host() { in_kernel = before; }
};

OrtStatus* NewStatus(const char* message) {
  Host host;
  ++live_objects;
  return new OrtStatus{message};
}

// Allocate makes the memory of an output, which ends with its elements.
OrtStatus* Allocate(OrtValue* v) {
  size_t bytes = v->element;
  for (int64_t d : v->shape) {
    if (d < 0) return NewStatus("an output has a negative dimension");
    if (d == 0) bytes = 0;
  }
  for (int64_t d : v->shape) {
    if (bytes > 0 && static_cast<size_t>(d) > kMostOutput / bytes) return NewStatus("there is not so much memory");
    bytes *= static_cast<size_t>(d);
  }
  v->memory.assign(bytes, 0x7f);
  v->data = bytes == 0 ? nullptr : v->memory.data();
  return nullptr;
}

// Find returns a node's attribute, or a status.
template <class Map, class T>
OrtStatus* Find(const Map& map, const char* name, T* out) {
  const auto it = map.find(name);
  if (it == map.end()) return NewStatus("no such attribute");
  *out = it->second;
  return nullptr;
}

}  // namespace

void SetInKernel(bool in) { in_kernel = in; }

OrtApi StandIn() {
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
  t.AddCustomOpDomain = [](OrtSessionOptions*, OrtCustomOpDomain*) noexcept -> OrtStatus* { return nullptr; };
  t.KernelContext_GetInput = [](const OrtKernelContext* c, size_t i, const OrtValue** v) noexcept -> OrtStatus* {
    *v = i < c->inputs.size() ? c->inputs[i] : nullptr;  // a node may have fewer than the op
    return nullptr;
  };
  t.KernelContext_GetOutput = [](OrtKernelContext* c, size_t i, const int64_t* dims, size_t rank,
                                 OrtValue** v) noexcept -> OrtStatus* {
    Host host;
    *v = c->outputs[i];
    if (*v == nullptr) return nullptr;
    (*v)->shape.assign(dims, dims + rank);
    if ((*v)->element == 0) return nullptr;
    if ((*v)->over != nullptr && (*v)->over->shape == (*v)->shape) {
      *v = (*v)->over;
      return nullptr;
    }
    return Allocate(*v);
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
  t.KernelInfo_GetInputTypeInfo = [](const OrtKernelInfo* i, size_t index, OrtTypeInfo** type) noexcept -> OrtStatus* {
    if (index != 0 || i->declared == nullptr) return NewStatus("types are not known");
    ++live_objects;
    *type = new OrtTypeInfo{{i->declared}};
    return nullptr;
  };
  t.CastTypeInfoToTensorInfo = [](const OrtTypeInfo* type,
                                  const OrtTensorTypeAndShapeInfo** tensor) noexcept -> OrtStatus* {
    *tensor = &type->tensor;
    return nullptr;
  };
  t.ReleaseTypeInfo = [](OrtTypeInfo* type) noexcept { --live_objects, delete type; };
  t.CreateCpuMemoryInfo = [](OrtAllocatorType, OrtMemType, OrtMemoryInfo** info) noexcept -> OrtStatus* {
    ++live_objects;
    *info = reinterpret_cast<OrtMemoryInfo*>(&the_memory);
    return nullptr;
  };
  t.ReleaseMemoryInfo = [](OrtMemoryInfo*) noexcept { --live_objects; };
  t.KernelContext_GetAllocator = [](const OrtKernelContext*, const OrtMemoryInfo*,
                                    OrtAllocator** allocator) noexcept -> OrtStatus* {
    ++live_objects;
    *allocator = &the_memory;
    return nullptr;
  };
  t.ReleaseAllocator = [](OrtAllocator*) noexcept { --live_objects; };
  t.AllocatorAlloc = [](OrtAllocator*, size_t size, void** out) noexcept -> OrtStatus* {
    *out = size > kMostScratch ? nullptr : malloc(size);
    if (*out == nullptr) return NewStatus("there is not so much memory");
    ++live_objects;
    memset(*out, 0xff, size);  // NaN, and invalid indexes
    return nullptr;
  };
  t.AllocatorFree = [](OrtAllocator*, void* p) noexcept -> OrtStatus* {
    --live_objects;
    free(p);
    return nullptr;
  };
  if (version >= 17) {
    t.KernelContext_ParallelFor = [](const OrtKernelContext* c, void (*fn)(void*, size_t), size_t total, size_t,
                                     void* state) noexcept -> OrtStatus* {
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
  t.KernelContext_GetGPUComputeStream = [](const OrtKernelContext*, void** stream) noexcept -> OrtStatus* {
    *stream = &the_stream;
    return nullptr;
  };
  if (version >= 18) {
    t.KernelInfoGetAllocator = [](const OrtKernelInfo*, OrtMemType, OrtAllocator** allocator) noexcept -> OrtStatus* {
      ++live_objects;
      *allocator = &the_memory;
      return nullptr;
    };
    t.AllocatorGetInfo = [](const OrtAllocator* allocator, const OrtMemoryInfo** info) noexcept -> OrtStatus* {
      *info = reinterpret_cast<const OrtMemoryInfo*>(allocator);
      return nullptr;
    };
    t.KernelContext_GetScratchBuffer = [](const OrtKernelContext*, const OrtMemoryInfo*, size_t size,
                                          void** out) noexcept -> OrtStatus* {
      *out = size > kMostScratch ? nullptr : malloc(size);
      if (*out == nullptr) return NewStatus("there is not so much memory");
      ++live_objects;
      return nullptr;
    };
  }
  if (version >= 24) {
    t.GetTensorElementTypeAndShapeDataReference = [](const OrtValue* v, ONNXTensorElementDataType* type,
                                                     const int64_t** dims, size_t* rank) noexcept -> OrtStatus* {
      *type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
      *dims = v->shape.data();
      *rank = v->shape.size();
      return nullptr;
    };
  }
  return t;
}

}  // namespace mojo_test

// Every new of the program comes here; allocations of a running kernel count. delete is free's.
void* operator new(size_t n) {
  mojo_test::CountAllocation();
  if (void* p = malloc(n)) return p;
  abort();
}
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return n > mojo_test::kMostScratch ? nullptr : operator new(n);
}
void* operator new[](size_t n) { return operator new(n); }
void* operator new[](size_t n, const std::nothrow_t& t) noexcept { return operator new(n, t); }
void operator delete(void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }
void operator delete[](void* p) noexcept { free(p); }
void operator delete[](void* p, size_t) noexcept { free(p); }
