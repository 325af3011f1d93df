// Times RMSNorm, AddRMSNorm, GatedRMSNorm, GLU, RotaryEmbedding and NormRotary, without onnxruntime. `make
// cuda-programs` builds it. Arguments:
//   (empty)  the table: microseconds, GB/s and part of the read bandwidth; the same launched one by one in a stream and
//            calls one after the other without a flush, each with and without programmatic dependent launch
//   sweep    every way to spread a norm over threads
// A time is a CUDA graph of n times [read of 192 MiB that empties L2, call], minus a graph of only the reads, over n;
// medians of 5.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/mojo_cuda.h"
#include "rmsnorm/cuda/rms_norm.cuh"

namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  printf("%s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

typedef std::function<void(cudaStream_t)> Call;

cudaStream_t stream;
char* flush_memory;
float* flush_sum;
constexpr size_t kFlushBytes = size_t{192} << 20;
double read_rate = 0;  // bytes a second

__global__ void Read(const uint4* p, float* out) {
  const uint4* from = p + size_t{blockIdx.x} * (8 * 256) + threadIdx.x;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint4 v = from[i * 256];
    sum += __uint_as_float(v.x) + __uint_as_float(v.y) + __uint_as_float(v.z) + __uint_as_float(v.w);
  }
  if (sum > 1e30f) *out = sum;
}

__global__ void FillRandom(__nv_bfloat16* p, size_t n, unsigned int seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    unsigned int v = static_cast<unsigned int>(i) * 2654435761u + seed;
    v ^= v >> 15, v *= 2246822519u, v ^= v >> 13, v *= 3266489917u, v ^= v >> 16;
    p[i] = __float2bfloat16(static_cast<float>(v) / 2147483648.0f - 1.0f);
  }
}

__global__ void FillFloats(float* p, size_t n) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    p[i] = static_cast<float>(i % 1021) * 1e-3f - 0.5f;
  }
}

void Flush() {
  Read<<<kFlushBytes / (8 * 256 * 16), 256, 0, stream>>>(reinterpret_cast<const uint4*>(flush_memory), flush_sum);
}

cudaGraphExec_t GraphOf(int n, bool flush, const Call& call) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < n; ++i) {
    if (flush) Flush();
    if (call) call(stream);
  }
  Check(cudaStreamEndCapture(stream, &graph), "end of capture");
  Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  Check(cudaGraphDestroy(graph), "graph");
  return exec;
}

double Replay(cudaGraphExec_t graph) {
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (begin == nullptr) {
    Check(cudaEventCreate(&begin), "event");
    Check(cudaEventCreate(&end), "event");
  }
  Check(cudaEventRecord(begin, stream), "event");
  Check(cudaGraphLaunch(graph, stream), "launch");
  Check(cudaEventRecord(end, stream), "event");
  Check(cudaEventSynchronize(end), "replay");
  float ms = 0;
  Check(cudaEventElapsedTime(&ms, begin, end), "time");
  return ms * 1e3;
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Issue is n times [flush, call], launched one by one.
double Issue(int n, const Call& call) {
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (begin == nullptr) {
    Check(cudaEventCreate(&begin), "event");
    Check(cudaEventCreate(&end), "event");
  }
  Flush(), Flush();  // the host gets ahead
  Check(cudaEventRecord(begin, stream), "event");
  for (int i = 0; i < n; ++i) {
    Flush();
    if (call) call(stream);
  }
  Check(cudaEventRecord(end, stream), "event");
  Check(cudaEventSynchronize(end), "calls");
  float ms = 0;
  Check(cudaEventElapsedTime(&ms, begin, end), "time");
  return ms * 1e3;
}

// Median over rounds of the difference, over n, between the median times with and without the call.
double Difference(int n, int rounds, const std::function<double()>& with, const std::function<double()>& without) {
  const int replays = 7;
  with(), without();
  std::vector<double> all;
  for (int r = 0; r < rounds; ++r) {
    std::vector<double> a, b;
    for (int i = 0; i < replays; ++i) {
      b.push_back(without());
      a.push_back(with());
    }
    all.push_back((Median(a) - Median(b)) / n);
  }
  return Median(all);
}

// Time returns microseconds of a call with nothing in L2.
double Time(const Call& call, int rounds = 5) {
  const int n = 20;
  static const cudaGraphExec_t empty = GraphOf(n, true, nullptr);
  call(stream);
  Check(cudaStreamSynchronize(stream), "first call");
  const cudaGraphExec_t graph = GraphOf(n, true, call);
  const double us = Difference(n, rounds, [=] { return Replay(graph); }, [=] { return Replay(empty); });
  Check(cudaGraphExecDestroy(graph), "graph");
  return us;
}

// TimeStream returns the times of launches outside of a graph.
double TimeStream(const Call& call) {
  const int n = 20;
  return Difference(n, 3, [&] { return Issue(n, call); }, [&] { return Issue(n, nullptr); });
}

// TimeChain returns microseconds of a call among others like it, each after the one before.
double TimeChain(const Call& call) {
  const int n = 200;
  const cudaGraphExec_t graph = GraphOf(n, false, call);
  std::vector<double> all;
  for (int i = 0; i < 9; ++i) all.push_back(Replay(graph) / n);
  Check(cudaGraphExecDestroy(graph), "graph");
  return Median(all);
}

// Buffers are the operands of one row of the table.
struct Buffers {
  std::vector<void*> all;

  ~Buffers() {
    for (void* p : all) cudaFree(p);
  }
  void* Make(size_t count) {
    void* p = nullptr;
    Check(cudaMalloc(&p, count * 2), "cudaMalloc");
    FillRandom<<<1024, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(p), count, static_cast<unsigned int>(all.size()));
    all.push_back(p);
    return p;
  }
};

