#include "cpu/moe_run.h"

#include <algorithm>

#include "cpu/backends.h"
#include "cpu/moe_plan.h"

namespace mojo {
namespace {

// Outputs of a matrix that one task computes. Columns are read in longer pieces of memory.
constexpr size_t kRowBlock = 64;
constexpr size_t kColumnBlock = 256;

// Gate and up of the tokens of a task, before they are activated: tokens times outputs.
constexpr size_t kProducts = 12288;

// Multiplications that are worth waking another thread for.
constexpr size_t kFewMultiplications = size_t{1} << 18;

size_t SizeOf(ElementType type) { return type == kFloat32 ? 4 : 2; }

const char* At(const void* data, size_t element, ElementType type) {
  return static_cast<const char*>(data) + element * SizeOf(type);
}

// Padded is the distance of rows of so many numbers in scratch memory: an odd number of cache lines. At a power of
// two, equal columns of all rows would share the few places of the cache that are theirs.
size_t Padded(size_t width) { return ((width + 15) / 16 | 1) * 16; }

// Go is what the tasks of a number of tokens share.
struct Go {
  const MoEArgs& args;
  ProductFn product;
  GateFn gate;
  WeightedSumFn weighted_sum;
  size_t first_token, tokens;
  float* x;                    // [tokens, hidden], rows Padded
  float* weights;              // per choice
  const size_t* choice;        // per place
  const ExpertRun* runs;
  float* activated;            // [place, inner], rows Padded
  float* outputs;              // [place, hidden], rows Padded
  const float** rows;          // per choice, its row of outputs
  size_t gate_up_blocks, gate_up_block;
  size_t down_blocks, down_block;
};

// Widened gives n numbers as float32, as they are or in room.
const float* Widened(ElementType type, const void* from, float* room, size_t n) {
  if (type == kFloat32) return static_cast<const float*>(from);
  TheKernels()->to_float32(type, from, room, n);
  return room;
}

void AddTo(float* y, const float* bias, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] += bias[i];
}

// Matrix is the weights of one expert.
struct Matrix {
  const ExpertWeights& weights;
  ElementType type;
  size_t expert, outputs, inputs;
};

// Multiply computes the outputs first + n * step of the matrix, for the n below width, from args.x to args.y.
void Multiply(ProductFn product, const Matrix& m, size_t first, size_t step, size_t width, ProductArgs args) {
  const size_t at = m.expert * m.outputs * m.inputs + (m.weights.by_rows ? first * m.inputs : first);
  args.w = At(m.weights.data, at, m.type);
  args.by_rows = m.weights.by_rows;
  args.stride = m.weights.by_rows ? step * m.inputs : m.outputs;
  args.depth = m.inputs;
  args.width = width;
  if (m.inputs > 0) return product(args);
  for (size_t t = 0; t < args.tokens; ++t) std::fill_n(args.y + t * args.y_stride, width, 0.0f);
}

// Activate computes one run's activations of one block of the inner dimension.
void Activate(void* state, size_t task) {
  const Go& go = *static_cast<const Go*>(state);
  const MoEArgs& a = go.args;
  const ExpertRun& run = go.runs[task / go.gate_up_blocks];
  const size_t first = task % go.gate_up_blocks * go.gate_up_block;
  const size_t n = std::min(go.gate_up_block, a.inner - first);
  const size_t parts = a.gated ? 2 : 1;
  const Matrix matrix{a.gate_up, a.expert_type, run.expert, parts * a.inner, a.hidden};
  // Interleaved columns lie side by side, and so do their products; all else is gate, then up.
  const bool by_turns = a.gated && a.interleaved && !a.gate_up.by_rows;
  float products[kProducts];
  float gate[kColumnBlock], up[kColumnBlock], bias[2][kColumnBlock];
  std::fill(up, up + n, 1.0f);
  if (a.gate_up.bias != nullptr) {
    for (size_t i = 0; i < parts * n; ++i) {
      // One at a time: they may lie by turns.
      const size_t part = i / n, output = first + i % n;
      const size_t at = a.gated && a.interleaved ? 2 * output + part : part * a.inner + output;
      TheKernels()->to_float32(a.expert_type,
                               At(a.gate_up.bias, run.expert * matrix.outputs + at, a.expert_type),
                               &bias[part][i % n], 1);
    }
  }
  const float* x[kMostInRun];
  const size_t most = kProducts / (parts * go.gate_up_block);
  for (size_t done = 0; done < run.count; done += most) {
    const size_t tokens = std::min(most, run.count - done), place = run.first + done;
    for (size_t m = 0; m < tokens; ++m) x[m] = go.x + go.choice[place + m] / a.top_k * Padded(a.hidden);
    ProductArgs p{};
    p.x = x;
    p.tokens = tokens;
    p.y = products;
    p.y_stride = parts * n;
    if (by_turns) {
      Multiply(go.product, matrix, 2 * first, 1, 2 * n, p);
    } else if (a.gated) {
      Multiply(go.product, matrix, a.interleaved ? 2 * first : first, a.interleaved ? 2 : 1, n, p);
      p.y += n;
      Multiply(go.product, matrix, a.interleaved ? 2 * first + 1 : a.inner + first, a.interleaved ? 2 : 1, n, p);
    } else {
      Multiply(go.product, matrix, first, 1, n, p);
    }
    for (size_t m = 0; m < tokens; ++m) {
      float* y = products + m * parts * n;
      float* of_gate = y;
      float* of_up = a.gated ? y + n : up;
      if (by_turns) {
        for (size_t i = 0; i < n; ++i) gate[i] = y[2 * i], up[i] = y[2 * i + 1];
        of_gate = gate;
        of_up = up;
      }
      if (a.gate_up.bias != nullptr) {
        AddTo(of_gate, bias[0], n);
        if (a.gated) AddTo(of_up, bias[1], n);
      }
      const GateArgs g{of_gate, of_up, go.activated + (place + m) * Padded(a.inner) + first, a.alpha, a.limit, a.up_offset};
      go.gate(g, 0, n);
    }
  }
}

// Project computes one run's outputs of one block of the hidden dimension.
void Project(void* state, size_t task) {
  const Go& go = *static_cast<const Go*>(state);
  const MoEArgs& a = go.args;
  const ExpertRun& run = go.runs[task / go.down_blocks];
  const size_t first = task % go.down_blocks * go.down_block;
  const size_t n = std::min(go.down_block, a.hidden - first);
  const float* x[kMostInRun];
  for (size_t m = 0; m < run.count; ++m) x[m] = go.activated + (run.first + m) * Padded(a.inner);
  ProductArgs p{};
  p.x = x;
  p.tokens = run.count;
  p.y_stride = Padded(a.hidden);
  p.y = go.outputs + run.first * p.y_stride + first;
  Multiply(go.product, {a.down, a.expert_type, run.expert, a.hidden, a.inner}, first, 1, n, p);
  if (a.down.bias == nullptr) return;
  float room[kColumnBlock];
  const float* bias =
      Widened(a.expert_type, At(a.down.bias, run.expert * a.hidden + first, a.expert_type), room, n);
  for (size_t m = 0; m < run.count; ++m) AddTo(p.y + m * p.y_stride, bias, n);
}

// Combine writes y of the tokens from begin to end - 1.
void Combine(const Go& go, size_t begin, size_t end) {
  const MoEArgs& a = go.args;
  for (size_t t = begin; t < end; ++t) {
    char* y = static_cast<char*>(a.y) + (go.first_token + t) * a.hidden * SizeOf(a.x_type);
    go.weighted_sum({go.rows + t * a.top_k, go.weights + t * a.top_k, a.top_k, a.hidden, y});
  }
}

// Widen gives the tokens from begin to end - 1 as float32.
void Widen(const Go& go, size_t begin, size_t end) {
  const MoEArgs& a = go.args;
  for (size_t t = begin; t < end; ++t) {
    TheKernels()->to_float32(a.x_type, At(a.x, (go.first_token + t) * a.hidden, a.x_type),
                             go.x + t * Padded(a.hidden), a.hidden);
  }
}

// Blocks is how many blocks cover so many outputs.
size_t Blocks(size_t outputs, size_t block) { return (outputs + block - 1) / block; }

// Room is scratch memory as it is divided up: first counted, then handed out.
struct Room {
  char* memory = nullptr;
  size_t used = 0;

