// The arguments of single-operator calls: descriptions, buffers, attributes.
#pragma once

#include <map>

#include "values.h"

struct aclTensorDesc {
  aclDataType type;
  std::vector<int64_t> dims;
  bool constant = false;
  std::vector<uint8_t> value;  // of a constant, which lies on the host
};

struct aclDataBuffer {
  void* data;
  size_t size;
};

struct aclopAttr {
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> strings;
  std::map<std::string, std::vector<int64_t>> lists;
};
