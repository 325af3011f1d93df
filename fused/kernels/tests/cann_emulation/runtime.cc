// The runtime's calls: device, context, memory, copies, streams, events.
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "stream.h"

using namespace cann_emulation;

namespace {

constexpr int32_t kDevices = 1;
std::atomic<bool> initialized{false};
thread_local int32_t current = -1;  // this thread's device

struct Event {
  Point recorded;
};

std::mutex events_mutex;
std::set<Event*>& events() {
  static std::set<Event*>& e = *new std::set<Event*>;
  return e;
}

// The point that an event recorded last; throws Failure.
Point Recorded(aclrtEvent event) {
  std::lock_guard<std::mutex> lock(events_mutex);
  auto found = events().find(static_cast<Event*>(event));
  if (found == events().end()) {
    throw Failure{ACL_ERROR_RT_INVALID_HANDLE, Text("%p is no event, or one that was destroyed", event)};
  }
  return (*found)->recorded;
}

// Throws unless an address is on the side that the copy's kind says.
void CheckSide(const char* what, const void* address, bool device) {
  if (IsDevice(address) != device) {
    throw Failure{ACL_ERROR_RT_PARAM_INVALID, Text("aclrtMemcpy: %s %p is %s memory, which the kind of the copy denies",
                                                   what, address, device ? "host" : "device")};
  }
}

// Resolves ACL_MEMCPY_DEFAULT and checks the arguments; throws Failure.
aclrtMemcpyKind Checked(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  if (!dst || !src) throw Failure{ACL_ERROR_INVALID_PARAM, "aclrtMemcpy: the destination or the source is NULL"};
  if (count > destMax) {
    throw Failure{ACL_ERROR_RT_PARAM_INVALID, Text("aclrtMemcpy: %zu bytes do not fit in %zu", count, destMax)};
  }
  if (kind == ACL_MEMCPY_DEFAULT) kind = aclrtMemcpyKind((IsDevice(dst) ? 1 : 0) + (IsDevice(src) ? 2 : 0));
  CheckSide("the destination", dst, kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE);
  CheckSide("the source", src, kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE);
  return kind;
}

void Copy(void* dst, const void* src, size_t count, aclrtMemcpyKind kind) {
  const bool to = kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  const bool from = kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  memmove(to ? Open(dst, count) : dst, from ? Open(src, count) : src, count);
}

}  // namespace

namespace cann_emulation {

int NeedsDevice(const char* name) {
  if (!initialized) return Refuse(ACL_ERROR_UNINITIALIZE, Text("%s: aclInit has not been called", name));
  if (current < 0) return Refuse(ACL_ERROR_RT_CONTEXT_NULL, Text("%s: this thread has set no device", name));
  return ACL_SUCCESS;
}

}  // namespace cann_emulation

// Counts the call, triggers a planted failure, and requires a device.
#define BEGIN(name)                               \
  if (int planted = Called(name)) return planted; \
  if (int refused = NeedsDevice(name)) return refused;

