// Runs a patched model with the kernels, through onnxruntime's C API, and compares with recorded outputs.
//
//   cc -I ONNXRUNTIME/include run.c -L ONNXRUNTIME/lib -lonnxruntime -lm -o run
//   python3 -m zipfile -e GOLDEN.npz golden
//   ./run PATCHED.onnx path/of/libmojo_ops.so golden        ("" for the library: without kernels)
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "npy.h"
#include "onnxruntime_c_api.h"

// Patched models need onnxruntime 1.18, which offers level 18 of the API. All calls here are older.
enum { API_LEVEL = 18, MAX_PORTS = 64 };

static const OrtApi *ort;

static void check(OrtStatus *status) {
  if (!status) return;
  fprintf(stderr, "onnxruntime: %s\n", ort->GetErrorMessage(status));
  exit(1);
}

static OrtSession *open_model(OrtEnv *env, const char *model, const char *kernels) {
  OrtSessionOptions *options;
  OrtSession *session;
  check(ort->CreateSessionOptions(&options));
  // The one call that makes the difference. onnxruntime keeps the library as long as a session needs it.
  if (*kernels) check(ort->RegisterCustomOpsLibrary_V2(options, kernels));
  check(ort->CreateSession(env, model, options, &session));
  ort->ReleaseSessionOptions(options);
  return session;
}

static OrtValue *tensor(npy a) {
  OrtMemoryInfo *memory;
  OrtValue *value;
  check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  check(ort->CreateTensorWithDataAsOrtValue(
      memory, a.data, a.bytes, a.shape, a.rank,
      a.is_float ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT : ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, &value));
  ort->ReleaseMemoryInfo(memory);
  return value;
}

// difference is the largest difference of an output, relative to the largest recorded magnitude.
static double difference(OrtValue *value, npy want) {
  OrtTensorTypeAndShapeInfo *info;
  ONNXTensorElementDataType type;
  size_t n;
  float *got;
  check(ort->GetTensorTypeAndShape(value, &info));
  check(ort->GetTensorElementType(info, &type));
  check(ort->GetTensorShapeElementCount(info, &n));
  ort->ReleaseTensorTypeAndShapeInfo(info);
  if (type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || !want.is_float || n * sizeof *got != want.bytes) return INFINITY;
  check(ort->GetTensorMutableData(value, (void **)&got));
  double worst = 0, largest = 0;
  for (size_t i = 0; i < n; i++) {
    double d = fabs((double)got[i] - ((float *)want.data)[i]);
    if (!(d <= worst)) worst = d;  // also keeps NaN
    largest = fmax(largest, fabs(((float *)want.data)[i]));
  }
  return worst / largest;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s PATCHED.onnx LIBRARY GOLDEN_FOLDER\n", argv[0]);
    return 2;
  }
  ort = OrtGetApiBase()->GetApi(API_LEVEL);
  if (!ort) {
    fprintf(stderr, "onnxruntime %s is too old\n", OrtGetApiBase()->GetVersionString());
    return 1;
  }
  OrtEnv *env;
  check(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "example", &env));
  OrtSession *session = open_model(env, argv[1], argv[2]);

  OrtAllocator *allocator;
  size_t inputs, outputs;
  char *input_names[MAX_PORTS], *output_names[MAX_PORTS];
  OrtValue *input[MAX_PORTS], *output[MAX_PORTS] = {NULL};
  check(ort->GetAllocatorWithDefaultOptions(&allocator));
  check(ort->SessionGetInputCount(session, &inputs));
  check(ort->SessionGetOutputCount(session, &outputs));
  if (inputs > MAX_PORTS || outputs > MAX_PORTS) {
    fprintf(stderr, "the model has more than %d inputs or outputs\n", MAX_PORTS);
    return 2;
  }
  for (size_t i = 0; i < inputs; i++) {
    check(ort->SessionGetInputName(session, i, allocator, &input_names[i]));
    input[i] = tensor(npy_read(argv[3], 0, "in", input_names[i]));
  }
  for (size_t i = 0; i < outputs; i++) check(ort->SessionGetOutputName(session, i, allocator, &output_names[i]));

  check(ort->Run(session, NULL, (const char *const *)input_names, (const OrtValue *const *)input, inputs,
                 (const char *const *)output_names, outputs, output));

  int failed = 0;
  for (size_t i = 0; i < outputs; i++) {
    double d = difference(output[i], npy_read(argv[3], 0, "out", output_names[i]));
    printf("%s: largest difference %.2g of the largest magnitude\n", output_names[i], d);
    failed |= !(d < 1e-5);
    ort->ReleaseValue(output[i]);
  }
  for (size_t i = 0; i < inputs; i++) ort->ReleaseValue(input[i]);
  ort->ReleaseSession(session);
  ort->ReleaseEnv(env);
  if (failed) fprintf(stderr, "that is too much\n");
  return failed;
}
