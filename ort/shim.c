#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim_try.h"

const int mojo_undefined = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
const int mojo_uint2 = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT2;
const int mojo_int2 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT2;
const int mojo_float8e8m0 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E8M0;

const char *mojo_version(const OrtApiBase *base) { return base->GetVersionString(); }

const OrtApi *mojo_api(const OrtApiBase *base, uint32_t version) { return base->GetApi(version); }

char *mojo_providers(const OrtApi *api, char **names) {
  char **list;
  int n;
  TRY(api->GetAvailableProviders(&list, &n));
  size_t size = 1;
  for (int i = 0; i < n; i++) size += strlen(list[i]) + 1;
  *names = calloc(size, 1);
  for (int i = 0; i < n; i++) {
    if (i) strcat(*names, "\n");
    strcat(*names, list[i]);
  }
  TRY(api->ReleaseAvailableProviders(list, n));
  return NULL;
}

char *mojo_port_count(const OrtApi *api, const OrtSession *s, int kind, size_t *n) {
  switch (kind) {
    case MOJO_INPUTS: TRY(api->SessionGetInputCount(s, n)); break;
    case MOJO_OUTPUTS: TRY(api->SessionGetOutputCount(s, n)); break;
    default: TRY(api->SessionGetOverridableInitializerCount(s, n));
  }
  return NULL;
}

static char *read_shape(const OrtApi *api, const OrtTensorTypeAndShapeInfo *info, mojo_port *port) {
  ONNXTensorElementDataType type;
  TRY(api->GetTensorElementType(info, &type));
  port->type = type;
  TRY(api->GetDimensionsCount(info, &port->rank));
  port->dims = calloc(port->rank + 1, sizeof *port->dims);
  port->symbols = calloc(port->rank + 1, sizeof *port->symbols);
  TRY(api->GetDimensions(info, port->dims, port->rank));
  TRY(api->GetSymbolicDimensions(info, (const char **)port->symbols, port->rank));
  for (size_t i = 0; i < port->rank; i++) port->symbols[i] = strdup(port->symbols[i] ? port->symbols[i] : "");
  return NULL;
}

static char *read_type(const OrtApi *api, const OrtTypeInfo *type, mojo_port *port) {
  const OrtTensorTypeAndShapeInfo *info = NULL;
  TRY(api->CastTypeInfoToTensorInfo(type, &info));
  if (!info) return NULL;  // a sequence, a map, an optional or a sparse tensor
  port->is_tensor = 1;
  return read_shape(api, info, port);
}

char *mojo_port_get(const OrtApi *api, const OrtSession *s, int kind, size_t i, mojo_port *port) {
  memset(port, 0, sizeof *port);
  OrtAllocator *allocator;
  TRY(api->GetAllocatorWithDefaultOptions(&allocator));
  char *name = NULL;
  OrtTypeInfo *type = NULL;
  switch (kind) {
    case MOJO_INPUTS:
      TRY(api->SessionGetInputName(s, i, allocator, &name));
      TRY(api->SessionGetInputTypeInfo(s, i, &type));
      break;
    case MOJO_OUTPUTS:
      TRY(api->SessionGetOutputName(s, i, allocator, &name));
      TRY(api->SessionGetOutputTypeInfo(s, i, &type));
      break;
    default:
      TRY(api->SessionGetOverridableInitializerName(s, i, allocator, &name));
      TRY(api->SessionGetOverridableInitializerTypeInfo(s, i, &type));
  }
  port->name = strdup(name);
  allocator->Free(allocator, name);
  char *message = read_type(api, type, port);
  api->ReleaseTypeInfo(type);
  return message;
}

void mojo_port_free(mojo_port *port) {
  for (size_t i = 0; port->symbols && i < port->rank; i++) free(port->symbols[i]);
  free(port->symbols);
  free(port->dims);
  free(port->name);
}

char *mojo_dimension(const OrtApi *api, OrtSessionOptions *options, const char *name, int64_t size) {
  TRY(api->AddFreeDimensionOverrideByName(options, name, size));
  return NULL;
}

char *mojo_tensor(const OrtApi *api, void *data, size_t size, const int64_t *dims, size_t rank, int type,
                  OrtValue **value) {
  static char nothing[16];  // a tensor without elements still needs a pointer
  OrtMemoryInfo *memory;
  TRY(api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &memory));
  OrtStatus *status = api->CreateTensorWithDataAsOrtValue(memory, data ? data : nothing, size, dims, rank, type, value);
  api->ReleaseMemoryInfo(memory);
  TRY(status);
  return NULL;
}

char *mojo_run(const OrtApi *api, OrtSession *s, const OrtRunOptions *options, const char **input_names,
               OrtValue **inputs, size_t n_inputs, const char **output_names, size_t n_outputs, OrtValue **outputs) {
  TRY(api->Run(s, options, input_names, (const OrtValue *const *)inputs, n_inputs, output_names, n_outputs, outputs));
  return NULL;
}

char *mojo_tensor_get(const OrtApi *api, OrtValue *value, int *type, size_t *rank, int64_t **dims, void **data) {
  int is_tensor = 0;
  if (value) TRY(api->IsTensor(value, &is_tensor));
  if (!is_tensor) return strdup("it is no dense tensor");
  OrtTensorTypeAndShapeInfo *info;
  TRY(api->GetTensorTypeAndShape(value, &info));
  mojo_port port = {0};
  char *message = read_shape(api, info, &port);
  api->ReleaseTensorTypeAndShapeInfo(info);
  if (!message && port.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING) {
    OrtStatus *status = api->GetTensorMutableData(value, data);
    if (status) message = fail(api, status);
  }
  *type = port.type;
  *rank = port.rank;
  *dims = port.dims;
  if (message)
    *dims = NULL;
  else
    port.dims = NULL;
  mojo_port_free(&port);
  return message;
}

void mojo_value_release(const OrtApi *api, OrtValue *value) {
  if (value) api->ReleaseValue(value);
}

char *mojo_run_options(const OrtApi *api, OrtRunOptions **options) {
  TRY(api->CreateRunOptions(options));
  return NULL;
}

void mojo_run_options_release(const OrtApi *api, OrtRunOptions *options) { api->ReleaseRunOptions(options); }

char *mojo_run_option(const OrtApi *api, OrtRunOptions *options, const char *key, const char *value) {
  TRY(api->AddRunConfigEntry(options, key, value));
  return NULL;
}

char *mojo_unset_terminate(const OrtApi *api, OrtRunOptions *options) {
  TRY(api->RunOptionsUnsetTerminate(options));
  return NULL;
}

void mojo_terminate(const OrtApi *api, OrtRunOptions *options) {
  OrtStatus *status = api->RunOptionsSetTerminate(options);
  if (status) api->ReleaseStatus(status);
}

char *mojo_end_profiling(const OrtApi *api, OrtSession *s, char **path) {
  OrtAllocator *allocator;
  TRY(api->GetAllocatorWithDefaultOptions(&allocator));
  char *name = NULL;
  TRY(api->SessionEndProfiling(s, allocator, &name));
  *path = strdup(name);
  allocator->Free(allocator, name);
  return NULL;
}
