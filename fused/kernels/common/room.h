// Scratch memory in parts.
#pragma once

#include <stddef.h>

namespace mojo {

// Room divides scratch memory up into parts that are aligned to kAlignment bytes, as the memory is: counted with a
// null memory, handed out otherwise.
template <size_t kAlignment>
struct Room {
  char* memory = nullptr;
  size_t used = 0;

  template <class T>
  T* Take(size_t count) {
    T* taken = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + used);
    used += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return taken;
  }
};

}  // namespace mojo
