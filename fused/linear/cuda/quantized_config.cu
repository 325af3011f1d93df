// Chooses kernels and tiles for products of quantized weights, only from shapes and types, as measured on an H100
// (docs/benchmarks/gpu.md).
#include "linear/cuda/quantized_product.cuh"

namespace mojo {
namespace {

constexpr size_t kFewRows = 8, kSomeRows = 64;  // of Linear
constexpr size_t kFewChoices = 8;               // of an expert, on average

// HopperTile is the tile of QuantizedHopper for matrices with this average number of activation rows. Wide tiles avoid
// reading weights twice, if there are still enough places to fill the device.
int HopperTile(const QuantizedProduct& p, size_t average) {
  if (p.weights.code != Code::kE4m3) return average <= 8 ? 16 : average <= 16 ? 32 : 128;
  const size_t places = DivideUp(p.rows, 128) * DivideUp(p.weights.n, 256);
  const bool wide =
      p.kind == kQuantizedLinear ? places >= static_cast<size_t>(TheDevice().multiprocessors) : average >= 64;
  return wide ? 128 : 64;
}

}  // namespace

QuantizedConfig ConfigOfExperts(const QuantizedProduct& first, const QuantizedProduct& second) {
  const MojoMoEArgs& m = first.moe;
  const size_t average = m.tokens * m.top_k / m.experts;
  const bool same = first.weights.code == second.weights.code;
  const MojoMoEConfig& asked = m.config;
  const auto may = [&](MojoMoEKernel kernel) { return asked.kernel == kMojoAnyKernel || asked.kernel == kernel; };
  if (may(kMojoFew) && same && DirectTakes(first) && DirectTakes(second)) return {kQuantizedDirect, kFewTokens, 0};
  if (may(kMojoWgmma) && same && HopperTakes(first) && HopperTakes(second)) {
    return {kQuantizedHopper, asked.tile > 0 ? asked.tile : HopperTile(first, average), asked.split};
  }
  const bool few = asked.tile > 0 ? asked.tile == kFewTokens : average <= kFewChoices && Aligned(m.x, 16);
  return {few ? kQuantizedRows : kQuantizedTiles, few ? kFewTokens : kTileTokens, 0};
}

QuantizedConfig ConfigOfLinear(const QuantizedProduct& p) {
  if (DirectTakes(p)) return {kQuantizedDirect, kFewTokens, 0};
  if (HopperTakes(p)) return {kQuantizedHopper, HopperTile(p, p.rows), 0};
  const bool few = p.rows <= kSomeRows && Aligned(p.x, 16);
  return {few ? kQuantizedRows : kQuantizedTiles, !few ? kTileTokens : p.rows > kFewRows ? kSomeTokens : kFewTokens, 0};
}

}  // namespace mojo
