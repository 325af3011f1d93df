#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"
#include "shim_try.h"

static char *append_cann(const OrtApi *api, OrtSessionOptions *options, OrtCANNProviderOptions *cann,
                         const char *const *keys, const char *const *values, size_t n) {
  TRY(api->UpdateCANNProviderOptions(cann, keys, values, n));
  TRY(api->SessionOptionsAppendExecutionProvider_CANN(options, cann));
  return NULL;
}

char *mojo_append_cann(const OrtApi *api, OrtSessionOptions *options, char **keys, char **values, size_t n) {
  OrtCANNProviderOptions *cann = NULL;
  TRY(api->CreateCANNProviderOptions(&cann));
  char *message = append_cann(api, options, cann, (const char *const *)keys, (const char *const *)values, n);
  api->ReleaseCANNProviderOptions(cann);
  return message;
}

static const char *hardware_type(OrtHardwareDeviceType type) {
  switch (type) {
    case OrtHardwareDeviceType_CPU: return "CPU";
    case OrtHardwareDeviceType_GPU: return "GPU";
    case OrtHardwareDeviceType_NPU: return "NPU";
  }
  return "";
}

void mojo_device_get(const OrtApi *api, const OrtEpDevice *device, mojo_device *out) {
  const OrtHardwareDevice *hardware = api->EpDevice_Device(device);
  out->ep_metadata = api->EpDevice_EpMetadata(device);
  out->type = hardware_type(api->HardwareDevice_Type(hardware));
  out->vendor = api->HardwareDevice_Vendor(hardware);
  out->vendor_id = api->HardwareDevice_VendorId(hardware);
  out->device_id = api->HardwareDevice_DeviceId(hardware);
  out->metadata = api->HardwareDevice_Metadata(hardware);
}

void mojo_pairs(const OrtApi *api, const OrtKeyValuePairs *pairs, char ***keys, char ***values, size_t *n) {
  api->GetKeyValuePairs(pairs, (const char *const **)keys, (const char *const **)values, n);
}

// add_part appends the records of one part of the graph at *used.
static char *add_part(const OrtApi *api, const OrtEpAssignedSubgraph *part, char **records, size_t *used) {
  const char *provider, *domain, *op, *name;
  const OrtEpAssignedNode *const *nodes;
  size_t n;
  TRY(api->EpAssignedSubgraph_GetEpName(part, &provider));
  TRY(api->EpAssignedSubgraph_GetNodes(part, &nodes, &n));
  for (size_t i = 0; i < n; i++) {
    TRY(api->EpAssignedNode_GetDomain(nodes[i], &domain));
    TRY(api->EpAssignedNode_GetOperatorType(nodes[i], &op));
    TRY(api->EpAssignedNode_GetName(nodes[i], &name));
    size_t room = strlen(provider) + strlen(domain) + strlen(op) + strlen(name) + 5;
    char *longer = realloc(*records, *used + room);
    if (!longer) return strdup("out of memory");
    *records = longer;
    *used += (size_t)snprintf(longer + *used, room, "%s\x1f%s\x1f%s\x1f%s\x1e", provider, domain, op, name);
  }
  return NULL;
}

char *mojo_placement(const OrtApi *api, const OrtSession *s, char **records) {
  const OrtEpAssignedSubgraph *const *parts = NULL;
  size_t n = 0, used = 0;
  TRY(api->Session_GetEpGraphAssignmentInfo(s, &parts, &n));
  *records = calloc(1, 1);
  for (size_t i = 0; i < n; i++) {
    char *message = add_part(api, parts[i], records, &used);
    if (message) return message;
  }
  return NULL;
}
