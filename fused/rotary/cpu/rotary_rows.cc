#include "rotary/cpu/rotary_rows.h"

#include <string.h>

#include <new>

namespace mojo {

bool RotaryTensors::MoveOutOfPlace(std::unique_ptr<char[]>* copy) {
  if (x != y) return true;
  const size_t bytes = layout.Rows() * layout.width * x_size;
  copy->reset(new (std::nothrow) char[bytes]);
  if (*copy == nullptr) return false;
  memcpy(copy->get(), x, bytes);
  x = copy->get();
  return true;
}

}  // namespace mojo
