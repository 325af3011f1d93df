// Shared parts of the test programs: numbers of the three types on the host, and device memory with guards.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

#include "cuda/mojo_cuda.h"

// Check ends the program if a call of the runtime fails.
inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  printf("%s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

// Settle waits for what the default stream does: cudaMemset, and cudaMemcpy to the device, can return before it is
// done, and a stream that does not block starts without it.
inline void Settle() { Check(cudaDeviceSynchronize(), "wait"); }

// Random returns the same numbers in every run.
struct Random {
  uint64_t state;

  explicit Random(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint32_t Next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t v = state ^ state >> 29;
    return static_cast<uint32_t>(v * 0xbf58476d1ce4e5b9u >> 32);
  }
  size_t Below(size_t n) { return Next() % n; }
  // Normal is about normally distributed.
  float Normal() {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(Next() >> 8) / 16777216.0f - 0.5f;
    return sum * 1.7320508f;
  }
};

inline size_t SizeOf(MojoType type) { return type == kMojoFloat32 ? 4 : 2; }

inline float Load(const void* p, size_t i, MojoType type) {
  if (type == kMojoFloat32) return static_cast<const float*>(p)[i];
  if (type == kMojoFloat16) return __half2float(static_cast<const __half*>(p)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
}

inline void Store(void* p, size_t i, MojoType type, float v) {
  if (type == kMojoFloat32) {
    static_cast<float*>(p)[i] = v;
  } else if (type == kMojoFloat16) {
    static_cast<__half*>(p)[i] = __float2half_rn(v);
  } else {
    static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(v);
  }
}

// Numbers is a tensor on the host and on the device. The device has kGuard bytes more on either side, which
// nothing may write; offset moves its data off an alignment.
class Numbers {
 public:
  Numbers(MojoType type, size_t count, size_t offset = 0)
      : type_(type), count_(count), offset_(offset), host_(count * SizeOf(type)) {
    Check(cudaMalloc(&memory_, Bytes() + 2 * kGuard + offset), "cudaMalloc");
    Poison();
  }
  ~Numbers() { cudaFree(memory_); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

  size_t count() const { return count_; }
  void* device() const { return memory_ + kGuard + offset_; }
  float Get(size_t i) const { return Load(host_.data(), i, type_); }
  void Set(size_t i, float v) { Store(host_.data(), i, type_, v); }
  void Fill(Random* random, float scale) {
    for (size_t i = 0; i < count_; ++i) Set(i, random->Normal() * scale);
  }
  void ToDevice() {
    Check(cudaMemcpy(device(), host_.data(), Bytes(), cudaMemcpyHostToDevice), "copy to device");
    Settle();
  }
  void ToHost() { Check(cudaMemcpy(host_.data(), device(), Bytes(), cudaMemcpyDeviceToHost), "copy to host"); }
  const std::vector<char>& bytes() const { return host_; }
  // Poison fills the device memory with NaN.
  void Poison() {
    Check(cudaMemset(memory_, 0xff, Bytes() + 2 * kGuard + offset_), "poison");
    Settle();
  }
  // Guarded reports whether the guards are as Poison left them.
  bool Guarded() const {
    std::vector<unsigned char> all(Bytes() + 2 * kGuard + offset_);
    Check(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost), "copy to host");
    for (size_t i = 0; i < all.size(); ++i) {
      if ((i < kGuard + offset_ || i >= kGuard + offset_ + Bytes()) && all[i] != 0xff) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 4096;
  size_t Bytes() const { return count_ * SizeOf(type_); }

  MojoType type_;
  size_t count_, offset_;
  std::vector<char> host_;
  char* memory_ = nullptr;
};

// Ids is a tensor of int64 on both.
struct Ids {
  std::vector<int64_t> host;
  int64_t* device = nullptr;

  explicit Ids(size_t count) : host(count) { Check(cudaMalloc(&device, count * 8 + 8), "cudaMalloc"); }
  ~Ids() { cudaFree(device); }
  Ids(const Ids&) = delete;
  Ids& operator=(const Ids&) = delete;
  void ToDevice() {
    Check(cudaMemcpy(device, host.data(), host.size() * 8, cudaMemcpyHostToDevice), "copy to device");
    Settle();
  }
  void ToHost() { Check(cudaMemcpy(host.data(), device, host.size() * 8, cudaMemcpyDeviceToHost), "copy to host"); }
};

// Unit is the distance of numbers of type about 1.
inline double Unit(MojoType type) { return type == kMojoFloat32 ? 0x1p-23 : type == kMojoFloat16 ? 0x1p-10 : 0x1p-7; }

// InParallel runs body for parts of 0 to n - 1.
inline void InParallel(size_t n, const std::function<void(size_t, size_t)>& body) {
  const size_t threads = std::min<size_t>(n, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> all;
  for (size_t i = 0; i < threads; ++i) all.emplace_back(body, n * i / threads, n * (i + 1) / threads);
  for (std::thread& thread : all) thread.join();
}

inline const char* TypeName(MojoType type) {
  return type == kMojoFloat32 ? "fp32" : type == kMojoFloat16 ? "fp16" : "bf16";
}
