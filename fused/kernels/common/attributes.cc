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
      Errorf(init.api, "mojo.%s, node \"%s\": attribute %s (%s) is required and could not be read: %.200s",
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

size_t AttributeReader::Choice(const char* name, std::initializer_list<const char*> values) {
  char value[64], found[80], expected[160];
  String(name, value, sizeof(value));
  if (status != nullptr) return 0;
  size_t at = 0, used = 0;
  expected[0] = '\0';
  for (const char* v : values) {
    if (strcmp(value, v) == 0) return at;
    const char* before = at == 0 ? "" : at + 1 == values.size() ? " or " : ", ";
    used += static_cast<size_t>(snprintf(expected + used, sizeof(expected) - used, "%s\"%s\"", before, v));
    ++at;
  }
  snprintf(found, sizeof(found), "\"%s\"", value);
  Fail(name, found, expected);
  return 0;
}

bool AttributeReader::Flag(const char* name) {
  const int64_t value = Int(name);
  if (value != 0 && value != 1) FailInt(name, value, "0 or 1");
  return value != 0;
}

void AttributeReader::FailInt(const char* name, int64_t found, const char* expected) {
  char text[32];
  snprintf(text, sizeof(text), "%lld", static_cast<long long>(found));
  Fail(name, text, expected);
}

void AttributeReader::FailFloat(const char* name, float found, const char* expected) {
  char text[32];
  snprintf(text, sizeof(text), "%g", static_cast<double>(found));
  Fail(name, text, expected);
}

void AttributeReader::Fail(const char* name, const char* found, const char* expected) {
  if (status != nullptr) return;
  const NodeName node(init);
  status = Errorf(init.api, "mojo.%s, node \"%s\": attribute %s is %s; expected %s", init.def.name, node.text, name,
                  found, expected);
}

}  // namespace mojo
