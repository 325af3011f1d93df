// Which way products of quantised weights go, and with which tiles: from shapes and types alone, as measured on an H100
// (docs/benchmarks/gpu.md).
#include "cuda/coded_product.cuh"

namespace mojo {
namespace {

constexpr size_t kFewRows = 8, kSomeRows = 64;  // of Linear
constexpr size_t kFewChoices = 8;               // of an expert, on average

// HopperTile is the tile of CodedHopper where so many rows of activations share a matrix on average. Wide ones are for
// weights that would be read twice, where there are still places for all of the device.
int HopperTile(const CodedProduct& p, size_t average) {
  if (p.weights.code != kMojoE4M3) return average <= 8 ? 16 : average <= 16 ? 32 : 128;
  const size_t places = DivideUp(p.rows, 128) * DivideUp(p.weights.n, 256);
  const bool wide = p.kind == kCodedLinear ? places >= static_cast<size_t>(TheDevice().multiprocessors) : average >= 64;
  return wide ? 128 : 64;
}

}  // namespace

CodedConfig ConfigOfExperts(const CodedProduct& first, const CodedProduct& second) {
  const MojoMoEArgs& m = first.moe;
  const size_t average = m.tokens * m.top_k / m.experts;
  const bool same = first.weights.code == second.weights.code;
  const MojoMoEConfig& asked = m.config;
  const auto may = [&](MojoMoEKernel kernel) { return asked.kernel == kMojoAnyKernel || asked.kernel == kernel; };
  if (may(kMojoFew) && same && DirectTakes(first) && DirectTakes(second)) return {kCodedDirect, kFewTokens, 0};
  if (may(kMojoWgmma) && same && HopperTakes(first) && HopperTakes(second)) {
    return {kCodedHopper, asked.tile > 0 ? asked.tile : HopperTile(first, average), asked.split};
  }
  const bool few = asked.tile > 0 ? asked.tile == kFewTokens : average <= kFewChoices && Aligned(m.x, 16);
  return {few ? kCodedRows : kCodedTiles, few ? kFewTokens : kTileTokens, 0};
}

CodedConfig ConfigOfLinear(const CodedProduct& p) {
  if (DirectTakes(p)) return {kCodedDirect, kFewTokens, 0};
  if (HopperTakes(p)) return {kCodedHopper, HopperTile(p, p.rows), 0};
  const bool few = p.rows <= kSomeRows && Aligned(p.x, 16);
  return {few ? kCodedRows : kCodedTiles, !few ? kTileTokens : p.rows > kFewRows ? kSomeTokens : kFewTokens, 0};
}

}  // namespace mojo
