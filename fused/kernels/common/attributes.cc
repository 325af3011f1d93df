#include "common/attributes.h"

#include <stdio.h>
#include <string.h>

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

size_t AttributeReader::Place(const char* name) {
  if (status != nullptr) return 0;
  const AttributeDef* def = init.def.attributes;
  const AttributeDef* const end = def + init.def.attribute_count;
  while (def != end && strcmp(def->name, name) != 0) ++def;
  if (def == end) {
    Fail(name, "not an attribute of the op", "a name that its declaration has");
    return 0;
  }
  char value[64], found[80], expected[160] = "";
  size_t size = sizeof(value);
  if (OrtStatus* s = init.api.ort->KernelInfoGetAttribute_string(init.info, name, value, &size)) {
    status = Unreadable(init, name, "string", s);
    return 0;
  }
  for (size_t i = 0; i < def->value_count; ++i) {
    if (strcmp(value, def->values[i]) == 0) return i;
    const char* before = i == 0 ? "" : i + 1 == def->value_count ? " or " : ", ";
    const size_t used = strlen(expected);
    snprintf(expected + used, sizeof(expected) - used, "%s\"%s\"", before, def->values[i]);
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
