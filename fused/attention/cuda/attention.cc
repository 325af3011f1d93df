// Attention, LatentAttention, PagedAttention and QPagedAttention on CUDA.
#include "attention/common/attention.h"
#include "cuda/backends.h"

namespace mojo {
namespace {

// AttentionKernel is the state of one node.
struct AttentionKernel
    : CUDAKernel<AttentionKernel, AttentionCall, MojoAttentionArgs, MojoCudaAttention, MojoAttentionScratch> {
  // past_length is on the device: the kernels clamp it to the room in the cache; the CPU backend refuses larger values.
  OrtStatus* Fill(AttentionCall* call, MojoAttentionArgs* args) const {
    args->on_device = true;
    args->scale = attributes.scale;
    args->causal = attributes.causal;
    args->window = static_cast<size_t>(attributes.window);
    args->softcap = attributes.softcap;
    args->empty_mean = attributes.empty_mean;
    args->cyclic = attributes.cyclic;
    args->type = Input(kAttentionQ);
    return ReadAttention(call, args);
  }
};

// LatentKernel is the state of one node.
struct LatentKernel : CUDAKernel<LatentKernel, LatentAttentionCall, MojoLatentAttentionArgs, MojoCudaLatentAttention,
                                 MojoLatentAttentionScratch> {
  // past_length is on the device: the kernels clamp it to the room in the cache; the CPU backend refuses larger values.
  OrtStatus* Fill(LatentAttentionCall* call, MojoLatentAttentionArgs* args) const {
    args->on_device = true;
    args->scale = attributes.attention.scale;
    args->causal = attributes.attention.causal;
    args->empty_mean = attributes.attention.empty_mean;
    args->w_out_in = attributes.w_out_in;
    args->type = Input(kLatentAttentionQ);
    return ReadLatentAttention(call, args);
  }
};

// FillPaged sets the arguments that ops with pools share. Their first inputs and outputs are the same.
template <class Call>
OrtStatus* FillPaged(Call* call, size_t slot_mapping, size_t sink, ElementType type, MojoPagedAttentionArgs* args) {
  args->q = call->data[kPagedAttentionQ];
  args->k = call->data[kPagedAttentionK];
  args->v = call->data[kPagedAttentionV];
  args->key_cache = call->data[kPagedAttentionKeyCache];
  args->value_cache = call->data[kPagedAttentionValueCache];
  args->cumulative = call->template Get<int32_t>(kPagedAttentionCumulativeSequenceLength);
  args->past = call->template Get<int32_t>(kPagedAttentionPastSeqlens);
  args->table = call->template Get<int32_t>(kPagedAttentionBlockTable);
  args->slots = call->template Get<int32_t>(slot_mapping);
  args->sink = call->template Get<float>(sink);
  args->tokens = call->sizes.S;
  args->sequences = call->sizes.B;
  args->heads = call->sizes.H;
  args->key_heads = call->sizes.Hk;
  args->width = call->sizes.D;
  args->value_width = call->sizes.Dv;
  args->blocks = call->sizes.N;
  args->block = call->sizes.M;
  args->columns = call->sizes.C;
  args->type = type;
  if (OrtStatus* s = call->Make(0, &args->y)) return s;
  if (OrtStatus* s = call->Make(1, &args->key_cache_out)) return s;
  return call->Make(2, &args->value_cache_out);
}

// PagedKernel is the state of one node.
struct PagedKernel : CUDAKernel<PagedKernel, PagedAttentionCall, MojoPagedAttentionArgs, MojoCudaPagedAttention,
                                MojoPagedAttentionScratch> {
  // The integers are on the device: the kernels clamp them. The CPU backend refuses those that are out of range.
  OrtStatus* Fill(PagedAttentionCall* call, MojoPagedAttentionArgs* args) const {
    return FillPaged(call, kPagedAttentionSlotMapping, kPagedAttentionSink, Input(kPagedAttentionQ), args);
  }
};

// QPagedKernel is the state of one node.
struct QPagedKernel : CUDAKernel<QPagedKernel, QPagedAttentionCall, MojoQPagedAttentionArgs, MojoCudaQPagedAttention,
                                 MojoQPagedAttentionScratch> {
  OrtStatus* Fill(QPagedAttentionCall* call, MojoQPagedAttentionArgs* args) const {
    static_cast<PagedAttentionAttributes&>(*args) = attributes.attention;
    args->key_scale = call->Get<float>(kQPagedAttentionKeyScale);
    args->value_scale = call->Get<float>(kQPagedAttentionValueScale);
    args->float8 = types->inputs[kQPagedAttentionKeyCache] == kF8;
    if (OrtStatus* s =
            FillPaged(call, kQPagedAttentionSlotMapping, kQPagedAttentionSink, Input(kQPagedAttentionQ), args)) {
      return s;
    }
    if (OrtStatus* s = call->Make(3, &args->key_scale_out)) return s;
    return call->Make(4, &args->value_scale_out);
  }
};

}  // namespace

// Present may alias past if both are bound to one buffer; this does not ask onnxruntime for that, as on the CPU.
const Backend kCUDAAttention = MakeBackend<AttentionKernel>(kCUDAProvider);
const Backend kCUDALatentAttention = MakeBackend<LatentKernel>(kCUDAProvider);
const Backend kCUDAPagedAttention = MakeBackend<PagedKernel>(kCUDAProvider);
const Backend kCUDAQPagedAttention = MakeBackend<QPagedKernel>(kCUDAProvider);

}  // namespace mojo
