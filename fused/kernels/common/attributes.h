// Reads the attributes of a node.
#pragma once

#include "common/schema.h"

namespace mojo {

// ReadAttributesInto reads the attributes that the op declares into its struct (schema.h), which has size bytes. It
// returns an error if an attribute is missing, has another type, or a value that its bounds and the op's rules exclude.
OrtStatus* ReadAttributesInto(const KernelInit& init, void* out, size_t size);

// ReadAttributes is ReadAttributesInto for the struct of the op.
template <class Attributes>
OrtStatus* ReadAttributes(const KernelInit& init, Attributes* out) {
  return ReadAttributesInto(init, out, sizeof(*out));
}

// BadAttribute returns an error with the node, the attribute, the value found and the value expected.
OrtStatus* BadAttribute(const KernelInit& init, const char* name, const char* found, const char* expected);
OrtStatus* BadAttribute(const KernelInit& init, const char* name, int64_t found, const char* expected);
OrtStatus* BadAttribute(const KernelInit& init, const char* name, float found, const char* expected);

}  // namespace mojo