  template <class T>
  T* Take(size_t count) {
    T* taken = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + used);
    used += (count * sizeof(T) + 63) / 64 * 64;
    return taken;
  }
};

// Plan is where everything lies in the scratch memory.
struct Plan {
  float *x, *weights, *activated, *outputs;
  const float** rows;
  size_t *starts, *choice, *place;
  ExpertRun* runs;

  Plan(const MoEArgs& a, size_t tokens, Room* room) {
    const size_t choices = tokens * a.top_k;
    const size_t inner = choices > 0 ? Padded(a.inner) : 0, experts = choices > 0 ? a.experts : 0;
    x = room->Take<float>(tokens * Padded(a.hidden));
    weights = room->Take<float>(choices);
    activated = room->Take<float>(choices * inner);
    outputs = room->Take<float>(choices * Padded(a.hidden));
    rows = room->Take<const float*>(choices);
    starts = room->Take<size_t>(experts + 1);
    choice = room->Take<size_t>(choices);
    place = room->Take<size_t>(choices);
    runs = room->Take<ExpertRun>(MostRuns(choices, experts));
  }
};

// Work computes the tokens of one go.
OrtStatus* Work(const Api& api, OrtKernelContext* context, Go* go, const Plan& plan) {
  const MoEArgs& a = go->args;
  const size_t choices = go->tokens * a.top_k, first = go->first_token;
  if (choices == 0) return RunInTasks(api, context, Combine, *go, go->tokens, a.hidden);
  const size_t runs = PlanRuns(a.ids + first * a.top_k, choices, a.experts, plan.starts, plan.choice,
                               plan.place, plan.runs);
  if (OrtStatus* s = RunInTasks(api, context, Widen, *go, go->tokens, a.hidden)) return s;
  TheKernels()->to_float32(a.weights_type, At(a.weights, first * a.top_k, a.weights_type), plan.weights, choices);
  for (size_t c = 0; c < choices; ++c) plan.rows[c] = plan.outputs + plan.place[c] * Padded(a.hidden);
  const auto run = [&](void (*task)(void*, size_t), size_t tasks) -> OrtStatus* {
    if (choices * a.hidden * a.inner >= kFewMultiplications) return ParallelFor(api, context, task, tasks, go);
    for (size_t i = 0; i < tasks; ++i) task(go, i);
    return nullptr;
  };
  if (OrtStatus* s = run(Activate, runs * go->gate_up_blocks)) return s;
  if (OrtStatus* s = run(Project, runs * go->down_blocks)) return s;
  return RunInTasks(api, context, Combine, *go, go->tokens, a.top_k * a.hidden);
}

}  // namespace

