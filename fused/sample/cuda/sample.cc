// Sample on CUDA.
#include "cuda/backends.h"

namespace mojo {
namespace {

// SampleKernel is the state of one node.
struct SampleKernel : CUDAKernel<SampleKernel, SampleCall, MojoSampleArgs, MojoCudaSample, MojoSampleScratch> {
  OrtStatus* Fill(SampleCall* call, MojoSampleArgs* args) const {
    args->logits = call->data[kSampleLogits];
    args->controls = static_cast<const float*>(call->data[kSampleControls]);
    args->random = static_cast<const int64_t*>(call->data[kSampleRandom]);
    args->tokens = static_cast<const int64_t*>(call->data[kSampleTokens]);
    args->prompt = static_cast<const int64_t*>(call->data[kSamplePrompt]);
    args->rows = call->sizes.R;
    args->vocabulary = call->sizes.V;
    args->length = call->sizes.L;
    args->logits_type = Input(kSampleLogits);
    return call->Make(0, &args->ids);
  }
};

}  // namespace

const Backend kCUDASample = MakeBackend<SampleKernel>(kCUDAProvider);

}  // namespace mojo
