// QMoE: experts whose weights stay quantized.
//
// Launches: the plan, two products, the sum of each token's choices. A few choices of MXFP4 and e4m3 need no plan
// (quantized_direct.cu). More choices use wgmma on compute capability 9.0 (quantized_wgmma.cu), with one more launch
// that prepares operands during the plan. Otherwise few choices of an expert are multiplied as they are read
// (quantized_rows.cuh), and more in tiles. quantized_product.cu chooses. Numbers between the products are float32, as
// in the definition, or bfloat16 if x is and activations are not rounded.
//
// The floor is one read of the codes and factors of each chosen expert: 4.25 bits a weight of MXFP4.
#include "linear/cuda/quantized_product.cuh"

namespace mojo {
namespace {

constexpr int kThreads = 256;
// Larger wgmma outputs of choices are rounded to bfloat16 if x is: they would not stay in L2.
constexpr size_t kWideBytes = size_t{40} << 20;

// Way is a call's choice of kernels and the layout of its scratch memory.
struct Way {
  QuantizedConfig config;
  MoEPlan plan;
  QuantizedProduct first, second;
  Prepared x, activated;
  Operands operands[2];  // kQuantizedHopper: the products' inputs
};

Way Divide(const MojoQMoEArgs& a, Room<256>* room) {
  Way w = {};
  const MojoMoEArgs& m = a.moe;
  const size_t choices = m.tokens * m.top_k;
  const bool wide = m.x_type != kMojoBFloat16 || a.rounding != Activations::kFloat;
  QuantizedProduct p = {};
  p.moe = m;
  p.rounding = a.rounding;
  w.first = w.second = p;
  w.first.kind = kQuantizedGateUp;
  w.first.weights = a.gate_up;
  w.first.x = m.x;
  w.first.type = m.x_type;
  w.first.rows = m.tokens;
  w.first.y_type = wide ? kMojoFloat32 : kMojoBFloat16;
  w.first.bias = m.gate_up_bias;
  w.second.kind = kQuantizedOutputs;
  w.second.weights = a.down;
  w.second.type = w.first.y_type;
  w.second.rows = choices;
  w.second.y_type = kMojoFloat32;
  w.second.bias = m.down_bias;
  w.config = ConfigOfExperts(w.first, w.second);
  if (w.config.way == kQuantizedDirect) {
    w.first.y = room->Take<float>(choices * m.inner);
    w.second.x = w.first.y;
    w.second.y = room->Take<float>(choices * m.hidden);
    return w;
  }
  const bool hopper = w.config.way == kQuantizedHopper;
  w.plan.choice = room->Take<int>(choices);
  w.plan.weight = room->Take<float>(choices);
  w.plan.tiles = room->Take<MoETile>(MostTiles(choices, m.experts, w.config.tokens));
  w.plan.tile_count = room->Take<int>(1);
  w.plan.begun = room->Take<int>(2);
  w.first.plan = w.second.plan = w.plan;
  if (hopper && m.x_type == kMojoBFloat16 && choices * m.hidden * 4 > kWideBytes) w.second.y_type = kMojoBFloat16;
  w.second.y = w.second.y_type == kMojoFloat32 ? static_cast<void*>(room->Take<float>(choices * m.hidden))
                                               : room->Take<uint16_t>(choices * m.hidden);
  if (hopper) {
    w.operands[0] = DivideOperands(w.first, room);
    w.operands[1] = DivideOperands(w.second, room);
    return w;
  }
  w.first.y = room->Take<float>(choices * m.inner);
  w.second.x = w.first.y;
  if (w.config.way == kQuantizedTiles) {
    w.x = DividePrepared(w.first, Aligned(m.x, 16), room);
    w.activated = DividePrepared(w.second, true, room);
  }
  return w;
}

// SumChoices adds up the outputs of each token's choices in their order.
template <class T>
__global__ __launch_bounds__(kThreads) void SumChoices(const __grid_constant__ MojoMoEArgs a, const void* outputs,
                                                       int wide) {
  WaitForPrevious();
  LetNextStart();
  const size_t n = (static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x) * 4, token = n / a.hidden,
               h = n % a.hidden;
  if (token >= a.tokens) return;
  float4 sum = make_float4(0, 0, 0, 0);
  const size_t top_k = outputs == nullptr ? 0 : a.top_k;
  // Loads stale outputs of invalid choices too, so that no load waits for an id.
#pragma unroll 4
  for (size_t j = 0; j < top_k; ++j) {
    const size_t choice = token * a.top_k + j;
    const bool is = ChosenExpert(a, choice) >= 0;
    const size_t at = choice * a.hidden + h;
    float v[4];
    if (wide) {
      ToFloats(LoadPack<4>(static_cast<const float*>(outputs) + at), v);
    } else {
      ToFloats(LoadPack<4>(static_cast<const BFloat*>(outputs) + at), v);
    }
    sum.x += is ? v[0] : 0, sum.y += is ? v[1] : 0, sum.z += is ? v[2] : 0, sum.w += is ? v[3] : 0;
  }
  T* const y = static_cast<T*>(a.y) + n;
  y[0] = FromFloat<T>(sum.x);
  y[1] = FromFloat<T>(sum.y);
  y[2] = FromFloat<T>(sum.z);
  y[3] = FromFloat<T>(sum.w);
}

// Multiply launches both products.
cudaError_t Multiply(const Way& w, cudaStream_t stream) {
  cudaError_t e;
  switch (w.config.way) {
    case kQuantizedDirect:
      if ((e = QuantizedDirect(w.first, stream))) return e;
      return QuantizedDirect(w.second, stream);
    case kQuantizedHopper:
      if ((e = QuantizedHopper(w.first, w.config, w.operands[0], w.operands[1], stream))) return e;
      return QuantizedHopper(w.second, w.config, w.operands[1], {}, stream);
    case kQuantizedRows:
      if ((e = QuantizedRows(w.first, w.config.tokens, stream))) return e;
      return QuantizedRows(w.second, w.config.tokens, stream);
    default:
      if ((e = QuantizedTiles(w.first, w.x, stream))) return e;
      return QuantizedTiles(w.second, w.activated, stream);
  }
}

}  // namespace
}  // namespace mojo

