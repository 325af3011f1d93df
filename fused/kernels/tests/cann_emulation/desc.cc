// Makes and reads descriptions, buffers and attributes.
#include "desc.h"

using namespace cann_emulation;

extern "C" {

aclTensorDesc* aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t* dims, aclFormat) {
  if (Called("aclCreateTensorDesc")) return nullptr;
  if (numDims < 0 || (numDims > 0 && !dims)) {
    Refuse(ACL_ERROR_INVALID_PARAM, Text("aclCreateTensorDesc: %d dims at %p", numDims, (const void*)dims));
    return nullptr;
  }
  Created("desc");
  return new aclTensorDesc{dataType, std::vector<int64_t>(dims, dims + numDims), false, {}};
}

void aclDestroyTensorDesc(const aclTensorDesc* desc) {
  Called("aclDestroyTensorDesc");
  if (desc) Destroyed("desc");
  delete desc;
}

aclError aclSetTensorConst(aclTensorDesc* desc, void* dataBuffer, size_t length) {
  if (int planted = Called("aclSetTensorConst")) return planted;
  if (!desc || !dataBuffer) return Refuse(ACL_ERROR_INVALID_PARAM, "aclSetTensorConst: no description, or no data");
  if (IsDevice(dataBuffer)) return Refuse(ACL_ERROR_INVALID_PARAM, "aclSetTensorConst: the data are not the host's");
  const auto* bytes = static_cast<const uint8_t*>(dataBuffer);
  desc->constant = true;
  desc->value.assign(bytes, bytes + length);
  return ACL_SUCCESS;
}

size_t aclGetTensorDescSize(const aclTensorDesc* desc) {
  return desc ? Contiguous(desc->type, desc->dims, nullptr).Size() * aclDataTypeSize(desc->type) : 0;
}

size_t aclGetTensorDescNumDims(const aclTensorDesc* desc) { return desc ? desc->dims.size() : 0; }

aclError aclGetTensorDescDimV2(const aclTensorDesc* desc, size_t index, int64_t* dimSize) {
  if (!desc || index >= desc->dims.size()) {
    return Refuse(ACL_ERROR_INVALID_PARAM, Text("aclGetTensorDescDimV2: there is no dim %zu", index));
  }
  *dimSize = desc->dims[index];
  return ACL_SUCCESS;
}

aclDataBuffer* aclCreateDataBuffer(void* data, size_t size) {
  if (Called("aclCreateDataBuffer")) return nullptr;
  Created("buffer");
  return new aclDataBuffer{data, size};
}

aclError aclDestroyDataBuffer(const aclDataBuffer* dataBuffer) {
  if (int planted = Called("aclDestroyDataBuffer")) return planted;
  if (!dataBuffer) return Refuse(ACL_ERROR_INVALID_PARAM, "aclDestroyDataBuffer: no buffer");
  Destroyed("buffer");
  delete dataBuffer;
  return ACL_SUCCESS;
}

void* aclGetDataBufferAddr(const aclDataBuffer* dataBuffer) { return dataBuffer ? dataBuffer->data : nullptr; }

aclopAttr* aclopCreateAttr() {
  if (Called("aclopCreateAttr")) return nullptr;
  Created("attr");
  return new aclopAttr;
}

void aclopDestroyAttr(const aclopAttr* attr) {
  Called("aclopDestroyAttr");
  if (attr) Destroyed("attr");
  delete attr;
}

aclError aclopSetAttrBool(aclopAttr* attr, const char* attrName, uint8_t attrValue) {
  if (int planted = Called("aclopSetAttrBool")) return planted;
  attr->numbers[attrName] = attrValue;
  return ACL_SUCCESS;
}

aclError aclopSetAttrInt(aclopAttr* attr, const char* attrName, int64_t attrValue) {
  if (int planted = Called("aclopSetAttrInt")) return planted;
  attr->numbers[attrName] = static_cast<double>(attrValue);
  return ACL_SUCCESS;
}

aclError aclopSetAttrFloat(aclopAttr* attr, const char* attrName, float attrValue) {
  if (int planted = Called("aclopSetAttrFloat")) return planted;
  attr->numbers[attrName] = attrValue;
  return ACL_SUCCESS;
}

aclError aclopSetAttrString(aclopAttr* attr, const char* attrName, const char* attrValue) {
  if (int planted = Called("aclopSetAttrString")) return planted;
  attr->strings[attrName] = attrValue;
  return ACL_SUCCESS;
}

aclError aclopSetAttrListInt(aclopAttr* attr, const char* attrName, int numValues, const int64_t* values) {
  if (int planted = Called("aclopSetAttrListInt")) return planted;
  attr->lists[attrName].assign(values, values + numValues);
  return ACL_SUCCESS;
}
}
