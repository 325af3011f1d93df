// The part of the runtime test for MoE.
#pragma once

#include <functional>
#include <string>

#include "tests/stand_in.h"

namespace mojo_test {

// Checker counts a failure of what, with details, unless ok.
using Checker = std::function<void(bool ok, const std::string& what, const std::string& detail)>;

// TestMoE runs MoE, once the ops are registered.
void TestMoE(const OrtApi& api, const Checker& check);

}  // namespace mojo_test
