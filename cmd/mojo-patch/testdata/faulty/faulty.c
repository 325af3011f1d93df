// A kernel library with a fault: it registers the kernels of another one, and spoils what one op makes.
//
//   FAULTY_REAL  the other library
//   FAULTY_OP    the op
//   FAULTY_FROM  elements from which on an output is spoilt; smaller ones are right
//   FAULTY_DIES  1: the kernel aborts there in place of spoiling
//   FAULTY_EPSILON  1: every norm reads half of its epsilon, which only small inputs show
//   FAULTY_ONLY  the only ops that it registers, with a comma after each
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime_c_api.h"

static const OrtApiBase* base;
static const OrtApi* api;
static OrtApi faulty_api;
static OrtApiBase faulty_base;
static OrtStatusPtr(ORT_API_CALL* compute)(void* kernel, OrtKernelContext* context);

// Zeroes the last quarter of the first output, which has the shape of the first input.
static OrtStatusPtr ORT_API_CALL Compute(void* kernel, OrtKernelContext* context) {
  OrtStatusPtr status = compute(kernel, context);
  const OrtValue* input = NULL;
  OrtTensorTypeAndShapeInfo* info = NULL;
  size_t rank = 0, elements = 0;
  int64_t dims[8];
  OrtValue* output = NULL;
  void* data = NULL;
  if (status != NULL || (status = api->KernelContext_GetInput(context, 0, &input)) != NULL ||
      (status = api->GetTensorTypeAndShape(input, &info)) != NULL ||
      (status = api->GetDimensionsCount(info, &rank)) != NULL ||
      (status = api->GetDimensions(info, dims, rank)) != NULL ||
      (status = api->GetTensorShapeElementCount(info, &elements)) != NULL ||
      (status = api->KernelContext_GetOutput(context, 0, dims, rank, &output)) != NULL ||
      (status = api->GetTensorMutableData(output, &data)) != NULL) {
    return status;
  }
  api->ReleaseTensorTypeAndShapeInfo(info);
  const char* from = getenv("FAULTY_FROM");
  if (from != NULL && elements < (size_t)atol(from)) return NULL;
  const char* dies = getenv("FAULTY_DIES");
  if (dies != NULL && strcmp(dies, "1") == 0) abort();
  memset((float*)data + elements / 4 * 3, 0, elements / 4 * sizeof(float));
  return NULL;
}

static OrtStatusPtr ORT_API_CALL Float(const OrtKernelInfo* info, const char* name, float* value) {
  OrtStatusPtr status = api->KernelInfoGetAttribute_float(info, name, value);
  if (status == NULL && strcmp(name, "epsilon") == 0) *value /= 2;
  return status;
}

// Reports whether a list contains the name, with a comma after it.
static int Lists(const char* list, const char* name) {
  size_t length = strlen(name);
  for (; *list != 0; list += strcspn(list, ",") + 1) {
    if (strncmp(list, name, length) == 0 && list[length] == ',') return 1;
  }
  return 0;
}

static OrtStatusPtr ORT_API_CALL Add(OrtCustomOpDomain* domain, const OrtCustomOp* op) {
  const char* only = getenv("FAULTY_ONLY");
  const char* name = op->GetName(op);
  if (only != NULL && !Lists(only, name)) return NULL;
  const char* spoilt = getenv("FAULTY_OP");
  if (spoilt != NULL && strcmp(name, spoilt) == 0) {
    compute = op->KernelComputeV2;
    ((OrtCustomOp*)op)->KernelComputeV2 = Compute;
  }
  return api->CustomOpDomain_Add(domain, op);
}

static const OrtApi* ORT_API_CALL GetApi(uint32_t version) {
  api = base->GetApi(version);
  if (api == NULL) return NULL;
  faulty_api = *api;
  faulty_api.CustomOpDomain_Add = Add;
  const char* halves = getenv("FAULTY_EPSILON");
  if (halves != NULL && strcmp(halves, "1") == 0) faulty_api.KernelInfoGetAttribute_float = Float;
  return &faulty_api;
}

OrtStatusPtr ORT_API_CALL RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* given) {
  const char* path = getenv("FAULTY_REAL");
  void* real = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  OrtStatusPtr (*registers)(OrtSessionOptions*, const OrtApiBase*) = NULL;
  if (real != NULL) *(void**)&registers = dlsym(real, "RegisterCustomOps");
  Dl_info self;
  // The other library remembers where our API stands: this one must stay loaded, as it does.
  if (registers == NULL || dladdr(&base, &self) == 0 || dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE) == NULL)
    abort();
  base = given;
  faulty_base = *given;
  faulty_base.GetApi = GetApi;
  return registers(options, &faulty_base);
}
