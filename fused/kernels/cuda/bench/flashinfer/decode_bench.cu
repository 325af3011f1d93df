// Times FlashInfer's batch decoding (CUDA cores), planned before, next to ours: beside.h.
#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <numeric>

#include "cuda/bench/flashinfer/beside.h"

namespace {

struct Decode {
  typedef flashinfer::BatchDecodeParams<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, int32_t> Params;
  typedef flashinfer::DefaultAttention<false, false, (STEP_SOFTCAP), false> Variant;
  static constexpr auto kNone = flashinfer::PosEncodingMode::kNone;
  static constexpr size_t kPage = 16, kFloats = size_t{256} << 20, kInts = size_t{8} << 20;
  const MojoAttentionArgs& a;
  const size_t count;  // pages of a sequence
  std::vector<int32_t> starts;
  const OnDevice<int32_t> pages, start, last;
  const OnDevice<char> floats{std::vector<char>(kFloats)}, ints{std::vector<char>(kInts)};
  flashinfer::DecodePlanInfo plan;

  Decode(const StepModel& m, const MojoAttentionArgs& args, const cudaDeviceProp&, size_t keys)
      : a(args),
        count(keys / kPage),
        starts(Starts(a.batch, count)),
        pages(Pages(m, a.batch, keys, kPage)),
        start(starts),
        last(std::vector<int32_t>(a.batch, kPage)) {
    void* host;
    Check(cudaMallocHost(&host, kInts), "cudaMallocHost");
    const auto estimate = flashinfer::BatchDecodeWithPagedKVCacheWorkEstimationDispatched<HEAD_GRP_SIZE, HEAD_ELEMS,
                                                                                          kNone, Variant, Params>;
    const cudaError_t planned = flashinfer::DecodePlan<HEAD_ELEMS, kNone, Variant, Params>(
        floats.data, kFloats, ints.data, host, kInts, plan, starts.data(), static_cast<uint32_t>(a.batch),
        static_cast<uint32_t>(a.heads), kPage, false, nullptr, estimate);
    Check(planned, "plan");
    Check(cudaDeviceSynchronize(), "plan");
    Check(cudaFreeHost(host), "free");
  }

  static std::vector<int32_t> Starts(size_t batch, size_t count) {
    std::vector<int32_t> starts;
    for (size_t b = 0; b <= batch; ++b) starts.push_back(static_cast<int32_t>(b * count));
    return starts;
  }

  void operator()(cudaStream_t stream, __nv_bfloat16* y) const {
    const auto at = [&](int64_t offset) { return reinterpret_cast<int32_t*>(ints.data + offset); };
    const auto width = static_cast<int64_t>(a.width);
    const int64_t steps[] = {kPage * width, static_cast<int64_t>(count * kPage) * width, width};
    Params params;
    params.q = static_cast<__nv_bfloat16*>(const_cast<void*>(a.q));
    params.paged_kv = flashinfer::paged_kv_t<__nv_bfloat16, int32_t>(
        static_cast<uint32_t>(a.key_heads), kPage, HEAD_ELEMS, static_cast<uint32_t>(a.batch),
        flashinfer::QKVLayout::kHND, static_cast<__nv_bfloat16*>(a.present_key),
        static_cast<__nv_bfloat16*>(a.present_value), steps, pages.data, start.data, last.data);
    params.o = y;
    params.num_qo_heads = static_cast<uint32_t>(a.heads);
    params.q_stride_n = static_cast<int32_t>(a.heads * a.width);
    params.q_stride_h = static_cast<int32_t>(a.width);
    params.window_left = -1;
    params.logits_soft_cap = a.softcap;
    params.sm_scale = a.scale;
    params.request_indices = at(plan.request_indices_offset);
    params.kv_tile_indices = at(plan.kv_tile_indices_offset);
    params.o_indptr = at(plan.o_indptr_offset);
    params.kv_chunk_size_ptr = at(plan.kv_chunk_size_ptr_offset);
    params.padded_batch_size = static_cast<uint32_t>(plan.padded_batch_size);
    __nv_bfloat16* const parts =
        plan.split_kv ? reinterpret_cast<__nv_bfloat16*>(floats.data + plan.v_offset) : nullptr;
    float* const sums = plan.split_kv ? reinterpret_cast<float*>(floats.data + plan.s_offset) : nullptr;
    Check(flashinfer::BatchDecodeWithPagedKVCacheDispatched<HEAD_ELEMS, kNone, Variant>(params, parts, sums, false,
                                                                                        stream),
          "FlashInfer");
  }
};

}  // namespace

int main() {
  Compare<Decode>("FlashInfer");
  return 0;
}
