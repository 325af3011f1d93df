// What launches need to know of the device.
#include <atomic>
#include <mutex>

#include "cuda/common.cuh"

namespace mojo {
namespace {

std::atomic<bool> dependent_launch{true};

constexpr int kMaxDevices = 64;

// Probe tells by its attributes which of the library's machine codes the device runs.
//
// Registers: 8. Shared memory: none.
__global__ void Probe() {}

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
    // Code for older devices than Hopper, run on a newer one, does not wait in WaitForPrevious.
    cudaFuncAttributes code = {};
    device.waits = cudaFuncGetAttributes(&code, Probe) == cudaSuccess && code.ptxVersion >= 90;
    if (device.multiprocessors < 1) device.multiprocessors = 1;
  });
  return devices[index];
}

bool DependentLaunch() {
  return dependent_launch.load(std::memory_order_relaxed) && TheDevice().waits;
}

}  // namespace mojo

void MojoCudaSetDependentLaunch(int on) { mojo::dependent_launch.store(on != 0); }
