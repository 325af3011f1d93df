// Times AllReduce followed by AddRMSNorm on two GPUs and more, one process each, in bfloat16: in one kernel, in two,
// and with NCCL's AllReduce, as nodes of a CUDA graph. `make cuda-programs` builds it; it prints the median of 7 times
// 1,000 replays, in microseconds for a node of AllReduce and its norm. It ends within a minute.
#include "cuda/bench/nccl.h"
#include "cuda/tests/ranks.h"

namespace {

constexpr int kNodes = 10, kReplays = 1000, kRepeats = 7;

// Time is the median of a graph's time for a node.
double Time(const Rank& me, cudaStream_t stream, const std::function<void()>& node) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  node();
  Check(cudaStreamSynchronize(stream), "warm up");
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < kNodes; ++i) node();
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  std::vector<double> times;
  for (int n = -1; n < kRepeats; ++n) {
    if (!me.Wait()) exit(1);
    Check(cudaEventRecord(begin, stream), "event");
    for (int i = 0; i < (n < 0 ? 20 : kReplays); ++i) Check(cudaGraphLaunch(exec, stream), "replay");
    Check(cudaEventRecord(end, stream), "event");
    Check(cudaEventSynchronize(end), "replay");
    float ms;
    Check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (n >= 0) times.push_back(ms * 1000.0 / kReplays / kNodes);
  }
  std::sort(times.begin(), times.end());
  Check(cudaGraphExecDestroy(exec), "graph");
  Check(cudaGraphDestroy(graph), "graph");
  return times[kRepeats / 2];
}

int Bench(const Rank& me) {
  std::string error;
  const auto peers = mojo::Peers::Make(me.rank, me.ranks, 10, me.Gather(), &error);
  const Nccl nccl(me.rank, me.ranks, me.Gather());
  if (peers == nullptr) {
    if (me.rank == 0) printf("%d ranks cannot share memory: %s\n", me.ranks, error.c_str());
    return 1;
  }
  if (!nccl.error().empty() && me.rank == 0) printf("without NCCL: %s\n", nccl.error().c_str());
  cudaStream_t stream;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  for (const auto& size : {std::pair<size_t, size_t>{6, 6144}, {138, 6144}, {1, 2048}, {64, 4096}}) {
    const size_t count = size.first * size.second;
    Numbers x(kMojoBFloat16, count), residual(kMojoBFloat16, count), scale(kMojoBFloat16, size.second),
        y(kMojoBFloat16, count), sum(kMojoBFloat16, count);
    Random random(me.rank + 1), same(99);
    x.Fill(&random, 1), residual.Fill(&same, 1), scale.Fill(&same, 1);
    for (Numbers* n : {&x, &residual, &scale}) n->ToDevice();
    MojoAllReduceAddRMSNormArgs a;
    a.peers = &peers->view();
    a.x = x.device(), a.residual = residual.device(), a.scale = scale.device(), a.y = y.device(), a.sum = sum.device();
    a.rows = size.first, a.width = size.second, a.epsilon = 1e-6f, a.x_type = a.scale_type = kMojoBFloat16;
    MojoAllReduceArgs reduce;
    reduce.peers = a.peers;
    reduce.x = x.device(), reduce.y = y.device(), reduce.count = count, reduce.type = kMojoBFloat16;
    MojoRMSNormArgs norm = a;
    norm.x = y.device();
    const double fused =
        Time(me, stream, [&] { Check(MojoCudaAllReduceAddRMSNorm(&a, stream), "AllReduceAddRMSNorm"); });
    const double two = Time(me, stream, [&] {
      Check(MojoCudaAllReduce(&reduce, stream), "AllReduce");
      Check(MojoCudaAddRMSNorm(&norm, stream), "AddRMSNorm");
    });
    const double alone = Time(me, stream, [&] { Check(MojoCudaAllReduce(&reduce, stream), "AllReduce"); });
    double others = NAN;
    if (nccl.error().empty()) {
      others = Time(me, stream, [&] {
        if (nccl.AllReduce(x.device(), y.device(), count, stream) != 0) printf("NCCL's AllReduce failed\n"), exit(1);
        Check(MojoCudaAddRMSNorm(&norm, stream), "AddRMSNorm");
      });
    }
    if (me.rank == 0) {
      printf(
          "[%3zu, %4zu] %7zu bytes: fused %6.2f us, AllReduce then AddRMSNorm %6.2f, NCCL then AddRMSNorm %6.2f; "
          "AllReduce alone %6.2f\n",
          size.first, size.second, count * 2, fused, two, others, alone);
      fflush(stdout);
    }
  }
  return me.Wait() ? 0 : 1;
}

}  // namespace

int main() {
  alarm(58);
  const int devices = Devices();
  if (devices < 2) {
    printf("collective_bench: needs two GPUs, and found %d\n", devices);
    return 1;
  }
  for (const int ranks : {2, 4, 8}) {
    if (ranks > devices) break;
    const int failed = RunRanks(ranks, devices, 28, [&](const Rank& me) {
      cudaDeviceProp device;
      int runtime = 0;
      Check(cudaGetDeviceProperties(&device, 0), "device");
      Check(cudaRuntimeGetVersion(&runtime), "runtime");
      if (me.rank == 0) printf("%d x %s, CUDA %d.%d\n", me.ranks, device.name, runtime / 1000, runtime / 10 % 100);
      return Bench(me);
    });
    if (failed > 0) return 1;
  }
  return 0;
}
