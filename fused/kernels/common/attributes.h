// Reads the attributes of a node.
#ifndef MOJO_KERNELS_COMMON_ATTRIBUTES_H_
#define MOJO_KERNELS_COMMON_ATTRIBUTES_H_

#include "common/schema.h"

namespace mojo {

// AttributeReader reads the attributes of a node. The first failure is kept in status, later reads do nothing: an error
// that names the node, the attribute, what was found and what is expected.
struct AttributeReader {
  const KernelInit& init;
  OrtStatus* status = nullptr;

  explicit AttributeReader(const KernelInit& i) : init(i) {}
  int64_t Int(const char* name);
  float Float(const char* name);
  // Choice returns a string attribute as the enumeration of its values in schema.h.
  template <class Values>
  Values Choice(const char* name) {
    return static_cast<Values>(Place(name));
  }
  // Flag is an int that must be 0 or 1.
  bool Flag(const char* name);
  // Fail reports the attribute's value as wrong; found and expected are given as text.
  void Fail(const char* name, const char* found, const char* expected);
  void FailInt(const char* name, int64_t found, const char* expected);
  void FailFloat(const char* name, float found, const char* expected);

 private:
  // Place returns which of the values that the op's declaration lists a string attribute is.
  size_t Place(const char* name);
};

}  // namespace mojo

#endif  // MOJO_KERNELS_COMMON_ATTRIBUTES_H_
