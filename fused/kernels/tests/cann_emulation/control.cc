// Errors, counted calls and planted failures.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "core.h"

namespace cann_emulation {
namespace {

thread_local std::string kept, given;  // the text that aclGetRecentErrMsg returns next, and its last result

struct State {
  std::mutex mutex;
  std::map<std::string, uint64_t> calls;
  std::map<std::string, std::map<uint64_t, bool>> planted;  // name -> calls that fail
  std::map<std::string, int64_t> live;
  std::string log, printed;

  State() {  // CANN_EMULATION_FAIL=NAME:NTH,...
    const char* text = getenv("CANN_EMULATION_FAIL");
    std::string plan = text ? text : "";
    for (size_t begin = 0; begin < plan.size();) {
      size_t end = plan.find(',', begin);
      if (end == std::string::npos) end = plan.size();
      std::string entry = plan.substr(begin, end - begin);
      size_t colon = entry.rfind(':');
      planted[entry.substr(0, colon)][colon == std::string::npos ? 1 : strtoull(&entry[colon + 1], nullptr, 10)] = true;
      begin = end + 1;
    }
  }
};

State& state() {
  static State& s = *new State;  // never destroyed: threads and other libraries may call until the end
  return s;
}

// The code of a planted failure of this call.
int PlantedCode(const std::string& name) {
  if (name.find("@device") != std::string::npos) return ACL_ERROR_RT_AICORE_EXCEPTION;
  if (name.rfind("aclnn", 0) == 0) return ACLNN_ERR_INNER;
  if (name == "aclrtMalloc" || name == "aclrtMallocHost") return ACL_ERROR_RT_MEMORY_ALLOCATION;
  return ACL_ERROR_INTERNAL_ERROR;
}

}  // namespace

std::string Text(const char* format, ...) {
  va_list args;
  va_start(args, format);
  char* text = nullptr;
  int n = vasprintf(&text, format, args);
  va_end(args);
  std::string result = n < 0 ? format : text;
  if (n >= 0) free(text);
  return result;
}

int Refuse(int code, const std::string& text) {
  kept = text;
  return code;
}

int Refuse(const Failure& failure) { return Refuse(failure.code, failure.text); }

int Called(const std::string& name) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  uint64_t nth = ++s.calls[name];
  s.log += name + "\n";
  auto planted = s.planted.find(name);
  if (planted == s.planted.end() || !planted->second.count(nth)) return ACL_SUCCESS;
  return Refuse(PlantedCode(name), Text("%s: planted failure of call %llu", name.c_str(), (unsigned long long)nth));
}

void Created(const char* kind) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  ++s.live[kind];
}

void Destroyed(const char* kind) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  --s.live[kind];
}

const std::string& SocName() {
  static const std::string& name =
      *new std::string(getenv("CANN_EMULATION_SOC") ? getenv("CANN_EMULATION_SOC") : "Ascend910B3");
  return name;
}

bool Is310P() { return SocName().rfind("Ascend310P", 0) == 0; }

}  // namespace cann_emulation

using namespace cann_emulation;

extern "C" {

const char* aclGetRecentErrMsg() {
  given.swap(kept);
  kept.clear();
  return given.empty() ? nullptr : given.c_str();
}

void CannEmulationFail(const char* name, int nth) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.planted[name][s.calls[name] + nth] = true;
}

uint64_t CannEmulationCalls(const char* name) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  return s.calls[name];
}

const char* CannEmulationLog() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.printed = s.log;
  return s.printed.c_str();
}

int64_t CannEmulationLive(const char* kind) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  return s.live[kind];
}

void CannEmulationReset() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.calls.clear();
  s.planted.clear();
  s.log.clear();
}
}
