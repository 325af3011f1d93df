// Times FlashMLA's dense decoding on Hopper beside our attention to latents, and compares their results. FlashMLA's
// schedule is made before, as its users do once for all layers. `make flashmla-bench` builds it.
#include "sm90/decode/dense/instantiations/bf16.cu"
#include "smxx/decode/combine/combine.cu"
#include "smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.cu"

#include "cuda/bench/latent_step.h"

namespace {

constexpr int kPage = 64, kHeads = kLatentHeads, kWidth = kLatentWidth, kOut = kLatentValues;

class FlashMLA {
 public:
  FlashMLA(const MojoAttentionArgs& a, int multiprocessors)
      : parts_(std::max(multiprocessors / (kHeads / 64), 1)),
        batch_(static_cast<int>(a.batch)),
        lengths_(std::vector<int>(a.batch, static_cast<int>(a.room))),
        pages_(Pages(a)),
        plan_(std::vector<DecodingSchedMeta>(parts_)),
        splits_(std::vector<int>(a.batch + 1)),
        lse_(std::vector<float>(a.batch * kHeads)),
        lse_parts_(std::vector<float>((a.batch + parts_) * kHeads)),
        out_parts_(std::vector<float>((a.batch + parts_) * kHeads * kOut)) {
    GetDecodeSchedMetaParams meta = {};
    meta.b = batch_;
    meta.s_q = 1;
    meta.block_size_n = kPage;
    meta.fixed_overhead_num_blocks = 5;
    meta.topk = meta.extra_topk = -1;
    meta.seqlens_k_ptr = lengths_.data;
    meta.tile_scheduler_metadata_ptr = plan_.data;
    meta.num_splits_ptr = splits_.data;
    meta.num_sm_parts = parts_;
    smxx::decode::run_get_decoding_sched_meta_kernel(meta);
    Check(cudaDeviceSynchronize(), "FlashMLA's schedule");
    DenseAttnDecodeParams& p = params_;
    p.b = batch_;
    p.s_q = 1;
    p.q_seq_per_hk = p.h_q = p.q_head_per_hk = kHeads;
    p.h_k = 1;
    p.d = kWidth;
    p.d_v = kOut;
    p.num_blocks = static_cast<int>(a.batch * a.room / kPage);
    p.is_causal = false;
    p.scale_softmax = a.scale;
    p.scale_softmax_log2 = a.scale * 1.44269504f;
    p.q_ptr = const_cast<void*>(a.q);
    p.k_ptr = const_cast<void*>(a.past_key);
    p.softmax_lse_ptr = lse_.data;
    p.q_batch_stride = kHeads * kWidth;
    p.q_row_stride = p.q_head_stride = kWidth;
    p.k_batch_stride = kPage * kWidth;
    p.k_row_stride = p.k_head_stride = kWidth;
    p.o_batch_stride = p.o_head_stride = kHeads * kOut;
    p.o_row_stride = kOut;
    p.block_table = pages_.data;
    p.block_table_batch_stride = static_cast<int64_t>(a.room / kPage);
    p.page_block_size = kPage;
    p.seqlens_k_ptr = lengths_.data;
    p.tile_scheduler_metadata_ptr = plan_.data;
    p.num_sm_parts = parts_;
    p.num_splits_ptr = splits_.data;
    p.total_num_splits = batch_ + parts_;
    p.softmax_lseaccum_ptr = lse_parts_.data;
    p.oaccum_ptr = out_parts_.data;
    CombineParams& c = combine_;
    c.b = batch_;
    c.s_q = 1;
    c.h_q = kHeads;
    c.d_v = kOut;
    c.lse = lse_.data;
    c.stride_lse_b = c.stride_lse_s_q = c.stride_lse_accum_split = c.stride_lse_accum_s_q = kHeads;
    c.stride_o_b = c.stride_o_s_q = c.stride_o_accum_split = c.stride_o_accum_s_q = kHeads * kOut;
    c.stride_o_h_q = c.stride_o_accum_h_q = kOut;
    c.lse_accum = lse_parts_.data;
    c.o_accum = out_parts_.data;
    c.tile_scheduler_metadata_ptr = plan_.data;
    c.num_splits_ptr = splits_.data;
    c.num_sm_parts = parts_;
  }

  void operator()(cudaStream_t stream, void* y) {
    params_.o_ptr = combine_.out = y;
    params_.stream = combine_.stream = stream;
    sm90::run_flash_splitkv_mla_kernel<cutlass::bfloat16_t>(params_);
    smxx::decode::run_flash_mla_combine_kernel<cutlass::bfloat16_t>(combine_);
    Check(cudaGetLastError(), "FlashMLA");
  }

 private:
  static std::vector<int> Pages(const MojoAttentionArgs& a) {
    std::vector<int> pages;
    for (size_t i = 0; i < a.batch * a.room / kPage; ++i) pages.push_back(static_cast<int>(i));
    return pages;
  }

  const int parts_, batch_;
  const OnDevice<int> lengths_, pages_;
  const OnDevice<DecodingSchedMeta> plan_;
  const OnDevice<int> splits_;
  const OnDevice<float> lse_, lse_parts_, out_parts_;
  DenseAttnDecodeParams params_ = {};
  CombineParams combine_ = {};
};

}  // namespace

int main() {
  const cudaStream_t stream = Begin();
  const double bandwidth = BeginSteps(stream);
  for (const size_t batch : {1, 8, 64}) {
    for (const size_t keys : {512, 4096, 32768}) {
      const LatentStep step(batch, keys, keys);
      const double floor = step.Bytes() / bandwidth * 1e6;
      const size_t count = batch * kHeads * kOut;
      FlashMLA peer(step.args, DeviceProperties().multiProcessorCount);
      const OnDevice<__nv_bfloat16> y{std::vector<__nv_bfloat16>(count)};
      double ours[3], theirs[3];
      for (int i = 0; i < 3; ++i) {
        ours[i] = Microseconds(stream, floor, [&](cudaStream_t at) { step.Run(at); });
        theirs[i] = Microseconds(stream, floor, [&](cudaStream_t at) { peer(at, y.data); });
      }
      std::sort(ours, ours + 3);
      std::sort(theirs, theirs + 3);
      printf(
          "batch %2zu keys %5zu  ours %8.2f us (%.2f to %.2f)  %4.0f TFLOP/s  %3.0f %% of what is read  FlashMLA "
          "%8.2f us (%.2f to %.2f)  ratio %.2f  results differ by %.1e\n",
          batch, keys, ours[1], ours[0], ours[2], step.Operations() / ours[1] / 1e6, 100 * floor / ours[1], theirs[1],
          theirs[0], theirs[2], ours[1] / theirs[1], Difference(step.args.y, y.data, count));
      fflush(stdout);
    }
  }
  return 0;
}