struct Row {
  const char* op;
  size_t tokens, hidden;
  double bytes;
  Call call;
  MojoRMSNormArgs norm;  // of the first two ops
};

MojoRotaryArgs Rotary(Buffers* buffers, size_t tokens, size_t heads, const void* cos, const void* sin) {
  MojoRotaryArgs a = {};
  a.x = buffers->Make(tokens * heads * 128);
  a.y = buffers->Make(tokens * heads * 128);
  a.cos = cos, a.sin = sin;
  a.type = kMojoBFloat16;
  a.rank = 2;
  a.dims[0] = tokens, a.dims[1] = heads;
  a.cos_step[0] = a.sin_step[0] = 128;
  a.width = a.rotated = 128;
  a.cos_wide = a.sin_wide = 1;
  return a;
}

Row MakeRow(const char* op, size_t t, size_t h, Buffers* buffers) {
  Row row = {op, t, h, 0, nullptr, {}};
  if (strstr(op, "rmsnorm") != nullptr) {
    const bool add = op[0] == 'a';
    MojoRMSNormArgs a = {};
    a.x = buffers->Make(t * h);
    a.residual = buffers->Make(t * h);
    a.scale = buffers->Make(h);
    a.y = buffers->Make(t * h);
    a.sum = buffers->Make(t * h);
    a.rows = t, a.width = h, a.epsilon = 1e-6f, a.scale_after_cast = 1;
    a.x_type = a.scale_type = kMojoBFloat16;
    row.norm = a;
    row.bytes = (add ? 4.0 : 2.0) * t * h * 2 + h * 2;
    row.call = [a, add](cudaStream_t s) { Check(add ? MojoCudaAddRMSNorm(&a, s) : MojoCudaRMSNorm(&a, s), "norm"); };
  } else if (strstr(op, "gate") != nullptr) {  // heads of 128 channels, gate after; or whole rows, gate before
    const bool first = op[0] == 'g';
    const size_t width = first ? h : 128;
    MojoGatedRMSNormArgs a = {{first, 1, 1e-6f, true}};
    a.x = buffers->Make(t * h);
    a.gate = buffers->Make(t * h);
    a.scale = buffers->Make(width);
    a.y = buffers->Make(t * h);
    a.rows = t * h / width, a.width = width;
    a.x_type = a.gate_type = a.scale_type = kMojoBFloat16;
    row.bytes = 3.0 * t * h * 2 + width * 2;
    row.call = [a](cudaStream_t s) { Check(MojoCudaGatedRMSNorm(&a, s), "gated norm"); };
  } else if (strcmp(op, "swiglu") == 0) {
    MojoGLUArgs a = {{mojo::Activation::kSilu, 1, 0, 0}};
    a.gate = buffers->Make(t * h);
    a.up = buffers->Make(t * h);
    a.y = buffers->Make(t * h);
    a.count = t * h, a.type = kMojoBFloat16;
    row.bytes = 3.0 * t * h * 2;
    row.call = [a](cudaStream_t s) { Check(MojoCudaGLU(&a, s), "GLU"); };
  } else {
    const size_t heads = h / 128, kv_heads = 8;
    const void* cos = buffers->Make(t * 128);
    const void* sin = buffers->Make(t * 128);
    row.bytes = 2.0 * t * (heads + kv_heads) * 128 * 2 + t * 128 * 2 * 2;
    std::vector<MojoNormRotaryArgs> a(2);
    for (int i = 0; i < 2; ++i) {
      a[i].rotary = Rotary(buffers, t, i == 0 ? heads : kv_heads, cos, sin);
      a[i].scale = buffers->Make(128);
      a[i].epsilon = 1e-6f, a[i].scale_after_cast = 1;
      a[i].x_type = a[i].scale_type = kMojoBFloat16;
    }
    if (strcmp(op, "rope") == 0) {
      const std::vector<MojoRotaryArgs> r = {a[0].rotary, a[1].rotary};
      row.call = [r](cudaStream_t s) { Check(MojoCudaRotaryEmbedding(r.data(), 2, s), "rotary"); };
    } else {
      row.call = [a](cudaStream_t s) { Check(MojoCudaNormRotary(a.data(), 2, s), "norm rotary"); };
    }
  }
  return row;
}

