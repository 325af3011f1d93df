// PagedAttention on CUDA.
#include "cuda/backends.h"

namespace mojo {
namespace {

// PagedKernel is the state of one node.
struct PagedKernel : CUDAKernel<PagedKernel, PagedAttentionCall, MojoPagedAttentionArgs, MojoCudaPagedAttention,
                                MojoPagedAttentionScratch> {
  // The integers are on the device: the kernels clamp them. The CPU backend refuses those that are out of range.
  OrtStatus* Fill(PagedAttentionCall* call, MojoPagedAttentionArgs* args) const {
    args->q = call->data[kPagedAttentionQ];
    args->k = call->data[kPagedAttentionK];
    args->v = call->data[kPagedAttentionV];
    args->key_cache = call->data[kPagedAttentionKeyCache];
    args->value_cache = call->data[kPagedAttentionValueCache];
    args->cumulative = call->Get<int32_t>(kPagedAttentionCumulativeSequenceLength);
    args->past = call->Get<int32_t>(kPagedAttentionPastSeqlens);
    args->table = call->Get<int32_t>(kPagedAttentionBlockTable);
    args->slots = call->Get<int32_t>(kPagedAttentionSlotMapping);
    args->sink = call->Get<float>(kPagedAttentionSink);
    args->tokens = call->sizes.S;
    args->sequences = call->sizes.B;
    args->heads = call->sizes.H;
    args->key_heads = call->sizes.Hk;
    args->width = call->sizes.D;
    args->value_width = call->sizes.Dv;
    args->blocks = call->sizes.N;
    args->block = call->sizes.M;
    args->columns = call->sizes.C;
    args->type = Input(kPagedAttentionQ);
    if (OrtStatus* s = call->Make(0, &args->y)) return s;
    if (OrtStatus* s = call->Make(1, &args->key_cache_out)) return s;
    return call->Make(2, &args->value_cache_out);
  }
};

}  // namespace

const Backend kCUDAPagedAttention = MakeBackend<PagedKernel>(kCUDAProvider);

}  // namespace mojo
