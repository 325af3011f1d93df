// A stand-in for onnxruntime: as much of its C API as the kernels call.
//
// The table of an older version ends early, as the real ones do, so a call that is not in it crashes. The stand-in
// counts errors that the real one hides: leaked statuses and allocations made while a kernel runs. Its ParallelFor
// starts threads, so the thread sanitizer sees the tasks. It believes any shape.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "onnxruntime_c_api.h"

// onnxruntime's opaque types, as defined here.
struct OrtStatus {
  std::string message;
};
struct OrtValue {
  std::vector<int64_t> shape;
  std::vector<char> memory;
  char* data;
  // For an output that the runtime allocates when the kernel asks for it: the size of an element, else 0, and the input
  // that it may be written over if both have one shape.
  size_t element = 0;
  OrtValue* over = nullptr;
};
struct OrtTensorTypeAndShapeInfo {
  const OrtValue* value;
};
struct OrtKernelContext {
  std::vector<OrtValue*> inputs, outputs;  // null: omitted
  int threads;
};
struct OrtKernelInfo {
  std::map<std::string, int64_t> ints;
  std::map<std::string, float> floats;
  std::map<std::string, std::string> strings;
  std::map<size_t, const OrtValue*> constants;
  const OrtValue* declared = nullptr;  // input 0 as the model declares it, or unknown
};
struct OrtTypeInfo {
  OrtTensorTypeAndShapeInfo tensor;
};
struct OrtCustomOpDomain {
  std::vector<const OrtCustomOp*> ops;
};

namespace mojo_test {

// The version of the API that is served; set before the first call of StandIn.
extern uint32_t version;

// The library's domain, once it is registered.
extern OrtCustomOpDomain& the_domain;

// Statuses, shapes and scratch memory that are not released, and allocations made by kernels.
extern std::atomic<int> live_objects, allocations;

// the_stream is the stream that a kernel on a device is told to launch on.
extern char the_stream;

// SetInKernel sets whether this thread runs a kernel from here on.
void SetInKernel(bool in);

// StandIn is a table of functions.
OrtApi StandIn();

}  // namespace mojo_test
