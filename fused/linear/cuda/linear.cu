// Linear: a product of quantized weights. Embedding: rows of such weights.
#include "linear/cuda/quantized_product.cuh"

namespace {

mojo::QuantizedProduct ToProduct(const MojoLinearArgs& a) {
  mojo::QuantizedProduct p = {};
  p.kind = mojo::kQuantizedLinear;
  p.weights = a.weights;
  p.x = a.x;
  p.type = p.y_type = a.type;
  p.rounding = a.rounding;
  p.rows = a.rows;
  p.y = a.y;
  p.bias = a.bias;
  return p;
}

}  // namespace

// x may not be known yet, and its alignment matters: enough for either kernel.
size_t MojoLinearScratch(const MojoLinearArgs* args) {
  mojo::Room<256> room, hopper;
  mojo::QuantizedProduct p = ToProduct(*args);
  p.x = nullptr;
  if (mojo::HopperTakes(p)) mojo::DivideOperands(p, &hopper);
  if (p.weights.code != mojo::Code::kE4m3) mojo::DividePrepared(p, false, &room);
  return room.used > hopper.used ? room.used : hopper.used;
}

cudaError_t MojoCudaLinear(const MojoLinearArgs* args, cudaStream_t stream) {
  if (args->rows == 0) return cudaSuccess;
  if (!mojo::AreAligned(args->weights)) return cudaErrorMisalignedAddress;
  const mojo::QuantizedProduct p = ToProduct(*args);
  mojo::Room<256> room{static_cast<char*>(args->scratch)};
  const mojo::QuantizedConfig config = mojo::ConfigOfLinear(p);
  if (config.way == mojo::kQuantizedDirect) return mojo::QuantizedDirect(p, stream);
  if (config.way == mojo::kQuantizedHopper) {
    const mojo::Operands x = mojo::DivideOperands(p, &room);
    if (cudaError_t e = mojo::PrepareOperands(p, x, false, stream)) return e;
    return mojo::QuantizedHopper(p, config, x, {}, stream);
  }
  if (p.weights.code == mojo::Code::kE4m3) return cudaErrorNotSupported;
  if (config.way == mojo::kQuantizedRows) return mojo::QuantizedRows(p, config.tokens, stream);
  return mojo::QuantizedTiles(p, mojo::DividePrepared(p, mojo::Aligned(p.x, 16), &room), stream);
}

namespace mojo {
namespace {

// DecodeRow: each column by a thread, with the roundings of the definition. Registers: 32.
template <Code kCode>
__global__ __launch_bounds__(128) void DecodeRow(const __grid_constant__ MojoEmbeddingArgs a,
                                                 const __grid_constant__ QuantizedForm f) {
  WaitForPrevious();
  LetNextStart();
  const int64_t given = a.ids[blockIdx.x], n = static_cast<int64_t>(a.weights.n), id = given < 0 ? given + n : given;
  float* const y = a.y + blockIdx.x * a.weights.k;
  if (id < 0 || id >= n) {
    for (size_t i = threadIdx.x; i < a.weights.k; i += blockDim.x) y[i] = __uint_as_float(0x7fc00000u);
    return;
  }
  const size_t panel = static_cast<size_t>(id) / kPanelRows;
  const int row = static_cast<int>(id % kPanelRows);
  for (int i = threadIdx.x; i < f.units * kBlockColumns; i += blockDim.x) {
    const int block = i / kBlockColumns, c = i % kBlockColumns, half = f.fine ? c / 16 : 0;
    const auto factor = [&](const char* of, const char* super) {
      const size_t at = f.FactorsAt(panel, block, 0) + (half * kPanelRows + row) * FactorBytes(f.scales);
      switch (f.scales) {
        case kMojoPanelScales: return reinterpret_cast<const float*>(of)[panel * (f.units / 4) + block / 4];
        case kMojoFloatScales: return *reinterpret_cast<const float*>(of + at);
        case kMojoHalfScales: return ToFloat(*reinterpret_cast<const Half*>(of + at));
        case kMojoExponentScales: return OfExponent(static_cast<uint8_t>(of[at]));
        default:
          return static_cast<float>(static_cast<int8_t>(of[at])) *
                 ToFloat(*reinterpret_cast<const Half*>(super + f.SuperAt(panel, block, row)));
      }
    };
    const uint8_t* const codes =
        reinterpret_cast<const uint8_t*>(f.codes) + (panel * f.units + block) * f.bytes + row * 4 + c % 4;
    float value;
    if constexpr (kCode == Code::kE4m3) {
      __nv_fp8_e4m3 number;
      number.__x = codes[c / 4 * 64];
      value = static_cast<float>(number);
    } else if constexpr (kCode == Code::kInt8) {
      value = static_cast<float>(codes[c / 4 * 64]) - static_cast<float>(a.weights.zero);
    } else {
      const uint32_t byte = codes[c % 16 / 4 * 64], code = c < 16 ? byte & 15 : byte >> 4;
      if constexpr (kCode == Code::kInt4) {
        value = static_cast<float>(code) - static_cast<float>(a.weights.zero);
      } else {
        value = NumberOfE2M1(code);
      }
    }
    float v = __fmul_rn(factor(f.scale, f.super_scale), value);
    if (f.minus != nullptr) v = __fadd_rn(v, factor(f.minus, f.super_minus));
    y[i] = v;
  }
}

}  // namespace
}  // namespace mojo

cudaError_t MojoCudaEmbedding(const MojoEmbeddingArgs* args, cudaStream_t stream) {
  const MojoEmbeddingArgs& a = *args;
  if (a.count == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(a.count);
  using namespace mojo;
  switch (a.weights.code) {
    case mojo::Code::kInt4: return Launch(DecodeRow<mojo::Code::kInt4>, grid, 128, 0, stream, a, ToForm(a.weights));
    case mojo::Code::kInt8: return Launch(DecodeRow<mojo::Code::kInt8>, grid, 128, 0, stream, a, ToForm(a.weights));
    case mojo::Code::kE4m3: return Launch(DecodeRow<mojo::Code::kE4m3>, grid, 128, 0, stream, a, ToForm(a.weights));
    default: return Launch(DecodeRow<mojo::Code::kE2m1>, grid, 128, 0, stream, a, ToForm(a.weights));
  }
}
