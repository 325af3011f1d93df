//go:build !windows

// dladdr is not part of POSIX; glibc declares it only on request.
#define _GNU_SOURCE

#include "shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

char *mojo_load(const char *path, void **handle, const OrtApiBase **base, char **file) {
  *handle = dlopen(path, RTLD_LAZY);
  if (!*handle) return strdup(dlerror());
  const OrtApiBase *(*entry)(void) = (const OrtApiBase *(*)(void))dlsym(*handle, "OrtGetApiBase");
  if (!entry) {
    dlclose(*handle);
    return strdup("it has no symbol OrtGetApiBase, so it is not onnxruntime");
  }
  Dl_info info;
  *file = strdup(dladdr((void *)entry, &info) && info.dli_fname ? info.dli_fname : path);
  *base = entry();
  return NULL;
}

void mojo_unload(void *handle) { dlclose(handle); }

void mojo_collectives(const char *path, const char *function) {
  void *handle = dlopen(path, RTLD_LAZY);
  if (!handle) return;  // the session that needs the library reports the error
  void (*call)(void) = (void (*)(void))dlsym(handle, function);
  if (call) call();
}
