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

// Value is one attribute of a node.
struct Value {
  int64_t whole = 0;  // an int, or the index of a string among its values
  float number = 0;   // a float
  Text text;          // a string
};

// Unreadable replaces onnxruntime's status for an attribute that is missing or of another type by one that names the
// node and the attribute.
OrtStatus* Unreadable(const KernelInit& init, const char* name, const char* type, OrtStatus* cause) {
  const NodeName node(init);
  OrtStatus* status =
      Errorf(init.api, "mojo.%s, node \"%s\": attribute %s (%s) is required and could not be read: %.200s",
             init.def.name, node.text, name, type, init.api.ort->GetErrorMessage(cause));
  init.api.ort->ReleaseStatus(cause);
  return status;
}

const char* TypeName(ONNXTensorElementDataType type) {
  switch (type) {
    case kF32: return "float32";
    case kF16: return "float16";
    case kBF16: return "bfloat16";
    default: return "integers";
  }
}

// Bad is BadAttribute for the value of an attribute of any type.
OrtStatus* Bad(const KernelInit& init, const AttributeDef& def, const Value& v, const char* expected) {
  char quoted[160];
  switch (def.type) {
    case AttributeType::kInt: return BadAttribute(init, def.name, v.whole, expected);
    case AttributeType::kFloat: return BadAttribute(init, def.name, v.number, expected);
    default:
      snprintf(quoted, sizeof(quoted), "\"%s\"", v.text.text);
      return BadAttribute(init, def.name, quoted, expected);
  }
}

bool Within(const Bounds& bounds, const AttributeDef& def, const Value& v) {
  const bool is_int = def.type == AttributeType::kInt;
  const double number = is_int ? static_cast<double>(v.whole) : static_cast<double>(v.number);
  for (size_t i = 0; i < bounds.only_count; ++i) {
    if (number == bounds.only[i]) return true;
  }
  if (bounds.only_count > 0) return false;
  return number >= bounds.least && number <= bounds.most && (!is_int || v.whole % bounds.multiple == 0);
}

// FindChoice finds the string of an attribute among the values that the op declares.
OrtStatus* FindChoice(const KernelInit& init, const AttributeDef& def, Value* v) {
  char expected[160] = "";
  for (size_t i = 0; i < def.value_count; ++i) {
    if (strcmp(v->text.text, def.values[i]) == 0) {
      v->whole = static_cast<int64_t>(i);
      return nullptr;
    }
    const char* before = i == 0 ? "" : i + 1 == def.value_count ? " or " : ", ";
    const size_t used = strlen(expected);
    snprintf(expected + used, sizeof(expected) - used, "%s\"%s\"", before, def.values[i]);
  }
  return Bad(init, def, *v, expected);
}

OrtStatus* ReadValue(const KernelInit& init, const AttributeDef& def, Value* v) {
  const OrtApi& ort = *init.api.ort;
  size_t size = sizeof(v->text.text);
  switch (def.type) {
    case AttributeType::kInt:
      if (OrtStatus* s = ort.KernelInfoGetAttribute_int64(init.info, def.name, &v->whole)) {
        return Unreadable(init, def.name, "int", s);
      }
      break;
    case AttributeType::kFloat:
      if (OrtStatus* s = ort.KernelInfoGetAttribute_float(init.info, def.name, &v->number)) {
        return Unreadable(init, def.name, "float", s);
      }
      break;
    default:
      if (OrtStatus* s = ort.KernelInfoGetAttribute_string(init.info, def.name, v->text.text, &size)) {
        return Unreadable(init, def.name, "string", s);
      }
      return def.value_count == 0 ? nullptr : FindChoice(init, def, v);
  }
  return Within(def.bounds, def, *v) ? nullptr : Bad(init, def, *v, def.bounds.expected);
}

