// PagedAttention against its definition in double on the host. Exits 1 on a failure. `make cuda-programs` builds it.
// Each case also runs each sequence by itself, with the same bits as the result.
#include <memory>

#include "cuda/tests/tally.h"

namespace {

// Int32s is a tensor of int32 on the host and the device.
struct Int32s {
  std::vector<int32_t> host;
  int32_t* device = nullptr;

  explicit Int32s(std::vector<int32_t> numbers) : host(std::move(numbers)) {
    Check(cudaMalloc(&device, host.size() * 4 + 4), "cudaMalloc");
    Check(cudaMemcpy(device, host.data(), host.size() * 4, cudaMemcpyHostToDevice), "copy to device");
  }
  ~Int32s() { cudaFree(device); }
  Int32s(const Int32s&) = delete;
  Int32s& operator=(const Int32s&) = delete;
};

// Form is a way to use PagedAttention: past and added tokens of each sequence.
struct Form {
  MojoType type = kMojoBFloat16;
  std::vector<int32_t> past, added;
  size_t heads = 4, key_heads = 2, width = 128, value_width = 128, block = 16;
  bool causal = true, cyclic = false, sink = false, slots = false, in_place = true;
  size_t window = 0;
  float softcap = 0;
  bool huge = false;  // numbers whose scores are far over the softcap, and sinks that times log2(e) are infinite
  size_t offset = 0;

