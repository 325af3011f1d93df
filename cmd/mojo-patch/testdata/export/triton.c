// Serves a model of a repository of Triton Inference Server as its back end for onnxruntime does, by the same calls of
// onnxruntime's C API, with the same options, in the same order (onnxruntime_backend, src/onnxruntime.cc):
//
//   triton MODEL TOKENS IDS... < CONFIG
//
// CONFIG is what triton.py prints of config.pbtxt. Each IDS, 1,2,3, is the prompt of a sequence: its first request.
// Then the sequences send a request for each token, all of which run as one batch. The states are kept here for each
// sequence, as the server does: gathered into a batch before a run, and taken apart behind it. Prints the likeliest
// tokens of each sequence in a line. The session is made by ModelState and LoadModel, a run by SetInputTensors, the
// binding of outputs in ProcessRequests, OrtRun and ReadOutputTensors.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime_c_api.h"

enum { kMost = 256, kName = 256 };

typedef struct {
  char input[kName], output[kName];
  ONNXTensorElementDataType type;
  size_t bytes;  // of one sequence
  int64_t dims[8];
  size_t rank;  // with the batch's
} State;

static const OrtApi* ort;
static OrtSession* session;
static OrtMemoryInfo* cpu;
static State states[kMost];
static int state_count, max_batch;
static char library[4096];

static void check(OrtStatus* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s\n", ort->GetErrorMessage(status));
  exit(1);
}

static void fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void readConfig(void) {
  char line[8192];
  while (fgets(line, sizeof line, stdin) != NULL) {
    char* word = strtok(line, " \n");
    if (strcmp(word, "batch") == 0) {
      max_batch = atoi(strtok(NULL, " \n"));
    } else if (strcmp(word, "library") == 0) {
      snprintf(library, sizeof library, "%s", strtok(NULL, "\n"));
    } else if (strcmp(word, "state") == 0 && state_count < kMost) {
      State* s = &states[state_count++];
      snprintf(s->input, kName, "%s", strtok(NULL, " \n"));
      snprintf(s->output, kName, "%s", strtok(NULL, " \n"));
      const char* type = strtok(NULL, " \n");
      s->type = strcmp(type, "INT64") == 0 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
      s->bytes = strcmp(type, "INT64") == 0 ? 8 : 4;
      s->rank = 1;
      for (char* dim; (dim = strtok(NULL, " \n")) != NULL;) {
        s->dims[s->rank++] = atoll(dim);
        s->bytes *= atoll(dim);
      }
    }
  }
  if (max_batch < 1 || state_count == 0) fail("a model with states and a batch is expected");
}

static OrtValue* tensor(void* data, size_t bytes, const int64_t* dims, size_t rank, ONNXTensorElementDataType type) {
  OrtValue* value = NULL;
  check(ort->CreateTensorWithDataAsOrtValue(cpu, data, bytes, dims, rank, type, &value));
  return value;
}

