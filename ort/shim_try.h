// What the C files of this package report errors with.
#ifndef MOJO_ORT_SHIM_TRY_H
#define MOJO_ORT_SHIM_TRY_H

#include <string.h>

#include "onnxruntime_c_api.h"

// TRY returns the status's message from the calling function when a call of the C API failed.
#define TRY(call)                           \
  do {                                      \
    OrtStatus *status_ = (call);            \
    if (status_) return fail(api, status_); \
  } while (0)

static inline char *fail(const OrtApi *api, OrtStatus *status) {
  char *message = strdup(api->GetErrorMessage(status));
  api->ReleaseStatus(status);
  return message;
}

#endif
