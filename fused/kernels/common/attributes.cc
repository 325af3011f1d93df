#include <stdio.h>
#include <string.h>

#include "common/ops.h"

namespace mojo {
namespace {

// NodeName is the name of the node, for messages.
struct NodeName {
  char text[256] = "";

  explicit NodeName(const KernelInit& init) {
    size_t size = sizeof(text);
    if (OrtStatus* status = init.api.ort->KernelInfo_GetNodeName(init.info, text, &size)) {
      init.api.ort->ReleaseStatus(status);
      snprintf(text, sizeof(text), "(its name is too long)");
    }
  }
};

// Unreadable replaces onnxruntime's own status, of an attribute that is missing or of another type, by
// one that says which node and which attribute.
OrtStatus* Unreadable(const KernelInit& init, const char* name, const char* type, OrtStatus* cause) {
  const NodeName node(init);
  OrtStatus* status =
      Errorf(init.api,
             "mojo.%s, node \"%s\": attribute %s (%s) is required and could not be read: %.200s",
             init.def.name, node.text, name, type, init.api.ort->GetErrorMessage(cause));
  init.api.ort->ReleaseStatus(cause);
  return status;
}

}  // namespace

int64_t AttributeReader::Int(const char* name) {
  int64_t value = 0;
  if (status != nullptr) return 0;
  if (OrtStatus* s = init.api.ort->KernelInfoGetAttribute_int64(init.info, name, &value)) {
    status = Unreadable(init, name, "int", s);
  }
  return value;
}

float AttributeReader::Float(const char* name) {
  float value = 0;
  if (status != nullptr) return 0;
  if (OrtStatus* s = init.api.ort->KernelInfoGetAttribute_float(init.info, name, &value)) {
    status = Unreadable(init, name, "float", s);
  }
  return value;
}

void AttributeReader::String(const char* name, char* out, size_t size) {
  out[0] = '\0';
  if (status != nullptr) return;
  if (OrtStatus* s = init.api.ort->KernelInfoGetAttribute_string(init.info, name, out, &size)) {
    status = Unreadable(init, name, "string", s);
  }
}

void AttributeReader::Fail(const char* name, const char* found, const char* expected) {
  if (status != nullptr) return;
  const NodeName node(init);
  status = Errorf(init.api, "mojo.%s, node \"%s\": attribute %s is %s; expected %s", init.def.name,
                  node.text, name, found, expected);
}

}  // namespace mojo
