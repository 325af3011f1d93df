// Attention on Hopper's tensor cores against its definition in double. Exits 1 on a failure.
// `make cuda-programs` builds it.
#include <memory>
#include <string>

#include "attention/cuda/attention.cuh"
#include "cuda/tests/host.h"

namespace {

// Form is one call. A tensor of heads is [batch, heads, rows, width] or, with by_row, [batch, rows, heads, width].
struct Form {
  MojoType type = kMojoBFloat16;
  size_t batch = 1, key_heads = 1, shared = 1, queries = 64, added = 64, past = 0, spare = 0, width = 64,
         value_width = 64, window = 0;
  bool causal = true, cyclic = false, on_device = false, one_length = false, valid = false, sink = false,
       by_row = false, gaps = false, mean = false;
  float scale = 0.125f, softcap = 0, spread = 1;

  std::string Text() const {
    char text[300];
    snprintf(text, sizeof text,
             "%s %zux(%zux%zu)x%zu of %zu+%zu keys (room %zu), %zu/%zu:%s%s%s%s%s%s%s mean %d window %zu, "
             "softcap %g, scale %g",
             TypeName(type), batch, key_heads, shared, queries, past, added, spare, width, value_width,
             causal ? " causal" : "", cyclic ? " cyclic" : "", on_device ? one_length ? " length" : " lengths" : "",
             valid ? " key_valid" : "", sink ? " sink" : "", by_row ? " bsnh" : "", gaps ? " gaps" : "", mean, window,
             softcap, scale);
    return text;
  }
};

template <class T>
__device__ double Value(const void* p, size_t at) {
  return mojo::ToFloat(static_cast<const T*>(p)[at]);
}

// Reference is a block for each query: its definition, in double.
template <class T>
__global__ void Reference(MojoAttentionArgs a, double* y) {
  extern __shared__ double scores[];
  __shared__ double shared[2];
  const size_t i = blockIdx.x, h = blockIdx.y, b = blockIdx.z, group = a.heads / a.key_heads;
  const size_t g = a.cyclic ? h % a.key_heads : h / group;
  const bool kept = a.past > 0 || a.past_lengths != nullptr;
  const int64_t past = a.past_lengths != nullptr ? a.past_lengths[a.one_length ? 0 : b] : static_cast<int64_t>(a.past);
  const int64_t length = past + static_cast<int64_t>(a.added);
  const auto key_at = [&](size_t j, size_t width, const mojo::HeadSteps& steps) {
    return kept ? ((b * a.key_heads + g) * a.room + j) * width : b * steps.batch + g * steps.head + j * steps.row;
  };
  for (int64_t j = threadIdx.x; j < length; j += blockDim.x) {
    double s = 0;
    for (size_t d = 0; d < a.width; ++d) {
      s += Value<T>(a.q, b * a.q_steps.batch + h * a.q_steps.head + i * a.q_steps.row + d) *
           Value<T>(kept ? a.present_key : a.k, key_at(j, a.width, a.k_steps) + d);
    }
    s *= a.scale;
    if (a.softcap > 0) s = a.softcap * tanh(s / a.softcap);
    const int64_t stands = static_cast<int64_t>(i) + length - static_cast<int64_t>(a.queries);
    const bool seen = (!a.causal || j <= stands) && (a.window == 0 || j > stands - static_cast<int64_t>(a.window)) &&
                      (a.key_valid == nullptr || a.key_valid[b * a.valid_step + j] != 0);
    scores[j] = seen ? s : -INFINITY;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double most = a.sink != nullptr ? a.sink[h] : -INFINITY, sum = 0;
    for (int64_t j = 0; j < length; ++j) most = fmax(most, scores[j]);
    if (a.sink != nullptr) sum = exp(a.sink[h] - most);
    for (int64_t j = 0; j < length; ++j) sum += scores[j] == -INFINITY ? 0 : exp(scores[j] - most);
    if (most == -INFINITY) {
      for (int64_t j = 0; j < length && a.empty_mean; ++j) scores[j] = 0;
      most = 0;
      sum = static_cast<double>(length);
    }
    shared[0] = most;
    shared[1] = sum;
  }
  __syncthreads();
  for (size_t d = threadIdx.x; d < a.value_width; d += blockDim.x) {
    double sum = 0;
    for (int64_t j = 0; j < length; ++j) {
      if (scores[j] == -INFINITY) continue;
      sum += exp(scores[j] - shared[0]) / shared[1] *
             Value<T>(kept ? a.present_value : a.v, key_at(j, a.value_width, a.v_steps) + d);
    }
    y[((b * a.heads + h) * a.queries + i) * a.value_width + d] = sum;
  }
}

// Heads is a tensor of heads and its steps.
struct Heads {
  mojo::HeadSteps steps;
  Numbers numbers;
  Heads(const Form& f, size_t heads, size_t rows, size_t width)
      : steps(Steps(f, heads, rows, width)), numbers(f.type, f.batch * steps.batch + 8) {}
  static mojo::HeadSteps Steps(const Form& f, size_t heads, size_t rows, size_t width) {
    const size_t gap = f.gaps ? 24 : 0;
    if (f.by_row) return {rows * (heads * width + gap), width, heads * width + gap};
    return {heads * rows * (width + gap), rows * (width + gap), width + gap};
  }
};

bool Run(const Form& f, Random* random) {
  const size_t heads = f.key_heads * f.shared, length = f.past + f.added, room = length + (f.on_device ? f.spare : 0);
  Heads q(f, heads, f.queries, f.width), k(f, f.key_heads, f.added, f.width), v(f, f.key_heads, f.added, f.value_width),
      y(f, heads, f.queries, f.value_width);
  Numbers keys(f.type, f.batch * f.key_heads * room * f.width),
      values(f.type, f.batch * f.key_heads * room * f.value_width), sink(kMojoFloat32, heads);
  Ids lengths(f.batch), valid(f.batch * (room + 3));
  for (Numbers* n : {&q.numbers, &k.numbers, &v.numbers, &keys, &values, &sink}) n->Fill(random, f.spread);
  if (f.sink && heads > 2) sink.Set(1, -INFINITY), sink.Set(2, 9);
  for (size_t b = 0; b < f.batch; ++b) {
    lengths.host[b] = static_cast<int64_t>(f.one_length || b == 0 ? f.past : random->Below(f.past + 1));
    // Unfilled rows may hold anything.
    const size_t filled = (f.one_length ? f.past : lengths.host[b]) + f.added;
    for (size_t h = 0; h < f.key_heads; ++h) {
      for (size_t j = f.on_device ? filled : length; j < room; ++j) {
        for (size_t d = 0; d < f.width; ++d) keys.Set(((b * f.key_heads + h) * room + j) * f.width + d, NAN);
        for (size_t d = 0; d < f.value_width; ++d) {
          values.Set(((b * f.key_heads + h) * room + j) * f.value_width + d, NAN);
        }
      }
    }
  }
  const size_t padded = random->Below(length + 1);
  for (size_t i = 0; i < valid.host.size(); ++i) {
    const size_t at = i % (room + 3);
    valid.host[i] = i / (room + 3) % 2 == 0 ? at >= padded
                    : random->Below(3) == 0 ? 0
                                            : int64_t{1} << random->Below(60);
  }
  for (Numbers* n : {&q.numbers, &k.numbers, &v.numbers, &keys, &values, &sink}) n->ToDevice();
  lengths.ToDevice();
  valid.ToDevice();

  MojoAttentionArgs a = {};
  a.q = q.numbers.device(), a.k = k.numbers.device(), a.v = v.numbers.device(), a.y = y.numbers.device();
  a.q_steps = q.steps, a.k_steps = k.steps, a.v_steps = v.steps, a.y_steps = y.steps;
  if (f.past > 0 || f.on_device) {
    a.past_key = a.present_key = keys.device();
    a.past_value = a.present_value = values.device();
  }
  if (f.on_device) a.past_lengths = lengths.device;
  a.one_length = f.one_length;
  if (f.valid) a.key_valid = valid.device;
  a.valid_step = room + 3;
  if (f.sink) a.sink = static_cast<const float*>(sink.device());
  a.batch = f.batch, a.heads = heads, a.key_heads = f.key_heads, a.queries = f.queries, a.added = f.added;
  a.past = f.on_device ? room : f.past, a.room = room, a.width = f.width, a.value_width = f.value_width;
  a.scale = f.scale, a.causal = f.causal, a.window = f.window, a.softcap = f.softcap, a.cyclic = f.cyclic;
  a.empty_mean = f.mean;
  a.type = f.type;

  const size_t count = f.batch * heads * f.queries * f.value_width;
  double* device_want;
  Check(cudaMalloc(&device_want, count * 8), "cudaMalloc");
  const dim3 grid(static_cast<unsigned>(f.queries), static_cast<unsigned>(heads), static_cast<unsigned>(f.batch));
  const auto reference = f.type == kMojoBFloat16 ? Reference<mojo::BFloat> : Reference<mojo::Half>;
  Check(cudaFuncSetAttribute(reference, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10), "shared memory");
  reference<<<grid, 128, length * 8>>>(a, device_want);
  std::vector<double> want(count);
  Check(cudaMemcpy(want.data(), device_want, count * 8, cudaMemcpyDeviceToHost), "reference");
  Check(cudaFree(device_want), "cudaFree");

  if (!mojo::AttentionWgmmaTakes(a)) {
    printf("not taken: %s\n", f.Text().c_str());
    return false;
  }
  Numbers scratch(kMojoFloat32, mojo::AttentionWgmmaScratch(a) / 4);
  a.scratch = scratch.device();
  std::vector<char> first;
  for (int run = 0; run < 2; ++run) {
    y.numbers.Poison();
    Check(mojo::AttentionWgmma(a, nullptr), "AttentionWgmma");
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) printf("%s: %s\n", f.Text().c_str(), cudaGetErrorString(error)), exit(1);
    y.numbers.ToHost();
    if (run == 0) first = y.numbers.bytes();
  }
  double worst = 0, greatest = 0, wrong = 0, right = 0;
  size_t worst_at = 0;
  for (size_t at = 0; at < count; ++at) {
    const size_t d = at % f.value_width, i = at / f.value_width % f.queries, h = at / f.value_width / f.queries % heads,
                 b = at / f.value_width / f.queries / heads;
    const double got = y.numbers.Get(b * y.steps.batch + h * y.steps.head + i * y.steps.row + d);
    double off = fabs(got - want[at]);
    if (!(off <= 1e30)) off = 1e30;
    if (off > worst) worst = off, worst_at = at;
    greatest = fmax(greatest, fabs(want[at]));
    wrong += off * off, right += want[at] * want[at];
  }
  const double unit = Unit(f.type);
  const double relative = right > 0 ? sqrt(wrong / right) : wrong;
  const bool same = first == y.numbers.bytes(), guarded = y.numbers.Guarded() && scratch.Guarded();
  const bool passed = worst <= 2 * unit * greatest + 1e-6 && relative <= unit / 2 && same && guarded;
  if (!passed) {
    printf("FAILED %s\n  worst %g at row %zu column %zu (want %g), greatest %g, relative %g%s%s\n", f.Text().c_str(),
           worst, worst_at / f.value_width, worst_at % f.value_width, want[worst_at], greatest, relative,
           same ? "" : ", another result the second time", guarded ? "" : ", wrote outside of y");
  }
  return passed;
}

