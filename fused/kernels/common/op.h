// How an op of the domain "mojo" becomes OrtCustomOp structs.
//
// An OpDef describes the op (name, inputs, outputs, attributes, element types) for every device. A Backend runs it on
// one device. A library (CPU, CUDA, an NPU) pairs the OpDefs of schema.h with its Backends in one table and passes the
// table to RegisterOps. Each pair and element type combination makes one OrtCustomOp; onnxruntime merges structs of one
// name into one op.
#pragma once

#include <stdlib.h>

#include "common/ort.h"
#include "common/types.h"

// MOJO_EXPORT marks RegisterCustomOps, the function that onnxruntime looks up by its name in a library.
#ifdef _WIN32
#define MOJO_EXPORT __declspec(dllexport)
#else
#define MOJO_EXPORT __attribute__((visibility("default")))
#endif

namespace mojo {

constexpr size_t kMaxInputs = 15;
constexpr size_t kMaxOutputs = 5;

// The element types of the ops. ToElementType translates those that kernels compute with.
constexpr ONNXTensorElementDataType kF32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
constexpr ONNXTensorElementDataType kF16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
constexpr ONNXTensorElementDataType kBF16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16;
constexpr ONNXTensorElementDataType kI32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
constexpr ONNXTensorElementDataType kI64 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
constexpr ONNXTensorElementDataType kI8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
constexpr ONNXTensorElementDataType kU8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
constexpr ONNXTensorElementDataType kF8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN;

constexpr ElementType ToElementType(ONNXTensorElementDataType type) {
  return type == kF16 ? kFloat16 : type == kBF16 ? kBFloat16 : kFloat32;
}

// SizeOf is the bytes of an element.
constexpr size_t SizeOf(ElementType type) { return type == kFloat32 ? 4 : 2; }

// TypeCombo is one allowed combination of element types. It has a type for an optional input, too; if a node omits that
// input, the kernel may get any combination that fits the others.
struct TypeCombo {
  ONNXTensorElementDataType inputs[kMaxInputs];
  ONNXTensorElementDataType outputs[kMaxOutputs];
  // The number of an int attribute and the value that these types require; -1: no attribute.
  int attribute = -1;
  int64_t value = 0;
};

// Bounds are the numbers that an attribute takes: from least to most, and for an int only multiples of a number. If
// only_count is not 0, they are the first of only.
struct Bounds {
  double least, most;
  int64_t multiple;
  double only[3];
  size_t only_count;
  const char* expected;  // the same in words
};

// AttributeDef describes one attribute, which every node must have.
enum class AttributeType { kInt, kFloat, kString };

constexpr size_t kMaxAttributes = 16;
constexpr size_t kMaxValues = 8;

struct AttributeDef {
  const char* name;
  AttributeType type;
  const char* values[kMaxValues];  // allowed strings; without any, every string is
  size_t value_count;
  bool is_bool;   // in the op's struct: whether an int is 1, or a string the second of two values
  size_t offset;  // in the op's struct
  Bounds bounds;  // of a number
};

// AttributeRule limits an attribute further: always, or when another attribute, a string, has certain values.
// Attributes are numbers in the op's list, -1 if absent; sets of values have a bit for each.
struct AttributeRule {
  int attribute;
  int with;         // the other attribute
  unsigned is;      // its values
  unsigned values;  // allowed strings, if it applies
  int at_most;      // an attribute that this one is not greater than
  Bounds bounds;    // allowed numbers, if it applies; expected describes all three
};

constexpr size_t kMaxAlternatives = 4;
constexpr size_t kMaxSizes = 20;  // of an op's symbols

// SizeDef is a size in the shapes of an op; fused/dims_text.go has the notation, fused/dims_table.go explains the
// members.
struct SizeDef {
  const char* text;
  char kind;
  int64_t number;
  int left = 0, right = 0;
};

// DimDef is a word of a shape. Sizes are numbers in the op's list, -1 if absent.
struct DimDef {
  int size;  // of a spread, as A..., the product of A
  bool spread = false;
  bool wide = false;   // may be 1, and missing at the front
  bool least = false;  // may be more
  int from = -1;       // start of A...[from] in A, counted from the end
};

// Alternative is a shape, in words; spread is the word that takes any number of dimensions, -1 if absent.
struct Alternative {
  const DimDef* dims;
  size_t rank;
  int spread;
};

// ShapeDef is the shape of an input or output. selector chooses an alternative: by an attribute, with its number, or by
// whether an input is given, with -2 minus its number. With -1, every alternative is right.
struct ShapeDef {
  int selector;
  size_t count;
  Alternative list[kMaxAlternatives];
};

// RelationDef is another requirement: it holds if the choice of its selector is value or, with unless, is not.
struct RelationDef {
  char kind;        // d: left divides right, <: at most, =: equal; of inputs, i: both or neither, n: left needs right
  int left, right;  // sizes, or inputs
  int selector, value;
  bool unless;
  const char *text, *doc;
};

// OpDef describes one op. The catalogue declares them (fused/*.go), and schema.cc has them.
struct OpDef {
  const char* name;
  const char* input_names[kMaxInputs];
  size_t input_count;
  size_t required_inputs;  // a node may omit the inputs after these
  const char* output_names[kMaxOutputs];
  size_t output_count;
  size_t required_outputs;  // a node may omit the outputs after these
  const TypeCombo* combos;
  size_t combo_count;
  const AttributeDef* attributes;
  size_t attribute_count;
  const AttributeRule* rules;
  size_t rule_count;
  size_t attributes_size;  // of the op's struct
  const SizeDef* sizes;
  size_t symbol_count;  // the first sizes: the members of the op's struct of sizes
  const ShapeDef *input_shapes, *output_shapes;
  const RelationDef* relations;
  size_t relation_count;
};

// KernelInit is the input of a Backend that makes the kernel of one node.
struct KernelInit {
  const Api& api;
  const OpDef& def;
  const TypeCombo& types;
  const OrtKernelInfo* info;
};

// Backend is one device's implementation of one op. No function may throw.
struct Backend {
  const char* provider;  // execution provider, null for the CPU
  // Creates the state of one node; reads and checks attributes.
  OrtStatus* (*create)(const KernelInit& init, void** kernel);
  // Runs the node. May be called by several threads at a time with the same kernel.
  OrtStatus* (*compute)(void* kernel, OrtKernelContext* context);
  void (*destroy)(void* kernel);
  // Which output may be written over which input (see MayInPlace), or null. compute must be right
  // with and without it.
  size_t (*may_in_place)(int** inputs, int** outputs);
};

// MayInPlace<input, output, input, output...> is a Backend's may_in_place for those pairs. No input and no output may
// be in two pairs, unless the op has only one output. onnxruntime uses a pair if nothing else reads the input and it
// knows that both have one shape. RegisterOps has free() free the lists.
template <int... kPairs>
size_t MayInPlace(int** inputs, int** outputs) {
  constexpr int kList[] = {kPairs...};
  constexpr size_t kCount = sizeof...(kPairs) / 2;
  *inputs = static_cast<int*>(malloc(kCount * sizeof(int)));
  *outputs = static_cast<int*>(malloc(kCount * sizeof(int)));
  if (*inputs == nullptr || *outputs == nullptr) return 0;
  for (size_t i = 0; i < kCount; ++i) {
    (*inputs)[i] = kList[2 * i];
    (*outputs)[i] = kList[2 * i + 1];
  }
  return kCount;
}

// OpEntry is a row of a library's table.
struct OpEntry {
  const OpDef* def;
  const Backend* backend;
};

// ReadTensor returns data and shape of a value that serves as input number index of the op. It returns an error for an
// impossible shape or too high a rank. data is null only if the input is omitted.
OrtStatus* ReadTensor(const Api& api, const OpDef& def, size_t index, const OrtValue* value, const void** data,
                      Shape* shape);

// ReadInput is ReadTensor for input number index of a running kernel. If the node omits the input, data is null if the
// op allows that; otherwise ReadInput returns an error.
OrtStatus* ReadInput(const Api& api, OrtKernelContext* context, const OpDef& def, size_t index, const void** data,
                     Shape* shape);

// MakeOutput allocates output number index. If the node omits the output, data is null if the op allows that; otherwise
// MakeOutput returns an error.
OrtStatus* MakeOutput(const Api& api, OrtKernelContext* context, const OpDef& def, size_t index, const Shape& shape,
                      void** data);

// RegisterOps adds every row of the table to the session options, as domain "mojo". The table must live as long as the
// process. The first call sets TheApi. A runtime that is too old, or not the first call's, is an error.
OrtStatus* RegisterOps(OrtSessionOptions* options, const Api& api, const OpEntry* table, size_t count);

}  // namespace mojo
