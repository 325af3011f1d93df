#include "ascend/loader.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <mutex>

namespace mojo {
namespace {

std::mutex mutex;

// Library is a CANN library, opened when a function in it is first looked up.
struct Library {
  const char* name;
  void* handle = nullptr;
  char error[256] = "";

  explicit Library(const char* n) : name(n) {}
};

Library acl("libascendcl.so");   // the runtime
Library base("libnnopbase.so");  // tensors and executors
Library whole("libopapi.so");    // the operators, in older releases all of them
Library parts[] = {Library("libopapi_math.so"), Library("libopapi_nn.so"), Library("libopapi_transformer.so")};

// Open opens a library by the system's search path, or else in the folder of libascendcl.so: onnxruntime's provider has
// opened that one, maybe by an explicit path.
bool Open(Library* library) {
  if (library->handle != nullptr) return true;
  library->handle = dlopen(library->name, RTLD_NOW | RTLD_GLOBAL);
  if (library->handle != nullptr) return true;
  const char* error = dlerror();
  snprintf(library->error, sizeof(library->error), "%s", error == nullptr ? "it cannot be opened" : error);
  Dl_info info{};
  void* known = acl.handle == nullptr ? nullptr : dlsym(acl.handle, "aclGetRecentErrMsg");
  if (known == nullptr || dladdr(known, &info) == 0 || info.dli_fname == nullptr) return false;
  if (info.dli_fname[0] != '/') return false;  // a relative path could load anybody's file
  const char* slash = strrchr(info.dli_fname, '/');
  char path[1024];
  snprintf(path, sizeof(path), "%.*s%s", static_cast<int>(slash + 1 - info.dli_fname), info.dli_fname, library->name);
  library->handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  return library->handle != nullptr;
}

// Symbol looks a function up in libraries that are open.
void* Symbol(const char* name) {
  for (const Library* library : {&whole, &parts[0], &parts[1], &parts[2]}) {
    if (library->handle == nullptr) continue;
    if (void* found = dlsym(library->handle, name)) return found;
  }
  return nullptr;
}

OrtStatus* NoLibrary(const KernelInit& init, const Library& library) {
  return Errorf(
      init.api,
      "mojo.%s: its kernel for CANNExecutionProvider needs %s of CANN: %.200s; source CANN's set_env.sh first",
      init.def.name, library.name, library.error);
}

// OpenOperators opens the operator library: a single one, or the several that replace it in newer releases.
OrtStatus* OpenOperators(const KernelInit& init) {
  bool any = Open(&whole);
  for (Library& part : parts) any = Open(&part) || any;
  return any ? nullptr : NoLibrary(init, whole);
}

OrtStatus* Missing(const KernelInit& init, const char* name) {
  return Errorf(init.api, "mojo.%s: its kernel for CANNExecutionProvider needs %s, which this release of CANN lacks",
                init.def.name, name);
}

template <class F>
OrtStatus* FindIn(const KernelInit& init, const Library& library, const char* name, F** function) {
  if (*function == nullptr) *function = reinterpret_cast<F*>(dlsym(library.handle, name));
  return *function == nullptr ? Missing(init, name) : nullptr;
}

}  // namespace

Cann& TheCann() {
  static Cann cann;
  return cann;
}

OrtStatus* FindBase(const KernelInit& init) {
  const std::lock_guard<std::mutex> lock(mutex);
  Cann& c = TheCann();
  if (!Open(&acl)) return NoLibrary(init, acl);
  if (!Open(&base)) return NoLibrary(init, base);
  OrtStatus* status = FindIn(init, acl, "aclGetRecentErrMsg", &c.aclGetRecentErrMsg);
  const auto find = [&](const char* name, auto** function) {
    if (status == nullptr) status = FindIn(init, base, name, function);
  };
  find("aclCreateTensor", &c.aclCreateTensor);
  find("aclDestroyTensor", &c.aclDestroyTensor);
  find("aclCreateTensorList", &c.aclCreateTensorList);
  find("aclDestroyTensorList", &c.aclDestroyTensorList);
  find("aclCreateScalar", &c.aclCreateScalar);
  find("aclDestroyScalar", &c.aclDestroyScalar);
  find("aclCreateIntArray", &c.aclCreateIntArray);
  find("aclDestroyIntArray", &c.aclDestroyIntArray);
  find("aclSetAclOpExecutorRepeatable", &c.aclSetAclOpExecutorRepeatable);
  find("aclDestroyAclOpExecutor", &c.aclDestroyAclOpExecutor);
  return status == nullptr ? OpenOperators(init) : status;
}

OrtStatus* FindPair(const KernelInit& init, const char* name, void** plan, void** launch) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (*launch != nullptr) return nullptr;  // other threads may be calling it, so keep it
  char first[96];
  snprintf(first, sizeof(first), "%sGetWorkspaceSize", name);
  void* found = Symbol(first);
  if (found == nullptr) return Missing(init, first);
  void* second = Symbol(name);
  if (second == nullptr) return Missing(init, name);
  *plan = found;
  *launch = second;
  return nullptr;
}

}  // namespace mojo
