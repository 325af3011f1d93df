// Device properties that launches need.
#include <atomic>
#include <mutex>

#include "cuda/common.cuh"

namespace mojo {
namespace {

std::atomic<bool> dependent_launch{true};

constexpr int kMaxDevices = 64;

// The attributes of Probe show which machine code of the library the device runs.
//
// Registers: 8. No shared memory.
__global__ void Probe() {}

// Clustered is the number of blocks with so much shared memory that run at one time in clusters of this size, or 0 if
// they do not fit.
int Clustered(int cluster, int shared_bytes) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(32);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  if (cudaFuncSetAttribute(Probe, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes) == cudaSuccess &&
      cudaOccupancyMaxActiveClusters(&clusters, Probe, &config) == cudaSuccess) {
    return clusters * cluster;
  }
  cudaGetLastError();
  return 0;
}

// Captured is the state of a stream's capture: its identity, and the node that the next one follows, or null if there
// are zero or several.
struct Captured {
  unsigned long long id = 0;
  cudaGraphNode_t node = nullptr;
};

// InCapture reports whether stream is being captured, and returns the capture's state.
bool InCapture(cudaStream_t stream, Captured* at) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &at->id, nullptr, &nodes, nullptr, &count);
#else
  const cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, &at->id, nullptr, &nodes, &count);
#endif
  if (error != cudaSuccess) cudaGetLastError();  // the launch fails for the same reason, and says so
  if (error != cudaSuccess || status != cudaStreamCaptureStatusActive) return false;
  at->node = count == 1 ? nodes[0] : nullptr;
  return true;
}

// latest is the node that this thread's last captured launch became.
thread_local Captured latest;

}  // namespace

const Device& TheDevice() {
  static Device devices[kMaxDevices];
  static std::once_flag once[kMaxDevices];
  int index = 0;
  if (cudaGetDevice(&index) != cudaSuccess || index < 0 || index >= kMaxDevices) index = 0;
  std::call_once(once[index], [index] {
    Device& device = devices[index];
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&device.multiprocessors, cudaDevAttrMultiProcessorCount, index);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
    device.capability = 10 * major + minor;
    cudaDeviceGetAttribute(&device.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
    // Code for older devices than Hopper, run on a newer one, does not wait in WaitForPrevious.
    cudaFuncAttributes code = {};
    device.waits = cudaFuncGetAttributes(&code, Probe) == cudaSuccess && code.ptxVersion >= 90;
    if (device.multiprocessors < 1) device.multiprocessors = 1;
    device.clustered[0] = device.multiprocessors;
    for (int bits = 1; bits < 4 && device.waits; ++bits) {
      device.clustered[bits] = Clustered(1 << bits, device.shared_bytes);
    }
    for (int n = 2; n < 4; ++n) {
      device.beside[n][0] = n * device.multiprocessors;
      const int each = (device.shared_bytes + kSystemBytes) / n - kSystemBytes;
      for (int bits = 1; bits < 4 && device.waits; ++bits) device.beside[n][bits] = Clustered(1 << bits, each);
    }
  });
  return devices[index];
}

LaunchPoint BeginLaunch(cudaStream_t stream) {
  if (!dependent_launch.load(std::memory_order_relaxed) || !TheDevice().waits) return {};
  Captured at;
  if (!InCapture(stream, &at)) return {true, false};
  return {at.node != nullptr && at.node == latest.node && at.id == latest.id, true};
}

void EndLaunch(const LaunchPoint& point, cudaStream_t stream) {
  if (point.captured) InCapture(stream, &latest);
}

}  // namespace mojo

int MojoCudaCapability() { return mojo::TheDevice().capability; }

void MojoCudaSetDependentLaunch(int on) { mojo::dependent_launch.store(on != 0); }
