// Shared parts of the programs that time calls after an L2 flush.
#pragma once

#include <algorithm>

#include "cuda/tests/host.h"

// RandomBFloats fills with numbers of about the given size.
static __global__ void RandomBFloats(__nv_bfloat16* p, size_t n, float scale, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    uint32_t v = static_cast<uint32_t>(i) * 2654435761u ^ static_cast<uint32_t>(i >> 32) * 40503u ^ seed;
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
      v ^= v >> 16;
      v *= 0x7feb352du;
      v ^= v >> 15;
      v *= 0x846ca68bu;
      v ^= v >> 16;
      sum += static_cast<float>(v >> 8) / 16777216.0f - 0.5f;
    }
    p[i] = __float2bfloat16(sum * 1.7320508f * scale);
  }
}

static __global__ void Read(const float4* p, size_t n, float* out) {
  float4 sum = make_float4(0, 0, 0, 0);
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    const float4 v = p[i];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  if (sum.x + sum.y + sum.z + sum.w == 1e30f) *out = 1;
}

// Flush reads three times as much as L2 holds.
constexpr size_t kFlushBytes = size_t{192} << 20;
inline float4* flushed;
inline float* flush_out;

inline void* Allocate(size_t bytes) {
  void* p;
  Check(cudaMalloc(&p, bytes + 256), "cudaMalloc");
  return p;
}

// InitFlush allocates the memory that Flush reads.
inline void InitFlush() {
  flushed = static_cast<float4*>(Allocate(kFlushBytes));
  flush_out = static_cast<float*>(Allocate(4));
  RandomBFloats<<<4096, 256>>>(reinterpret_cast<__nv_bfloat16*>(flushed), kFlushBytes / 2, 1, 9);
}

// Begin makes the stream of a program that times calls.
inline cudaStream_t Begin() {
  cudaStream_t stream;
  InitFlush();
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  Check(cudaDeviceSynchronize(), "fill");
  return stream;
}

inline cudaDeviceProp DeviceProperties() {
  cudaDeviceProp device;
  Check(cudaGetDeviceProperties(&device, 0), "device");
  return device;
}

inline void Flush(cudaStream_t stream) {
  Read<<<1056, 512, 0, stream>>>(flushed, kFlushBytes / 16, flush_out);
  Check(cudaGetLastError(), "flush");
}

struct Graph {
  cudaGraphExec_t exec;

  template <class F>
  Graph(cudaStream_t stream, int calls, const F& call) {
    cudaGraph_t graph;
    Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < calls; ++i) {
      Flush(stream);
      call(stream);
    }
    Check(cudaStreamEndCapture(stream, &graph), "capture");
    Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
    Check(cudaGraphDestroy(graph), "graph");
  }
  ~Graph() { cudaGraphExecDestroy(exec); }
  float Milliseconds(cudaStream_t stream) const {
    static cudaEvent_t begin = nullptr, end = nullptr;
    if (begin == nullptr) {
      Check(cudaEventCreate(&begin), "event");
      Check(cudaEventCreate(&end), "event");
    }
    float ms;
    Check(cudaEventRecord(begin, stream), "event");
    Check(cudaGraphLaunch(exec, stream), "replay");
    Check(cudaEventRecord(end, stream), "event");
    Check(cudaEventSynchronize(end), "replay");
    Check(cudaEventElapsedTime(&ms, begin, end), "event");
    return ms;
  }
};

// Microseconds is the median of five of a call's time.
template <class F>
double Microseconds(cudaStream_t stream, double guess, const F& call) {
  const int calls = guess > 2000 ? 3 : 10;
  const Graph with(stream, calls, call), without(stream, calls, [](cudaStream_t) {});
  with.Milliseconds(stream);
  std::vector<double> times, flushes;
  for (int i = 0; i < 5; ++i) {
    flushes.push_back(without.Milliseconds(stream));
    times.push_back(with.Milliseconds(stream));
  }
  std::sort(times.begin(), times.end());
  std::sort(flushes.begin(), flushes.end());
  return (times[2] - flushes[2]) * 1000 / calls;
}

inline void* Fill(size_t count, float scale, uint32_t seed) {
  void* p = Allocate(count * 2);
  RandomBFloats<<<4096, 256>>>(static_cast<__nv_bfloat16*>(p), count, scale, seed);
  Check(cudaDeviceSynchronize(), "fill");
  return p;
}

// OnDevice is a copy of numbers.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& from) : data(static_cast<T*>(Allocate(from.size() * sizeof(T)))) {
    Check(cudaMemcpy(data, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  ~OnDevice() { cudaFree(data); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* const data;
};
