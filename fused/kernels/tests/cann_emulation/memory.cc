// Device memory that the host cannot touch, and pinned host memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "core.h"

namespace cann_emulation {
namespace {

struct Block {
  size_t size, pages;
  uint8_t* storage;  // contents of the addresses; NULL once freed
};

struct Blocks {
  std::mutex mutex;
  std::map<uintptr_t, Block> device;
  std::map<uintptr_t, size_t> pinned;
};

Blocks& blocks() {
  static Blocks& b = *new Blocks;
  return b;
}

// The block that contains an address, or end().
std::map<uintptr_t, Block>::iterator Find(const void* address) {
  auto& device = blocks().device;
  uintptr_t a = reinterpret_cast<uintptr_t>(address);
  auto next = device.upper_bound(a);
  if (next == device.begin()) return device.end();
  --next;
  return a < next->first + next->second.pages ? next : device.end();
}

}  // namespace

void* AllocateDevice(size_t size) {
  size_t page = sysconf(_SC_PAGESIZE);
  size_t pages = (size + page - 1) / page * page + page;  // with an unowned page at the end
  // The addresses come from the kernel and are never reused, so that a use after free is detected.
  void* address = mmap(nullptr, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  void* storage = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (storage == MAP_FAILED) {
    munmap(address, pages);
    return nullptr;
  }
  memset(storage, 0xff,
         size);  // NaN in every floating-point type and an invalid index, to show reads of uninitialized memory
  std::lock_guard<std::mutex> lock(blocks().mutex);
  blocks().device[reinterpret_cast<uintptr_t>(address)] = Block{size, pages, static_cast<uint8_t*>(storage)};
  Created("memory");
  return address;
}

void FreeDevice(void* address) {
  std::lock_guard<std::mutex> lock(blocks().mutex);
  auto found = blocks().device.find(reinterpret_cast<uintptr_t>(address));
  if (found == blocks().device.end()) {
    throw Failure{ACL_ERROR_RT_PARAM_INVALID, Text("aclrtFree: %p is no address that aclrtMalloc gave", address)};
  }
  if (!found->second.storage) {
    throw Failure{ACL_ERROR_RT_PARAM_INVALID, Text("aclrtFree: %p was freed before", address)};
  }
  munmap(found->second.storage, found->second.pages);
  found->second.storage = nullptr;
  Destroyed("memory");
}

uint8_t* Open(const void* address, size_t bytes) {
  std::lock_guard<std::mutex> lock(blocks().mutex);
  auto found = Find(address);
  if (found == blocks().device.end()) {
    throw Failure{ACL_ERROR_RT_AICORE_EXCEPTION, Text("%p is not device memory", address)};
  }
  if (!found->second.storage) {
    throw Failure{ACL_ERROR_RT_AICORE_EXCEPTION, Text("device memory at %p is used after it was freed", address)};
  }
  size_t at = reinterpret_cast<uintptr_t>(address) - found->first;
  if (at > found->second.size || bytes > found->second.size - at) {
    throw Failure{ACL_ERROR_RT_AICORE_EXCEPTION,
                  Text("%zu bytes at %p: the allocation of %zu bytes ends after %zu of them", bytes, address,
                       found->second.size, found->second.size - at)};
  }
  return found->second.storage + at;
}

bool IsDevice(const void* address) {
  std::lock_guard<std::mutex> lock(blocks().mutex);
  return Find(address) != blocks().device.end();
}

bool IsPinned(const void* address, size_t bytes) {
  std::lock_guard<std::mutex> lock(blocks().mutex);
  uintptr_t a = reinterpret_cast<uintptr_t>(address);
  auto next = blocks().pinned.upper_bound(a);
  if (next == blocks().pinned.begin()) return false;
  --next;
  return a + bytes <= next->first + next->second;
}

}  // namespace cann_emulation

using namespace cann_emulation;

extern "C" {

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  if (int planted = Called("aclrtMallocHost")) return planted;
  if (!hostPtr || size == 0) return Refuse(ACL_ERROR_INVALID_PARAM, "aclrtMallocHost: no pointer, or a size of 0");
  *hostPtr = aligned_alloc(64, (size + 63) / 64 * 64);
  if (!*hostPtr) return Refuse(ACL_ERROR_RT_MEMORY_ALLOCATION, Text("aclrtMallocHost: no %zu bytes", size));
  std::lock_guard<std::mutex> lock(blocks().mutex);
  blocks().pinned[reinterpret_cast<uintptr_t>(*hostPtr)] = size;
  return ACL_SUCCESS;
}

aclError aclrtFreeHost(void* hostPtr) {
  if (int planted = Called("aclrtFreeHost")) return planted;
  std::lock_guard<std::mutex> lock(blocks().mutex);
  if (!blocks().pinned.erase(reinterpret_cast<uintptr_t>(hostPtr))) {
    return Refuse(ACL_ERROR_RT_PARAM_INVALID,
                  Text("aclrtFreeHost: %p is no address that aclrtMallocHost gave", hostPtr));
  }
  free(hostPtr);
  return ACL_SUCCESS;
}
}