  std::string Name() const {
    char text[220];
    snprintf(text, sizeof(text),
             "%s B%zu past %d.. added %d.. H%zu/%zu D%zu/%zu M%zu causal %d cyclic %d sink %d slots %d window %zu cap "
             "%g huge %d offset %zu in place %d",
             TypeName(type), past.size(), past[0], added[0], heads, key_heads, width, value_width, block, causal,
             cyclic, sink, slots, window, softcap, huge, offset, in_place);
    return text;
  }
};

// Test compares y and the pools of a form.
void Test(Tally* tally, const Form& f) {
  const std::string name = f.Name();
  Random random(f.past.size() * 31 + f.added[0] + f.width + f.block);
  const size_t sequences = f.past.size(), group = f.heads / f.key_heads;
  std::vector<int32_t> cumulative = {0};
  size_t longest = 0, used = 0;
  for (size_t b = 0; b < sequences; ++b) {
    cumulative.push_back(cumulative.back() + f.added[b]);
    longest = std::max<size_t>(longest, f.past[b] + f.added[b]);
    used += (f.past[b] + f.added[b] + f.block - 1) / f.block;
  }
  const size_t tokens = cumulative.back(), columns = (longest + f.block - 1) / f.block + 1, blocks = used + 3;
  // Blocks in any order; the rest of the pool and of the table is junk.
  std::vector<int32_t> order(blocks), table(sequences * columns, -1);
  for (size_t i = 0; i < blocks; ++i) order[i] = static_cast<int32_t>(i);
  for (size_t i = blocks; i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  for (size_t b = 0, next = 0; b < sequences; ++b) {
    const size_t own = (f.past[b] + f.added[b] + f.block - 1) / f.block;
    for (size_t i = 0; i < own; ++i) table[b * columns + i] = order[next++];
  }
  const auto place = [&](size_t b, size_t j) { return table[b * columns + j / f.block] * f.block + j % f.block; };
  std::vector<int32_t> slots;
  for (size_t b = 0; b < sequences; ++b) {
    for (int32_t i = 0; i < f.added[b]; ++i) slots.push_back(static_cast<int32_t>(place(b, f.past[b] + i)));
  }
  if (f.slots && tokens > 2) slots[1] = -1;
  const size_t rows = blocks * f.block;
  Numbers q(f.type, tokens * f.heads * f.width, f.offset), k(f.type, tokens * f.key_heads * f.width, f.offset);
  Numbers v(f.type, tokens * f.key_heads * f.value_width, f.offset), sink(kMojoFloat32, f.heads);
  Numbers keys(f.type, rows * f.key_heads * f.width, f.offset),
      values(f.type, rows * f.key_heads * f.value_width, f.offset);
  Numbers keys_out(f.type, keys.count(), f.offset), values_out(f.type, values.count(), f.offset);
  Numbers y(f.type, tokens * f.heads * f.value_width, f.offset);
  const float scale = !f.huge ? 1 : f.type == kMojoFloat16 ? 8e3f : 1e15f;
  for (Numbers* n : {&q, &k, &v, &keys, &values}) n->Fill(&random, scale);
  sink.Fill(&random, 1);
  for (size_t h = 0; h < f.heads && f.huge; h += 2) sink.Set(h, h % 4 == 0 ? 3e38f : -3e38f);
  for (Numbers* n : {&q, &k, &v, &sink}) n->ToDevice();
  std::vector<char> is_read(rows);
  for (size_t b = 0; b < sequences; ++b) {
    for (int32_t j = 0; j < f.past[b] + f.added[b]; ++j) is_read[place(b, j)] = true;
  }
  for (size_t r = 0; r < rows; ++r) {
    for (size_t d = 0; d < f.key_heads * f.width && !is_read[r]; ++d) keys.Set(r * f.key_heads * f.width + d, NAN);
    for (size_t d = 0; d < f.key_heads * f.value_width && !is_read[r]; ++d) {
      values.Set(r * f.key_heads * f.value_width + d, NAN);
    }
  }
  keys.ToDevice(), values.ToDevice();
  MojoPagedAttentionArgs a;
  a.k = k.device(), a.v = v.device(), a.q = q.device(), a.y = y.device();
  a.sink = f.sink ? static_cast<float*>(sink.device()) : nullptr;
  a.key_cache = keys.device(), a.value_cache = values.device();
  a.key_cache_out = f.in_place ? keys.device() : keys_out.device();
  a.value_cache_out = f.in_place ? values.device() : values_out.device();
  const Int32s d_cumulative(cumulative), d_past(f.past), d_table(table), d_slots(slots);
  a.cumulative = d_cumulative.device, a.past = d_past.device, a.table = d_table.device;
  a.slots = f.slots ? d_slots.device : nullptr;
  a.tokens = tokens, a.sequences = sequences, a.heads = f.heads, a.key_heads = f.key_heads;
  a.width = f.width, a.value_width = f.value_width, a.blocks = blocks, a.block = f.block, a.columns = columns;
  a.scale = 1 / sqrtf(static_cast<float>(f.width)), a.causal = f.causal, a.window = f.window, a.softcap = f.softcap;
  a.cyclic = f.cyclic, a.type = f.type;
  const auto call = [&](MojoPagedAttentionArgs args, const std::string& what) {
    Numbers scratch(kMojoFloat32, MojoPagedAttentionScratch(&args) / 4);
    args.scratch = scratch.device();
    Done(tally, name + what, MojoCudaPagedAttention(&args, nullptr));
    if (!scratch.Guarded()) Fail(tally, name + what, "it wrote beside its scratch memory");
  };
  call(a, "");
  // The pool as it must be.
  for (size_t t = 0; t < tokens; ++t) {
    if (slots[t] < 0) continue;
    for (size_t d = 0; d < f.key_heads * f.width; ++d)
      keys.Set(slots[t] * f.key_heads * f.width + d, k.Get(t * f.key_heads * f.width + d));
    for (size_t d = 0; d < f.key_heads * f.value_width; ++d) {
      values.Set(slots[t] * f.key_heads * f.value_width + d, v.Get(t * f.key_heads * f.value_width + d));
    }
  }
  const std::vector<char> want_keys = keys.bytes(), want_values = values.bytes();
  Numbers *const got_keys = f.in_place ? &keys : &keys_out, *const got_values = f.in_place ? &values : &values_out;
  got_keys->ToHost(), got_values->ToHost();
  if (got_keys->bytes() != want_keys || got_values->bytes() != want_values) Fail(tally, name, "a pool is wrong");
  Want want(y.count());
  double most = 0;
  InParallel(sequences * f.heads, [&](size_t begin, size_t end) {
    for (size_t n = begin; n < end; ++n) {
      const size_t b = n / f.heads, h = n % f.heads, g = f.cyclic ? h % f.key_heads : h / group;
      const size_t length = f.past[b] + f.added[b];
      std::vector<double> score(length);
      for (int32_t i = 0; i < f.added[b]; ++i) {
        const size_t at = f.past[b] + i, row = (cumulative[b] + i) * f.heads + h;
        double greatest = f.sink ? sink.Get(h) : -HUGE_VAL, sum = 0;
        for (size_t j = 0; j < length; ++j) {
          score[j] = -HUGE_VAL;
          if ((f.causal && j > at) || (f.window > 0 && j + f.window <= at)) continue;
          double s = 0;
          for (size_t d = 0; d < f.width; ++d) {
            s += double{q.Get(row * f.width + d)} * got_keys->Get((place(b, j) * f.key_heads + g) * f.width + d);
          }
          s *= a.scale;
          score[j] = f.softcap > 0 ? f.softcap * tanh(s / f.softcap) : s;
          greatest = std::max(greatest, score[j]);
        }
        if (f.sink) sum = exp(sink.Get(h) - greatest);
        std::vector<double> total(f.value_width);
        for (size_t j = 0; j < length; ++j) {
          const double w = exp(score[j] - greatest);
          if (w == 0) continue;
          sum += w;
          for (size_t d = 0; d < f.value_width; ++d) {
            total[d] += w * got_values->Get((place(b, j) * f.key_heads + g) * f.value_width + d);
          }
        }
        for (size_t d = 0; d < f.value_width; ++d) {
          want.value[row * f.value_width + d] = sum == 0 ? 0 : static_cast<float>(total[d] / sum);
        }
      }
    }
  });
  for (float w : want.value) most = std::max(most, fabs(static_cast<double>(w)));
  for (float& off : want.off) off = static_cast<float>((f.type == kMojoFloat32 ? 32 : 2) * Unit(f.type) * most);
  Compare(tally, name, &y, f.type, want, 1);
  // The same bits for each sequence by itself.
  const std::vector<char> all = y.bytes();
  a.k = a.v = nullptr, a.key_cache = a.key_cache_out, a.value_cache = a.value_cache_out;
  for (size_t b = 0; b < sequences && sequences > 1; ++b) {
    if (f.added[b] == 0) continue;
    const size_t size = SizeOf(f.type), own = f.heads * f.value_width * size;
    const Int32s one({0, f.added[b]}), past({f.past[b]}),
        row(std::vector<int32_t>(table.begin() + b * columns, table.begin() + (b + 1) * columns)),
        none(std::vector<int32_t>(f.added[b], -1));
    Numbers alone(f.type, f.added[b] * f.heads * f.value_width, f.offset);
    MojoPagedAttentionArgs args = a;
    args.q = static_cast<char*>(q.device()) + cumulative[b] * f.heads * f.width * size;
    args.k = k.device(), args.v = v.device();  // not written: the pool has them
    args.cumulative = one.device, args.past = past.device, args.table = row.device, args.slots = none.device;
    args.tokens = f.added[b], args.sequences = 1, args.y = alone.device();
    call(args, " alone");
    alone.ToHost();
    if (memcmp(alone.bytes().data(), all.data() + cumulative[b] * own, f.added[b] * own) != 0) {
      Fail(tally, name, ("sequence " + std::to_string(b) + " has other bits alone").c_str());
    }
  }
}

}  // namespace

int main() {
  Tally tally{"PagedAttention"};
  const std::vector<int32_t> pasts[] = {{0}, {5}, {255}, {256, 0, 17}, {1000, 3, 64, 511, 0}, {17000, 40}};
  for (const MojoType type : {kMojoBFloat16, kMojoFloat16, kMojoFloat32}) {
    for (const auto& past : pasts) {
      for (const std::vector<int32_t>& kind : {std::vector<int32_t>{1}, {3, 0}, {70, 1}, {130}, {16, 33, 0}}) {
        Form f;
        f.type = type, f.past = past;
        for (size_t b = 0; b < past.size(); ++b) f.added.push_back(kind[b % kind.size()]);
        if (past[0] > 1000 && (kind[0] > 3 || type == kMojoFloat32)) continue;  // slow on the host
        Test(&tally, f);
        f.block = 48, f.heads = 6, f.key_heads = 1, f.sink = true, f.in_place = false;
        Test(&tally, f);
        f.block = 256, f.heads = 8, f.key_heads = 8, f.width = 64, f.value_width = 64, f.window = 50, f.slots = true;
        Test(&tally, f);
        f.heads = 8, f.key_heads = 2, f.width = 72, f.value_width = 40, f.cyclic = true, f.softcap = 5, f.window = 0;
        Test(&tally, f);
        f.width = 192, f.value_width = 200, f.causal = false, f.block = 1;
        Test(&tally, f);
        f.huge = true;
        Test(&tally, f);
        f.width = 20, f.value_width = 12, f.offset = 4;  // no pieces of 16 bytes
        Test(&tally, f);
        f.huge = false;
        Test(&tally, f);
      }
    }
  }
  return Report({&tally});
}