OrtStatus* RunMoE(const Api& api, OrtKernelContext* context, const OrtMemoryInfo* cpu_memory,
                  const MoEArgs& args) {
  const MoEArgs& a = args;
  if (a.tokens == 0 || a.hidden == 0) return nullptr;
  // What one token takes. Where there is a choice, hidden and top_k are dimensions of tensors that are in
  // memory; inner and experts need not be, if the other one is 0.
  constexpr size_t kMost = PTRDIFF_MAX / 16;
  size_t token_bytes = (Padded(a.hidden) + 16) * sizeof(float);
  if (a.top_k > 0) {
    size_t choice_bytes;
    if (a.inner > kMost || a.experts > kMost ||
        __builtin_mul_overflow(Padded(a.hidden) + Padded(a.inner) + 16, sizeof(float), &choice_bytes) ||
        __builtin_mul_overflow(choice_bytes, a.top_k, &choice_bytes) || choice_bytes > kMost) {
      return OutOfMemory(api);
    }
    token_bytes += choice_bytes;
  }
  const size_t most = std::max<size_t>(1, std::min(a.tokens, a.scratch_bytes / token_bytes));
  const size_t block = a.gate_up.by_rows ? kRowBlock / 2 : kColumnBlock / 2;
  const size_t down_block = a.down.by_rows ? kRowBlock : kColumnBlock;
  Room count;
  Plan(a, most, &count);
  OrtAllocator* allocator = nullptr;
  if (OrtStatus* s = api.ort->KernelContext_GetAllocator(context, cpu_memory, &allocator)) return s;
  void* memory = nullptr;
  OrtStatus* status = api.ort->AllocatorAlloc(allocator, count.used, &memory);
  if (status == nullptr && memory == nullptr) status = OutOfMemory(api);
  if (status == nullptr) {
    Room room{static_cast<char*>(memory)};
    const Plan plan(a, most, &room);
    const KernelTable& kernels = *TheKernels();
    Go go{a, kernels.product(a.expert_type), kernels.gate(kFloat32, a.activation), kernels.weighted_sum(a.x_type),
          0, 0, plan.x, plan.weights, plan.choice, plan.runs, plan.activated, plan.outputs, plan.rows,
          Blocks(a.inner, block), block, Blocks(a.hidden, down_block), down_block};
    for (; go.first_token < a.tokens && status == nullptr; go.first_token += go.tokens) {
      go.tokens = std::min(most, a.tokens - go.first_token);
      status = Work(api, context, &go, plan);
    }
  }
  if (memory != nullptr) {
    OrtStatus* freed = api.ort->AllocatorFree(allocator, memory);
    if (status == nullptr) {
      status = freed;
    } else if (freed != nullptr) {
      api.ort->ReleaseStatus(freed);
    }
  }
  api.ort->ReleaseAllocator(allocator);
  return status;
}

}  // namespace mojo