int MojoQMoETakes(const MojoQMoEArgs* args) {
  using namespace mojo;
  const MojoMoEConfig& c = args->moe.config;
  if (c.kernel == kMojoAnyKernel) return c.tile == 0 && c.split == 0;
  if (args->moe.experts == 0) return 0;
  Room<256> room;
  const Way w = Divide(*args, &room);
  if (c.kernel == kMojoFew) return w.config.way == kQuantizedDirect && c.tile == 0 && c.split == 0;
  if (c.kernel == kMojoWgmma)
    return w.config.way == kQuantizedHopper && HopperHas(w.first, c.tile, c.split) &&
           HopperHas(w.second, c.tile, c.split);
  const bool has = c.tile == kTileTokens || (c.tile == kFewTokens && Aligned(args->moe.x, 16));
  return has && c.split == 0 && args->gate_up.code != mojo::Code::kE4m3 && args->down.code != mojo::Code::kE4m3;
}

// x may not be known yet, and its alignment matters: enough for any kernel.
size_t MojoQMoEScratch(const MojoQMoEArgs* args) {
  size_t most = 0;
  for (const uintptr_t x : {uintptr_t{0}, uintptr_t{1}}) {
    MojoQMoEArgs a = *args;
    a.moe.x = reinterpret_cast<const void*>(x);
    if (a.moe.experts == 0) return 0;
    mojo::Room<256> room;
    mojo::Divide(a, &room);
    if (room.used > most) most = room.used;
  }
  return most;
}

cudaError_t MojoCudaQMoE(const MojoQMoEArgs* args, cudaStream_t stream) {
  using namespace mojo;
  const MojoMoEArgs& m = args->moe;
  if (m.tokens == 0 || m.hidden == 0) return cudaSuccess;
  if (m.experts > kMostPlannedExperts) return cudaErrorInvalidValue;
  if (!AreAligned(args->gate_up) || !AreAligned(args->down)) return cudaErrorMisalignedAddress;
  if (args->rounding == mojo::Activations::kFp8 && !MojoCudaMultipliesE4M3(m.packing)) return cudaErrorNotSupported;
  const void* outputs = nullptr;
  bool wide = true;
  if (m.experts > 0 && m.top_k > 0) {
    Room<256> room{static_cast<char*>(m.scratch)};
    const Way w = Divide(*args, &room);
    if (w.config.way != kQuantizedDirect) {
      if (cudaError_t e = PlanMoE(m, w.config.tokens, w.plan, stream)) return e;
    }
    if (w.config.way == kQuantizedHopper) {
      if (cudaError_t e = PrepareOperands(w.first, w.operands[0], true, stream)) return e;
    }
    if (cudaError_t e = Multiply(w, stream)) return e;
    outputs = w.second.y;
    wide = w.second.y_type == kMojoFloat32;
  }
  const auto blocks = static_cast<unsigned>(DivideUp(m.tokens * (m.hidden / 4), kThreads));
  return OfType(m.x_type,
                [&](auto t) { return Launch(SumChoices<decltype(t)>, blocks, kThreads, 0, stream, m, outputs, wide); });
}
