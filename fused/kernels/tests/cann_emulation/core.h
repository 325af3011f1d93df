// The common part of the emulation's libraries: errors, counted calls, device memory, streams. It is in libascendcl.so.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "acl.h"

namespace cann_emulation {

// A refused call, or a failure of the device: its code, and the text for aclGetRecentErrMsg.
struct Failure {
  int code;
  std::string text;
};

std::string Text(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Keeps the text for this thread's next aclGetRecentErrMsg and returns the code back.
int Refuse(int code, const std::string& text);
int Refuse(const Failure& failure);

// Counts a call. Not 0, with the text kept, if a failure of this call is planted.
int Called(const std::string& name);

// Counts the objects of a kind that are alive, for CannEmulationLive.
void Created(const char* kind);
void Destroyed(const char* kind);

// The name of the chip, and whether it is one of the Atlas inference series (310P), which supports less.
const std::string& SocName();
bool Is310P();

// 0, or the refusal of a thread that has set no device.
int NeedsDevice(const char* name);

// Device memory. Its addresses are protected pages; only Open leads to their contents.
void* AllocateDevice(size_t size);
void FreeDevice(void* address);                    // throws Failure
uint8_t* Open(const void* address, size_t bytes);  // throws Failure; only under execution
bool IsDevice(const void* address);                // also of freed memory
bool IsPinned(const void* address, size_t bytes);

// Runs work in the stream's order, later. work may throw Failure. NULL is the default stream.
int Launch(aclrtStream stream, std::function<void()> work);
int Synchronize(aclrtStream stream);

}  // namespace cann_emulation

extern "C" {
// For tests, which call these through ctypes.
// Lets the nth call of this name from now on fail; for NAME@device, the work that the nth call put into a stream.
void CannEmulationFail(const char* name, int nth);
// How often a call was made since the last reset.
uint64_t CannEmulationCalls(const char* name);
// The names of all calls since the last reset, in their order, one a line. The text is valid until the next call.
const char* CannEmulationLog();
// How many objects of a kind are alive: "memory", "stream", "event", "tensor", "executor", "scalar", "array", "list".
int64_t CannEmulationLive(const char* kind);
// Forgets counts, log and planted failures.
void CannEmulationReset();
}
