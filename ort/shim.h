// The few calls of onnxruntime's C API that this package makes itself; see doc.go for the reason.
// Every function that can fail returns NULL on success, or a message that the caller frees.
#ifndef MOJO_ORT_SHIM_H
#define MOJO_ORT_SHIM_H

#include <stddef.h>
#include <stdint.h>

// Go sees only pointers to onnxruntime's types: cgo reads this file a dozen times, and the header of the API, which has
// thousands of lines, is read by the C files.
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtApi OrtApi;
typedef struct OrtApiBase OrtApiBase;
typedef struct OrtEpDevice OrtEpDevice;
typedef struct OrtIoBinding OrtIoBinding;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtValue OrtValue;

// The element types of onnxruntime whose numbers differ from ONNX's.
extern const int mojo_undefined, mojo_uint2, mojo_int2, mojo_float8e8m0;

// mojo_load opens the library at path (by the linker's rules if path has no slash) and finds its entry point.
// *file is the loaded file; the caller frees it. mojo_unload closes *handle.
char *mojo_load(const char *path, void **handle, const OrtApiBase **base, char **file);
void mojo_unload(void *handle);
// mojo_collectives calls a function of the kernel library at path, if it has it.
void mojo_collectives(const char *path, const char *function);
const char *mojo_version(const OrtApiBase *base);
const OrtApi *mojo_api(const OrtApiBase *base, uint32_t version);

// mojo_providers joins the names of the execution providers the library was built with by newlines.
char *mojo_providers(const OrtApi *api, char **names);

// mojo_port describes one input or output of a session.
typedef struct {
  char *name;
  int is_tensor;
  int type;  // ONNXTensorElementDataType
  size_t rank;
  int64_t *dims;   // -1 if symbolic
  char **symbols;  // empty if the dimension has no name
} mojo_port;

enum { MOJO_INPUTS, MOJO_OUTPUTS, MOJO_OVERRIDABLE };  // the last are the initializers a caller may replace

char *mojo_port_count(const OrtApi *api, const OrtSession *s, int kind, size_t *n);
char *mojo_port_get(const OrtApi *api, const OrtSession *s, int kind, size_t i, mojo_port *port);
void mojo_port_free(mojo_port *port);

// mojo_dimension fixes the dimension of that name.
char *mojo_dimension(const OrtApi *api, OrtSessionOptions *options, const char *name, int64_t size);

// mojo_tensor wraps the caller's memory, which must live as long as the value.
char *mojo_tensor(const OrtApi *api, void *data, size_t size, const int64_t *dims, size_t rank, int type,
                  OrtValue **value);
char *mojo_run(const OrtApi *api, OrtSession *s, const OrtRunOptions *options, const char **input_names,
               OrtValue **inputs, size_t n_inputs, const char **output_names, size_t n_outputs, OrtValue **outputs);
// mojo_tensor_get returns the element type, the shape (freed by the caller) and the elements of a value.
char *mojo_tensor_get(const OrtApi *api, OrtValue *value, int *type, size_t *rank, int64_t **dims, void **data);
void mojo_value_release(const OrtApi *api, OrtValue *value);

char *mojo_run_options(const OrtApi *api, OrtRunOptions **options);
void mojo_run_options_release(const OrtApi *api, OrtRunOptions *options);
char *mojo_run_option(const OrtApi *api, OrtRunOptions *options, const char *key, const char *value);
void mojo_terminate(const OrtApi *api, OrtRunOptions *options);
char *mojo_unset_terminate(const OrtApi *api, OrtRunOptions *options);

// mojo_place is memory that a session reads an input from, or writes an output to.
typedef struct {
  const OrtMemoryInfo *memory;  // the session's
  const char *device;           // its name: "Cpu", "Cuda"
  int id;                       // of the device
  int on_host;                  // whether the host can read and write it
} mojo_place;

// mojo_places fills n places, one for each input or output of the session.
char *mojo_places(const OrtApi *api, const OrtSession *s, int kind, size_t n, mojo_place *places);
char *mojo_value_place(const OrtApi *api, const OrtValue *value, mojo_place *place);

// mojo_allocator returns an allocator for memory of the session.
char *mojo_allocator(const OrtApi *api, const OrtSession *s, const OrtMemoryInfo *memory, OrtAllocator **allocator);
void mojo_allocator_release(const OrtApi *api, OrtAllocator *allocator);
char *mojo_allocate(const OrtApi *api, OrtAllocator *allocator, const int64_t *dims, size_t rank, int type,
                    OrtValue **value);

char *mojo_bind(const OrtApi *api, OrtSession *s, OrtIoBinding **binding);
void mojo_bind_release(const OrtApi *api, OrtIoBinding *binding);
// mojo_bind_input with wait waits for the copy of a value in other memory than the session reads.
char *mojo_bind_input(const OrtApi *api, OrtIoBinding *binding, const char *name, const OrtValue *value, int wait);
// mojo_bind_output binds to the value. If it is NULL the run allocates, on the host if memory is NULL too.
char *mojo_bind_output(const OrtApi *api, OrtIoBinding *binding, const char *name, const OrtValue *value,
                       const OrtMemoryInfo *memory);
// mojo_bind_run with wait waits for the outputs.
char *mojo_bind_run(const OrtApi *api, OrtSession *s, const OrtRunOptions *options, OrtIoBinding *binding, int wait);
// mojo_bind_outputs returns n values, in the order in which the outputs were first bound; the caller releases each.
char *mojo_bind_outputs(const OrtApi *api, const OrtIoBinding *binding, size_t n, OrtValue **values);

// mojo_placement returns a record for each node, ended by \x1e: provider, domain, op and name, separated by \x1f. The
// caller frees them.
char *mojo_placement(const OrtApi *api, const OrtSession *s, char **records);

// mojo_append_cann adds the CANN provider with n options.
char *mojo_append_cann(const OrtApi *api, OrtSessionOptions *options, char **keys, char **values, size_t n);

// mojo_device is a device of an execution provider. onnxruntime owns the memory it points to.
typedef struct {
  const char *type;  // "CPU", "GPU", "NPU", or empty
  const char *vendor;
  uint32_t vendor_id, device_id;
  const OrtKeyValuePairs *metadata, *ep_metadata;
} mojo_device;

void mojo_device_get(const OrtApi *api, const OrtEpDevice *device, mojo_device *out);
void mojo_pairs(const OrtApi *api, const OrtKeyValuePairs *pairs, char ***keys, char ***values, size_t *n);

// mojo_end_profiling stops profiling and returns the name of the profile; the caller frees it.
char *mojo_end_profiling(const OrtApi *api, OrtSession *s, char **path);

#endif
