// The coefficients of gelu_tanh for all devices.
#pragma once

namespace mojo {

// g/2 (1 + tanh(z)) is g sigmoid(2z) = g / (1 + 2^t): t is -2 log2(e) z, with z = sqrt(2/pi) (g + 0.044715 g^3).
constexpr float kGeluTanhLinear = -0x1.26aec2p1f;
constexpr float kGeluTanhCube = -0x1.a5a7d0p-4f;

}  // namespace mojo