Form RandomForm(Random* random) {
  const auto some = [&](size_t one_in) { return random->Below(one_in) == 0; };
  const size_t widths[][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};
  Form f;
  const auto& width = widths[random->Below(4)];
  f.width = width[0], f.value_width = width[1];
  f.type = some(2) ? kMojoBFloat16 : kMojoFloat16;
  f.batch = 1 + random->Below(3);
  f.key_heads = 1 + random->Below(3);
  f.shared = some(5) ? 5 + random->Below(16) : 1 + random->Below(4);
  f.queries = 1 + random->Below(some(2) ? 600 : 150);
  f.added = some(4) ? 1 + random->Below(700) : f.queries;
  if (some(2)) f.past = random->Below(600);
  f.on_device = some(3);
  f.one_length = f.on_device && some(2);
  if (f.on_device) f.spare = random->Below(200);
  f.causal = !some(4);
  if (some(3)) f.window = 1 + random->Below(some(2) ? 40 : 400);
  f.cyclic = some(3);
  f.valid = some(3);
  f.sink = some(3);
  f.mean = some(2);
  f.by_row = some(2);
  f.gaps = some(3);
  f.scale = 1.0f / sqrtf(static_cast<float>(f.width));
  if (some(3)) f.softcap = some(2) ? 50 : 2;
  if (some(4)) f.spread = 4;
  return f;
}

}  // namespace

