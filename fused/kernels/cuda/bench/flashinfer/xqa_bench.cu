// Times TensorRT-LLM's XQA, from FlashInfer, next to ours: beside.h.
#include "cuda/bench/flashinfer/beside.h"
#include "xqa/mha.cu"

namespace {

struct XQA {
  static constexpr size_t kPage = TOKENS_PER_PAGE;
  const StepModel& m;
  const MojoAttentionArgs& a;
  const cudaDeviceProp& device;
  const size_t keys;
  const OnDevice<int32_t> pages{Pages(m, a.batch, keys, kPage)};
  const OnDevice<uint32_t> lengths{std::vector<uint32_t>(a.batch, static_cast<uint32_t>(keys))};
  const OnDevice<uint32_t> semaphores{std::vector<uint32_t>(a.batch * m.key_heads)};
  const OnDevice<char> scratch{std::vector<char>(size_t{64} << 20)};

  XQA(const StepModel& model, const MojoAttentionArgs& args, const cudaDeviceProp& properties, size_t n)
      : m(model), a(args), device(properties), keys(n) {}

  void operator()(cudaStream_t stream, void* y) const {
    launchMHAFlashInfer(device.multiProcessorCount, static_cast<uint32_t>(m.key_heads), static_cast<uint32_t>(m.window),
                        1, nullptr, static_cast<OutputHead*>(y), static_cast<InputHead const*>(a.q), a.sink,
                        static_cast<GMemCacheHead*>(a.present_key), static_cast<GMemCacheHead*>(a.present_value),
                        pages.data, static_cast<uint32_t>(keys), lengths.data, static_cast<uint32_t>(a.batch), 1,
                        nullptr, semaphores.data, scratch.data, false, kPage * m.width, m.width, keys * m.width,
                        stream);
    Check(cudaGetLastError(), "XQA");
  }
};

}  // namespace

int main() {
  Compare<XQA>("XQA");
  return 0;
}
