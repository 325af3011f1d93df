// The tensors that are alive.
#pragma once

#include "opbase.h"

namespace cann_emulation {

bool Alive(const aclTensor* tensor);

}  // namespace cann_emulation