int main(int argc, char** argv) {
  if (mojo::TheDevice().capability != 90) {
    printf("no Hopper GPU: nothing to test\n");
    return 0;
  }
  const int count = argc > 1 ? atoi(argv[1]) : 200;
  Random random(argc > 2 ? static_cast<uint64_t>(atoi(argv[2])) : 1);
  int failed = 0, all = 0;
  const auto run = [&](const Form& f) { ++all, failed += Run(f, &random) ? 0 : 1; };
  const size_t widths[][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};
  for (const auto& width : widths) {
    for (const MojoType type : {kMojoBFloat16, kMojoFloat16}) {
      Form f;
      f.type = type, f.width = width[0], f.value_width = width[1], f.key_heads = 2, f.shared = 2;
      f.scale = 1.0f / sqrtf(static_cast<float>(f.width));
      for (const size_t queries : {1, 64, 80, 128, 191, 193, 400}) {
        f.queries = f.added = queries;
        for (const bool causal : {false, true}) f.causal = causal, run(f);
      }
    }
  }
  Form many;  // more tiles than blocks, and more heads than L2 is given
  many.batch = 3, many.key_heads = 8, many.shared = 4, many.queries = many.added = 1100,
  many.width = many.value_width = 128;
  many.by_row = true;
  run(many);
  many.batch = 2, many.shared = 2, many.queries = many.added = 100, many.past = 8092;
  run(many);
  for (int i = 0; i < count; ++i) run(RandomForm(&random));
  printf("%d of %d calls are wrong\n", failed, all);
  return failed == 0 ? 0 : 1;
}
