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

void mojo_device_get(const OrtApi *api, const OrtEpDevice *device, mojo_device *out) {
  const OrtHardwareDevice *hardware = api->EpDevice_Device(device);
  out->ep_metadata = api->EpDevice_EpMetadata(device);
  out->type = api->HardwareDevice_Type(hardware);
  out->vendor = api->HardwareDevice_Vendor(hardware);
  out->vendor_id = api->HardwareDevice_VendorId(hardware);
  out->device_id = api->HardwareDevice_DeviceId(hardware);
  out->metadata = api->HardwareDevice_Metadata(hardware);
}

void mojo_pairs(const OrtApi *api, const OrtKeyValuePairs *pairs, char ***keys, char ***values, size_t *n) {
  api->GetKeyValuePairs(pairs, (const char *const **)keys, (const char *const **)values, n);
}

// add_part adds the lines of one part of the graph to those that end at *used.
static char *add_part(const OrtApi *api, const OrtEpAssignedSubgraph *part, char **lines, size_t *used) {
  const char *provider, *op;
  const OrtEpAssignedNode *const *nodes;
  size_t n;
  TRY(api->EpAssignedSubgraph_GetEpName(part, &provider));
  TRY(api->EpAssignedSubgraph_GetNodes(part, &nodes, &n));
  for (size_t i = 0; i < n; i++) {
    TRY(api->EpAssignedNode_GetOperatorType(nodes[i], &op));
    size_t room = strlen(provider) + strlen(op) + 3;
    char *longer = realloc(*lines, *used + room);
    if (!longer) return strdup("out of memory");
    *lines = longer;
    *used += (size_t)snprintf(longer + *used, room, "%s %s\n", provider, op);
  }
  return NULL;
}

char *mojo_placement(const OrtApi *api, const OrtSession *s, char **lines) {
  const OrtEpAssignedSubgraph *const *parts = NULL;
  size_t n = 0, used = 0;
  TRY(api->Session_GetEpGraphAssignmentInfo(s, &parts, &n));
  *lines = calloc(1, 1);
  for (size_t i = 0; i < n; i++) {
    char *message = add_part(api, parts[i], lines, &used);
    if (message) return message;
  }
  return NULL;
}
