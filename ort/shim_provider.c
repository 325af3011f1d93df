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
