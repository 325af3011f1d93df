// The calls for whole models, which a session with enable_cann_graph=0 does not make: they refuse.
#include "core.h"

using namespace cann_emulation;

#define REFUSES(name)                                                                                            \
  extern "C" aclError name() {                                                                                   \
    Called(#name);                                                                                               \
    return Refuse(ACL_ERROR_API_NOT_SUPPORT, #name ": the emulation runs no whole graphs: enable_cann_graph=0"); \
  }
#define GIVES_NOTHING(name)                                                                               \
  extern "C" void* name() {                                                                               \
    Called(#name);                                                                                        \
    Refuse(ACL_ERROR_API_NOT_SUPPORT, #name ": the emulation runs no whole graphs: enable_cann_graph=0"); \
    return nullptr;                                                                                       \
  }

REFUSES(aclmdlAddDatasetBuffer)
REFUSES(aclmdlDestroyDataset)
REFUSES(aclmdlDestroyDesc)
REFUSES(aclmdlExecute)
REFUSES(aclmdlExecuteAsync)
REFUSES(aclmdlGetDesc)
REFUSES(aclmdlGetOutputDims)
REFUSES(aclmdlLoadFromFile)
REFUSES(aclmdlLoadFromMem)
REFUSES(aclmdlUnload)
GIVES_NOTHING(aclmdlCreateDataset)
GIVES_NOTHING(aclmdlCreateDesc)
GIVES_NOTHING(aclmdlGetDatasetBuffer)
GIVES_NOTHING(aclmdlGetDatasetTensorDesc)
GIVES_NOTHING(aclmdlGetInputSizeByIndex)  // sizes and counts: 0
GIVES_NOTHING(aclmdlGetOutputSizeByIndex)
GIVES_NOTHING(aclmdlGetNumInputs)
GIVES_NOTHING(aclmdlGetNumOutputs)
