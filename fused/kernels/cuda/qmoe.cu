// QMoE: experts whose weights stay quantised.
//
// Four launches: the plan, two products, the sum of each token's choices. Few choices of an expert are multiplied as
// they are read (coded_rows.cuh), more by tiles. What lies between the products is float32, as the definition has it,
// but bfloat16 where x is and activations are not rounded.
//
// The floor is that of reading the codes and factors of each chosen expert once: 4.25 bits a weight of MXFP4.
#include "cuda/coded_product.cuh"

namespace mojo {
namespace {

constexpr int kThreads = 256;
constexpr size_t kFewChoices = 8;  // of an expert, on average

// Way is how a call goes, and where the parts of its scratch memory lie.
struct Way {
  bool tiles;
  int tile;  // tokens
  MoEPlan plan;
  CodedProduct first, second;
  Prepared x, activated;
};

Way Divide(const MojoQMoEArgs& a, Room<256>* room) {
  Way w = {};
  const MojoMoEArgs& m = a.moe;
  const size_t choices = m.tokens * m.top_k, average = choices / m.experts;
  w.tiles = average > kFewChoices || !Aligned(m.x, 16);
  w.tile = w.tiles ? kTileTokens : kFewTokens;
  w.plan.choice = room->Take<int>(choices);
  w.plan.weight = room->Take<float>(choices);
  w.plan.tiles = room->Take<MoETile>(MostTiles(choices, m.experts, w.tile));
  w.plan.tile_count = room->Take<int>(1);
  w.plan.begun = room->Take<int>(2);
  const bool wide = m.x_type != kMojoBFloat16 || a.rounding != kMojoNotRounded;
  float* const activated = room->Take<float>(choices * m.inner);
  float* const outputs = room->Take<float>(choices * m.hidden);
  CodedProduct p = {};
  p.moe = m;
  p.plan = w.plan;
  p.rounding = a.rounding;
  w.first = w.second = p;
  w.first.kind = kCodedGateUp;
  w.first.weights = a.gate_up;
  w.first.x = m.x;
  w.first.type = m.x_type;
  w.first.rows = m.tokens;
  w.first.y = activated;
  w.first.y_type = wide ? kMojoFloat32 : kMojoBFloat16;
  w.first.bias = m.gate_up_bias;
  w.second.kind = kCodedOutputs;
  w.second.weights = a.down;
  w.second.x = activated;
  w.second.type = w.first.y_type;
  w.second.rows = choices;
  w.second.y = outputs;
  w.second.y_type = kMojoFloat32;
  w.second.bias = m.down_bias;
  if (w.tiles) {
    w.x = DividePrepared(w.first, Aligned(m.x, 16), room);
    w.activated = DividePrepared(w.second, true, room);
  }
  return w;
}

// SumChoices adds up the outputs of each token's choices in their order.
template <class T>
__global__ __launch_bounds__(kThreads) void SumChoices(const __grid_constant__ MojoMoEArgs a, const float* outputs) {
  WaitForPrevious();
  LetNextStart();
  const size_t n = (static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x) * 4, token = n / a.hidden,
               h = n % a.hidden;
  if (token >= a.tokens) return;
  float4 sum = make_float4(0, 0, 0, 0);
  for (size_t j = 0; j < a.top_k; ++j) {
    const size_t choice = token * a.top_k + j;
    if (ChosenExpert(a, choice) < 0) continue;
    const float4 v = *reinterpret_cast<const float4*>(outputs + choice * a.hidden + h);
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  T* const y = static_cast<T*>(a.y) + n;
  y[0] = FromFloat<T>(sum.x);
  y[1] = FromFloat<T>(sum.y);
  y[2] = FromFloat<T>(sum.z);
  y[3] = FromFloat<T>(sum.w);
}

}  // namespace
}  // namespace mojo

// x may not be known yet, and its alignment decides: enough for each way.
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
  const float* outputs = nullptr;
  if (m.experts > 0 && m.top_k > 0) {
    Room<256> room{static_cast<char*>(m.scratch)};
    const Way w = Divide(*args, &room);
    if (cudaError_t e = PlanMoE(m, w.tile, w.plan, stream)) return e;
    if (cudaError_t e = w.tiles ? CodedTiles(w.first, w.x, stream) : CodedRows(w.first, false, stream)) return e;
    if (cudaError_t e = w.tiles ? CodedTiles(w.second, w.activated, stream) : CodedRows(w.second, false, stream))
      return e;
    outputs = static_cast<const float*>(w.second.y);
  }
  const auto kernel = m.x_type == kMojoFloat32   ? SumChoices<float>
                      : m.x_type == kMojoFloat16 ? SumChoices<Half>
                                                 : SumChoices<BFloat>;
  return Launch(kernel, static_cast<unsigned>(DivideUp(m.tokens * (m.hidden / 4), kThreads)), kThreads, 0, stream, m,
                outputs);
}