extern "C" {

aclError aclInit(const char*) {
  if (int planted = Called("aclInit")) return planted;
  return initialized.exchange(true) ? Refuse(ACL_ERROR_REPEAT_INITIALIZE, "aclInit: it was called before")
                                    : ACL_SUCCESS;
}

aclError aclFinalize() {
  if (int planted = Called("aclFinalize")) return planted;
  return initialized.exchange(false) ? ACL_SUCCESS : Refuse(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize: nothing is open");
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  if (int planted = Called("aclrtGetDeviceCount")) return planted;
  *count = kDevices;
  return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t deviceId) {
  if (int planted = Called("aclrtSetDevice")) return planted;
  if (!initialized) return Refuse(ACL_ERROR_UNINITIALIZE, "aclrtSetDevice: aclInit has not been called");
  if (deviceId < 0 || deviceId >= kDevices) {
    return Refuse(ACL_ERROR_RT_INVALID_DEVICEID, Text("aclrtSetDevice: there is no device %d", deviceId));
  }
  current = deviceId;
  return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t) {
  if (int planted = Called("aclrtResetDevice")) return planted;
  int code = SynchronizeAll();
  current = -1;
  return code;
}

aclError aclrtGetDevice(int32_t* deviceId) {
  BEGIN("aclrtGetDevice")
  *deviceId = current;
  return ACL_SUCCESS;
}

const char* aclrtGetSocName() { return SocName().c_str(); }

// A device has one context here: the number of the device, plus 1.
aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  if (int code = aclrtSetDevice(deviceId)) return code;
  *context = reinterpret_cast<aclrtContext>(intptr_t(deviceId) + 1);
  return ACL_SUCCESS;
}

aclError aclrtDestroyContext(aclrtContext) { return Called("aclrtDestroyContext"); }

aclError aclrtSetCurrentContext(aclrtContext context) {
  return aclrtSetDevice(static_cast<int32_t>(reinterpret_cast<intptr_t>(context) - 1));
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  BEGIN("aclrtGetCurrentContext")
  *context = reinterpret_cast<aclrtContext>(intptr_t(current) + 1);
  return ACL_SUCCESS;
}

aclError aclrtMalloc(void** devPtr, size_t size, int) {
  BEGIN("aclrtMalloc")
  if (!devPtr || size == 0) return Refuse(ACL_ERROR_INVALID_PARAM, "aclrtMalloc: no pointer, or a size of 0");
  *devPtr = AllocateDevice(size);
  return *devPtr ? ACL_SUCCESS : Refuse(ACL_ERROR_RT_MEMORY_ALLOCATION, Text("aclrtMalloc: no %zu bytes", size));
}

aclError aclrtFree(void* devPtr) {
  if (int planted = Called("aclrtFree")) return planted;
  try {
    Execution held;  // at once, as documented, but not during a running task
    FreeDevice(devPtr);
  } catch (const Failure& f) {
    return Refuse(f);
  }
  return ACL_SUCCESS;
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  BEGIN("aclrtMemcpy")
  try {
    kind = Checked(dst, destMax, src, count, kind);
    Execution held;
    Copy(dst, src, count, kind);
  } catch (const Failure& f) {
    return Refuse(f);
  }
  return ACL_SUCCESS;
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  BEGIN("aclrtMemcpyAsync")
  try {
    kind = Checked(dst, destMax, src, count, kind);
    if (kind == ACL_MEMCPY_HOST_TO_HOST) {
      return Refuse(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtMemcpyAsync: from host to host");
    }
    Task task;
    task.work = [=] { Copy(dst, src, count, kind); };
    Point point = Ask(Find(stream), std::move(task));
    // With unpinned host memory the call returns when the copy is done.
    const void* host = kind == ACL_MEMCPY_HOST_TO_DEVICE ? src : kind == ACL_MEMCPY_DEVICE_TO_HOST ? dst : nullptr;
    return host && !IsPinned(host, count) ? WaitFor(point) : ACL_SUCCESS;
  } catch (const Failure& f) {
    return Refuse(f);
  }
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  BEGIN("aclrtMemset")
  if (count > maxCount)
    return Refuse(ACL_ERROR_RT_PARAM_INVALID, Text("aclrtMemset: %zu of %zu bytes", count, maxCount));
  try {
    Execution held;
    memset(Open(devPtr, count), value, count);
  } catch (const Failure& f) {
    return Refuse(f);
  }
  return ACL_SUCCESS;
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  BEGIN("aclrtMemsetAsync")
  if (count > maxCount)
    return Refuse(ACL_ERROR_RT_PARAM_INVALID, Text("aclrtMemset: %zu of %zu bytes", count, maxCount));
  return Launch(stream, [=] { memset(Open(devPtr, count), value, count); });
}

aclError aclrtCreateStream(aclrtStream* stream) {
  BEGIN("aclrtCreateStream")
  *stream = NewStream().get();
  Created("stream");
  return ACL_SUCCESS;
}

aclError aclrtDestroyStream(aclrtStream stream) {
  if (int planted = Called("aclrtDestroyStream")) return planted;
  try {
    CloseStream(stream);
  } catch (const Failure& f) {
    return Refuse(f);
  }
  Destroyed("stream");
  return ACL_SUCCESS;
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  BEGIN("aclrtSynchronizeStream")
  return Synchronize(stream);
}

aclError aclrtSynchronizeDevice() {
  BEGIN("aclrtSynchronizeDevice")
  return SynchronizeAll();
}

aclError aclrtCreateEvent(aclrtEvent* event) {
  BEGIN("aclrtCreateEvent")
  Event* e = new Event;
  std::lock_guard<std::mutex> lock(events_mutex);
  events().insert(e);
  *event = e;
  Created("event");
  return ACL_SUCCESS;
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  if (int planted = Called("aclrtDestroyEvent")) return planted;
  std::lock_guard<std::mutex> lock(events_mutex);
  if (!events().erase(static_cast<Event*>(event))) {
    return Refuse(ACL_ERROR_RT_INVALID_HANDLE, Text("aclrtDestroyEvent: %p is no event", event));
  }
  delete static_cast<Event*>(event);
  Destroyed("event");
  return ACL_SUCCESS;
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  BEGIN("aclrtRecordEvent")
  try {
    Recorded(event);
    Point point = Ask(Find(stream), Task{});
    std::lock_guard<std::mutex> lock(events_mutex);
    static_cast<Event*>(event)->recorded = point;
  } catch (const Failure& f) {
    return Refuse(f);
  }
  return ACL_SUCCESS;
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  BEGIN("aclrtStreamWaitEvent")
  try {
    Task task;
    task.after = Recorded(event);
    Ask(Find(stream), std::move(task));
  } catch (const Failure& f) {
    return Refuse(f);
  }
  return ACL_SUCCESS;
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  BEGIN("aclrtSynchronizeEvent")
  try {
    Point point = Recorded(event);
    return point.stream ? WaitFor(point) : ACL_SUCCESS;
  } catch (const Failure& f) {
    return Refuse(f);
  }
}
}