// run serves one request of each of some sequences, ids [count, length], and returns the likeliest tokens.
static void run(int count, const int* sequences, int64_t* ids, int64_t length, char** kept, int64_t* next) {
  OrtIoBinding* binding = NULL;
  check(ort->CreateIoBinding(session, &binding));  // the back end has one for all runs, and clears it
  OrtValue* inputs[kMost + 1];
  char* gathered[kMost];
  const int64_t shape[2] = {count, length};
  inputs[0] = tensor(ids, count * length * sizeof *ids, shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
  check(ort->BindInput(binding, "input_ids", inputs[0]));
  for (int i = 0; i < state_count; ++i) {
    State* s = &states[i];
    gathered[i] = malloc(count * s->bytes);
    for (int k = 0; k < count; ++k) {
      memcpy(gathered[i] + k * s->bytes, kept[sequences[k] * state_count + i], s->bytes);
    }
    s->dims[0] = count;
    inputs[1 + i] = tensor(gathered[i], count * s->bytes, s->dims, s->rank, s->type);
    check(ort->BindInput(binding, s->input, inputs[1 + i]));
  }
  check(ort->BindOutputToDevice(binding, "logits", cpu));
  for (int i = 0; i < state_count; ++i) check(ort->BindOutputToDevice(binding, states[i].output, cpu));
  check(ort->RunWithBinding(session, NULL, binding));

  OrtAllocator* allocator = NULL;
  check(ort->GetAllocatorWithDefaultOptions(&allocator));
  OrtValue** outputs = NULL;
  size_t output_count = 0;
  check(ort->GetBoundOutputValues(binding, allocator, &outputs, &output_count));
  for (int i = 0; i < state_count; ++i) {
    char* data = NULL;
    check(ort->GetTensorMutableData(outputs[1 + i], (void**)&data));
    for (int k = 0; k < count; ++k) {
      memcpy(kept[sequences[k] * state_count + i], data + k * states[i].bytes, states[i].bytes);
    }
  }
  OrtTensorTypeAndShapeInfo* info = NULL;
  check(ort->GetTensorTypeAndShape(outputs[0], &info));
  int64_t dims[3];
  check(ort->GetDimensions(info, dims, 3));
  const float* logits = NULL;
  check(ort->GetTensorMutableData(outputs[0], (void**)&logits));
  for (int k = 0; k < count; ++k) {
    const float* row = logits + ((k + 1) * dims[1] - 1) * dims[2];
    next[k] = 0;
    for (int64_t j = 1; j < dims[2]; ++j) {
      if (row[j] > row[next[k]]) next[k] = j;
    }
  }
  ort->ReleaseTensorTypeAndShapeInfo(info);
  for (size_t i = 0; i < output_count; ++i) ort->ReleaseValue(outputs[i]);
  check(ort->AllocatorFree(allocator, outputs));
  for (int i = 0; i <= state_count; ++i) ort->ReleaseValue(inputs[i]);
  for (int i = 0; i < state_count; ++i) free(gathered[i]);
  ort->ReleaseIoBinding(binding);
}

int main(int argc, char** argv) {
  const int sequence_count = argc - 3, tokens = argc > 3 ? atoi(argv[2]) : 0;
  const char* path = getenv("ONNXRUNTIME_LIB");
  void* onnxruntime = dlopen(path != NULL ? path : "libonnxruntime.so", RTLD_NOW);
  if (onnxruntime == NULL || tokens < 1 || sequence_count > kMost) fail("usage: triton MODEL TOKENS IDS...");
  const OrtApiBase* (*base)(void) = (const OrtApiBase* (*)(void))dlsym(onnxruntime, "OrtGetApiBase");
  ort = base()->GetApi(ORT_API_VERSION);
  if (ort == NULL) fail("this onnxruntime is too old");
  readConfig();

  OrtEnv* env = NULL;
  check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "log", &env));
  OrtSessionOptions *shared = NULL, *options = NULL;
  check(ort->CreateSessionOptions(&shared));
  check(ort->SetSessionGraphOptimizationLevel(shared, ORT_ENABLE_ALL));
  check(ort->SetSessionExecutionMode(shared, ORT_SEQUENTIAL));
  check(ort->CloneSessionOptions(shared, &options));  // for each instance
  void* handle = NULL;
  if (library[0] != 0) check(ort->RegisterCustomOpsLibrary(options, library, &handle));
  check(ort->CreateSession(env, argv[1], options, &session));
  check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &cpu));

  // What the server makes when a sequence starts: zeros.
  char** kept = malloc(sequence_count * state_count * sizeof *kept);
  for (int i = 0; i < sequence_count * state_count; ++i) kept[i] = calloc(1, states[i % state_count].bytes);
  int64_t* chosen = malloc(tokens * sequence_count * sizeof *chosen);
  for (int k = 0; k < sequence_count; ++k) {  // prompts of different lengths do not share a batch
    int64_t ids[kMost];
    int64_t length = 0;
    for (char* id = strtok(argv[3 + k], ","); id != NULL && length < kMost; id = strtok(NULL, ",")) {
      ids[length++] = atoll(id);
    }
    run(1, &k, ids, length, kept, &chosen[k]);
  }
  for (int t = 1; t < tokens; ++t) {
    for (int first = 0; first < sequence_count; first += max_batch) {
      const int count = first + max_batch < sequence_count ? max_batch : sequence_count - first;
      int sequences[kMost];
      for (int k = 0; k < count; ++k) sequences[k] = first + k;
      run(count, sequences, &chosen[(t - 1) * sequence_count + first], 1, kept, &chosen[t * sequence_count + first]);
    }
  }
  for (int k = 0; k < sequence_count; ++k) {
    for (int t = 0; t < tokens; ++t) printf("%s%lld", t > 0 ? "," : "", (long long)chosen[t * sequence_count + k]);
    printf("\n");
  }
  return 0;
}