// Store writes a value to its field of the op's struct.
void Store(const AttributeDef& def, const Value& v, void* out) {
  char* const to = static_cast<char*>(out) + def.offset;
  const bool set = v.whole == 1;
  const int place = static_cast<int>(v.whole);
  if (def.is_bool) {
    memcpy(to, &set, sizeof(set));
  } else if (def.type == AttributeType::kInt) {
    memcpy(to, &v.whole, sizeof(v.whole));
  } else if (def.type == AttributeType::kFloat) {
    memcpy(to, &v.number, sizeof(v.number));
  } else if (def.value_count == 0) {
    memcpy(to, &v.text, sizeof(v.text));
  } else {
    memcpy(to, &place, sizeof(place));
  }
}

// CheckRule checks the values of all attributes against one rule of the op.
OrtStatus* CheckRule(const KernelInit& init, const AttributeRule& rule, const Value* values) {
  const AttributeDef* const defs = init.def.attributes;
  const AttributeDef& def = defs[rule.attribute];
  const Value& v = values[rule.attribute];
  if (rule.with >= 0 && (rule.is >> values[rule.with].whole & 1) == 0) return nullptr;
  const bool ok = rule.at_most >= 0                    ? v.whole <= values[rule.at_most].whole
                  : def.type == AttributeType::kString ? (rule.values >> v.whole & 1) != 0
                                                       : Within(rule.bounds, def, v);
  if (ok) return nullptr;
  if (rule.with < 0) return Bad(init, def, v, rule.bounds.expected);
  char expected[256];
  snprintf(expected, sizeof(expected), "%s with %s \"%s\"", rule.bounds.expected, defs[rule.with].name,
           values[rule.with].text.text);
  return Bad(init, def, v, expected);
}

// CheckTypes checks the attribute that the types of the node's inputs decide.
OrtStatus* CheckTypes(const KernelInit& init, const Value* values) {
  const TypeCombo& types = init.types;
  if (types.attribute < 0 || values[types.attribute].whole == types.value) return nullptr;
  char expected[160];
  snprintf(expected, sizeof(expected), "%lld with", static_cast<long long>(types.value));
  for (size_t i = 0; i < init.def.required_inputs; ++i) {
    const size_t used = strlen(expected);
    snprintf(expected + used, sizeof(expected) - used, "%s %s of %s", i == 0 ? "" : ",", init.def.input_names[i],
             TypeName(types.inputs[i]));
  }
  return Bad(init, init.def.attributes[types.attribute], values[types.attribute], expected);
}

}  // namespace

OrtStatus* ReadAttributesInto(const KernelInit& init, void* out, size_t size) {
  const OpDef& op = init.def;
  if (size != op.attributes_size || op.attribute_count > kMaxAttributes) {
    return Errorf(init.api, "mojo.%s: its kernel reads the attributes of another op", op.name);
  }
  Value values[kMaxAttributes];
  for (size_t i = 0; i < op.attribute_count; ++i) {
    if (OrtStatus* s = ReadValue(init, op.attributes[i], &values[i])) return s;
    Store(op.attributes[i], values[i], out);
  }
  for (size_t i = 0; i < op.rule_count; ++i) {
    if (OrtStatus* s = CheckRule(init, op.rules[i], values)) return s;
  }
  return CheckTypes(init, values);
}

OrtStatus* BadAttribute(const KernelInit& init, const char* name, int64_t found, const char* expected) {
  char text[32];
  snprintf(text, sizeof(text), "%lld", static_cast<long long>(found));
  return BadAttribute(init, name, text, expected);
}

OrtStatus* BadAttribute(const KernelInit& init, const char* name, float found, const char* expected) {
  char text[32];
  snprintf(text, sizeof(text), "%g", static_cast<double>(found));
  return BadAttribute(init, name, text, expected);
}

OrtStatus* BadAttribute(const KernelInit& init, const char* name, const char* found, const char* expected) {
  const NodeName node(init);
  return Errorf(init.api, "mojo.%s, node \"%s\": attribute %s is %s; expected %s", init.def.name, node.text, name,
                found, expected);
}

}  // namespace mojo
