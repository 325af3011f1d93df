#include <stdlib.h>
#include <string.h>

#include "shim.h"
#include "shim_try.h"

static char *describe(const OrtApi *api, const OrtMemoryInfo *memory, mojo_place *place) {
  OrtMemoryInfoDeviceType type;
  api->MemoryInfoGetDeviceType(memory, &type);
  place->memory = memory;
  place->on_host = type == OrtMemoryInfoDeviceType_CPU ||
                   api->MemoryInfoGetDeviceMemType(memory) == OrtDeviceMemoryType_HOST_ACCESSIBLE;
  TRY(api->MemoryInfoGetName(memory, &place->device));
  TRY(api->MemoryInfoGetId(memory, &place->id));
  return NULL;
}

char *mojo_places(const OrtApi *api, const OrtSession *s, int kind, size_t n, mojo_place *places) {
  const OrtMemoryInfo **memory = calloc(n + 1, sizeof *memory);
  OrtStatus *status = kind == MOJO_INPUTS ? api->SessionGetMemoryInfoForInputs(s, memory, n)
                                          : api->SessionGetMemoryInfoForOutputs(s, memory, n);
  char *message = status ? fail(api, status) : NULL;
  for (size_t i = 0; !message && i < n; i++) message = describe(api, memory[i], &places[i]);
  free(memory);
  return message;
}

char *mojo_value_place(const OrtApi *api, const OrtValue *value, mojo_place *place) {
  int is_tensor = 0;
  if (value) TRY(api->IsTensor(value, &is_tensor));
  if (!is_tensor) return strdup("it is no dense tensor");
  const OrtMemoryInfo *memory;
  TRY(api->GetTensorMemoryInfo(value, &memory));
  return describe(api, memory, place);
}

char *mojo_allocator(const OrtApi *api, const OrtSession *s, const OrtMemoryInfo *memory, OrtAllocator **allocator) {
  TRY(api->CreateAllocator(s, memory, allocator));
  return NULL;
}

void mojo_allocator_release(const OrtApi *api, OrtAllocator *allocator) { api->ReleaseAllocator(allocator); }

char *mojo_allocate(const OrtApi *api, OrtAllocator *allocator, const int64_t *dims, size_t rank, int type,
                    OrtValue **value) {
  TRY(api->CreateTensorAsOrtValue(allocator, dims, rank, type, value));
  return NULL;
}

char *mojo_bind(const OrtApi *api, OrtSession *s, OrtIoBinding **binding) {
  TRY(api->CreateIoBinding(s, binding));
  return NULL;
}

void mojo_bind_release(const OrtApi *api, OrtIoBinding *binding) {
  if (binding) api->ReleaseIoBinding(binding);
}

char *mojo_bind_input(const OrtApi *api, OrtIoBinding *binding, const char *name, const OrtValue *value, int wait) {
  TRY(api->BindInput(binding, name, value));
  if (wait) TRY(api->SynchronizeBoundInputs(binding));
  return NULL;
}

char *mojo_bind_output(const OrtApi *api, OrtIoBinding *binding, const char *name, const OrtValue *value,
                       const OrtMemoryInfo *memory) {
  if (value) {
    TRY(api->BindOutput(binding, name, value));
    return NULL;
  }
  OrtMemoryInfo *host = NULL;
  if (!memory) TRY(api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &host));
  OrtStatus *status = api->BindOutputToDevice(binding, name, host ? host : memory);
  api->ReleaseMemoryInfo(host);
  TRY(status);
  return NULL;
}

char *mojo_bind_run(const OrtApi *api, OrtSession *s, const OrtRunOptions *options, OrtIoBinding *binding, int wait) {
  TRY(api->RunWithBinding(s, options, binding));
  if (wait) TRY(api->SynchronizeBoundOutputs(binding));
  return NULL;
}

char *mojo_bind_outputs(const OrtApi *api, const OrtIoBinding *binding, size_t n, OrtValue **values) {
  OrtAllocator *allocator;
  TRY(api->GetAllocatorWithDefaultOptions(&allocator));
  OrtValue **list = NULL;
  size_t count = 0;
  TRY(api->GetBoundOutputValues(binding, allocator, &list, &count));
  for (size_t i = 0; i < count; i++) {
    if (i < n)
      values[i] = list[i];
    else
      api->ReleaseValue(list[i]);
  }
  if (list) allocator->Free(allocator, list);
  return count < n ? strdup("onnxruntime gives fewer outputs than were bound") : NULL;
}
