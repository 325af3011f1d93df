// The ids of experts.
#pragma once

#include <stdint.h>

namespace mojo {

// kNoExpert is the id of a choice that adds nothing.
constexpr int64_t kNoExpert = -1;

}  // namespace mojo