void Table(const Row& row) {
  MojoCudaSetDependentLaunch(0);
  const double plain_stream = TimeStream(row.call), plain_chain = TimeChain(row.call);
  MojoCudaSetDependentLaunch(1);
  const double us = Time(row.call), in_stream = TimeStream(row.call), chain = TimeChain(row.call);
  printf("%-12s %5zu %5zu %9.2f %8.0f %4.0f%% %9.2f %9.2f %9.2f %9.2f %9.2f\n", row.op, row.tokens, row.hidden, us,
         row.bytes / us / 1e3, 100 * row.bytes / us * 1e6 / read_rate, in_stream, plain_stream, chain, plain_chain,
         row.bytes / read_rate * 1e6);
  fflush(stdout);
}

void Sweep(const Row& row) {
  printf("%-12s %5zu %5zu  chosen %.2f |", row.op, row.tokens, row.hidden, Time(row.call, 3));
  const int n = static_cast<int>(row.norm.width / 8);
  const auto threads = [n](int packs) { return ((n + packs - 1) / packs + 31) / 32 * 32; };
  std::vector<mojo::NormPlan> plans;
  using mojo::NormPlan;
  if (n <= 1024) plans.push_back({NormPlan::kBlock2, threads(2), 1});
  plans.push_back({NormPlan::kBlock4, threads(4), 1});
  plans.push_back({NormPlan::kBlock8, threads(8), 1});
  for (const NormPlan& plan : plans) {
    mojo::ForceNormPlan(&plan);
    const char* const names[] = {"groups4", "block2", "block4", "block8", "any"};
    printf(" %s/%dx%d %.2f", names[plan.form], plan.threads, plan.rows, Time(row.call, 3));
  }
  mojo::ForceNormPlan(nullptr);
  printf("\n");
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bool sweep = argc > 1 && strcmp(argv[1], "sweep") == 0;
  Check(cudaStreamCreate(&stream), "stream");
  Check(cudaMalloc(&flush_memory, kFlushBytes), "cudaMalloc");
  Check(cudaMalloc(&flush_sum, 4), "cudaMalloc");
  FillFloats<<<1024, 256, 0, stream>>>(reinterpret_cast<float*>(flush_memory), kFlushBytes / 4);
  cudaDeviceProp device;
  Check(cudaGetDeviceProperties(&device, 0), "device");
  {
    // The read bandwidth: 2 GiB.
    const size_t bytes = size_t{2} << 30;
    char* memory = nullptr;
    Check(cudaMalloc(&memory, bytes), "cudaMalloc");
    FillFloats<<<1024, 256, 0, stream>>>(reinterpret_cast<float*>(memory), bytes / 4);
    const double us = Time([=](cudaStream_t s) {
      Read<<<bytes / (8 * 256 * 16), 256, 0, s>>>(reinterpret_cast<const uint4*>(memory), flush_sum);
    });
    read_rate = bytes / us * 1e6;
    cudaFree(memory);
  }
  printf("%s, read bandwidth %.2f TB/s\n", device.name, read_rate / 1e12);
  if (!sweep) {
    printf(
        "bf16; stream: us of launches that are no graph; chain: us of a call among 200, data in L2; "
        "plain: without dependent launch\n");
    printf("%-12s %5s %5s %9s %8s %5s %9s %9s %9s %9s %9s\n", "op", "T", "H", "us", "GB/s", "read", "stream", "plain",
           "chain", "plain", "floor");
  }
  for (const size_t t : {8192, 1024, 64, 1}) {
    for (const size_t h : {4096, 7168, 2048}) {
      for (const char* op : {"rmsnorm", "add_rmsnorm", "norm_gate", "gate_norm", "swiglu", "rope", "qknorm_rope"}) {
        if (sweep && strstr(op, "rmsnorm") == nullptr) continue;
        Buffers buffers;
        const Row row = MakeRow(op, t, h, &buffers);
        if (sweep) {
          Sweep(row);
        } else {
          Table(row);
        }
      }
    }
  }
  return 0;
}
