// Error reporting for the C files of this package.
#ifndef MOJO_ORT_SHIM_TRY_H
#define MOJO_ORT_SHIM_TRY_H

#include <string.h>

#include "onnxruntime_c_api.h"

// TRY makes the calling function return the status's message if a call of the C API fails.
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
