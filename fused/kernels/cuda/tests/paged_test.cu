// PagedAttention and QPagedAttention against their definitions in double on the host. Exits 1 on a failure.
// `make cuda-programs` builds it. Each case also runs each sequence by itself, with the same bits as the result.
#include <atomic>
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

// Kind is what the pools hold.
enum Kind { kNumbers, kInt8, kE4M3 };

// CodedPool is a pool of codes with its scales, on the host and the device.
struct CodedPool {
  Kind kind;
  size_t blocks, block, heads, width;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  double value[256];              // of each code
  uint8_t* device_codes[2] = {};  // as read, and as written if that is another pool
  float* device_scales[2] = {};

  // A pool of junk: rows that are read get codes and scales later.
  CodedPool(Kind kind, size_t blocks, size_t block, size_t heads, size_t width, Random* random)
      : kind(kind),
        blocks(blocks),
        block(block),
        heads(heads),
        width(width),
        codes(blocks * block * heads * width),
        scales(blocks * heads) {
    for (uint8_t& c : codes) c = static_cast<uint8_t>(random->Below(256));
    for (float& s : scales) s = NAN;
    for (int c = 0; c < 256; ++c) value[c] = Decoded(static_cast<uint8_t>(c));
    for (int i = 0; i < 2; ++i) {
      Check(cudaMalloc(&device_codes[i], codes.size() + 16), "cudaMalloc");
      Check(cudaMalloc(&device_scales[i], scales.size() * 4 + 4), "cudaMalloc");
    }
  }
  ~CodedPool() {
    for (int i = 0; i < 2; ++i) cudaFree(device_codes[i]), cudaFree(device_scales[i]);
  }
  CodedPool(const CodedPool&) = delete;

  double Decoded(uint8_t c) const {
    if (kind == kInt8) return static_cast<int8_t>(c);
    const int exponent = c >> 3 & 15;
    const double v = exponent == 0 ? ldexp(c & 7, -9) : ldexp(8 + (c & 7), exponent - 10);
    return c & 128 ? -v : v;
  }
  double Value(uint8_t c) const { return value[c]; }
  // Code is the nearest code, to even in the middle.
  uint8_t Code(double v) const {
    if (kind == kInt8) return static_cast<uint8_t>(static_cast<int8_t>(nearbyint(fmin(fmax(v, -128), 127))));
    const double m = fmin(fabs(v), 448);
    const int exponent = m < ldexp(1, -6) ? -6 : ilogb(m);
    const int steps = static_cast<int>(nearbyint(ldexp(m, 3 - exponent)));  // 8 to 16 unless subnormal
    const int code = exponent == -6 && steps < 8 ? steps : (exponent + 7) * 8 + steps - 8;
    return static_cast<uint8_t>(std::min(code, 126) | (std::signbit(v) ? 128 : 0));
  }
  size_t At(size_t row, size_t head, size_t d) const { return (row * heads + head) * width + d; }
  double Get(size_t row, size_t head, size_t d) const {
    return Value(codes[At(row, head, d)]) * scales[row / block * heads + head];
  }
  // Fill writes random codes and scales to a block of the pool.
  void Fill(size_t of, float by, Random* random) {
    for (size_t h = 0; h < heads; ++h) scales[of * heads + h] = ldexpf(by, -static_cast<int>(5 + random->Below(4)));
    for (size_t i = of * block * heads * width; i < (of + 1) * block * heads * width; ++i) {
      codes[i] = Code(static_cast<double>(random->Below(255)) - 127);
    }
  }
  void ToDevice() const {
    for (int i = 0; i < 2; ++i) {
      Check(cudaMemcpy(device_codes[i], codes.data(), codes.size(), cudaMemcpyHostToDevice), "copy to device");
      Check(cudaMemcpy(device_scales[i], scales.data(), scales.size() * 4, cudaMemcpyHostToDevice), "copy to device");
    }
  }
  // Write writes rows as the definition does.
  void Write(const std::vector<int32_t>& slots, const Numbers& rows) {
    const double most = kind == kInt8 ? 127 : 448;
    for (size_t b = 0; b < blocks; ++b) {
      std::vector<size_t> added;
      bool over = false;
      for (size_t t = 0; t < slots.size(); ++t) {
        if (slots[t] < 0 || slots[t] / block != b) continue;
        added.push_back(t);
        over = over || slots[t] % block == 0;
      }
      for (size_t h = 0; h < heads && !added.empty(); ++h) {
        double greatest = 0, least = ldexp(1, -126);
        for (size_t t : added) {
          for (size_t d = 0; d < width; ++d) greatest = fmax(greatest, fabs(rows.Get((t * heads + h) * width + d)));
        }
        while (greatest > most * least) least *= 2;
        float& scale = scales[b * heads + h];
        const double old = over ? ldexp(1, -126) : scale, now = std::max(old, least);
        for (size_t r = b * block; r < (b + 1) * block; ++r) {
          for (size_t d = 0; d < width; ++d) {
            uint8_t& c = codes[At(r, h, d)];
            if (over || now > old) c = over ? 0 : Code(Value(c) * (old / now));
          }
        }
        for (size_t t : added) {
          for (size_t d = 0; d < width; ++d) {
            codes[At(slots[t], h, d)] = Code(rows.Get((t * heads + h) * width + d) / now);
          }
        }
        scale = static_cast<float>(now);
      }
    }
  }
  // IsWritten compares with the device.
  bool IsWritten(int of) const {
    std::vector<uint8_t> got(codes.size());
    std::vector<float> got_scales(scales.size());
    Check(cudaMemcpy(got.data(), device_codes[of], got.size(), cudaMemcpyDeviceToHost), "copy to host");
    Check(cudaMemcpy(got_scales.data(), device_scales[of], scales.size() * 4, cudaMemcpyDeviceToHost), "copy to host");
    return got == codes && memcmp(got_scales.data(), scales.data(), scales.size() * 4) == 0;
  }
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
  Kind kind = kNumbers;
  size_t shared = 0;      // first blocks that all sequences have in common
  bool crossing = false;  // the second sequence has the first one's last block as its first, and a slot

  std::string Name() const {
    char text[280];
    snprintf(
        text, sizeof(text),
        "%s pool %d B%zu past %d.. added %d.. H%zu/%zu D%zu/%zu M%zu causal %d cyclic %d sink %d slots %d window %zu "
        "cap %g huge %d offset %zu in place %d shared %zu crossing %d",
        TypeName(type), kind, past.size(), past[0], added[0], heads, key_heads, width, value_width, block, causal,
        cyclic, sink, slots, window, softcap, huge, offset, in_place, shared, crossing);
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
    for (size_t i = 0; i < own; ++i) table[b * columns + i] = i < f.shared && b > 0 ? table[i] : order[next++];
  }
  if (f.crossing) table[columns] = table[f.past[0] / f.block];
  const auto place = [&](size_t b, size_t j) { return table[b * columns + j / f.block] * f.block + j % f.block; };
  std::vector<int32_t> slots;
  for (size_t b = 0; b < sequences; ++b) {
    for (int32_t i = 0; i < f.added[b]; ++i) slots.push_back(static_cast<int32_t>(place(b, f.past[b] + i)));
  }
  if (f.slots && tokens > 2) slots[1] = -1;
  if (f.slots && f.crossing) slots[0] = static_cast<int32_t>(place(1, f.past[1] - 1));
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
    // The keys before a window may be gone.
    const int32_t first = f.window > 0 ? std::max<int32_t>(0, f.past[b] + 1 - static_cast<int32_t>(f.window)) : 0;
    for (int32_t j = first; j < f.past[b] + f.added[b]; ++j) is_read[place(b, j)] = true;
  }
  for (size_t r = 0; r < rows; ++r) {
    for (size_t d = 0; d < f.key_heads * f.width && !is_read[r]; ++d) keys.Set(r * f.key_heads * f.width + d, NAN);
    for (size_t d = 0; d < f.key_heads * f.value_width && !is_read[r]; ++d) {
      values.Set(r * f.key_heads * f.value_width + d, NAN);
    }
  }
  keys.ToDevice(), values.ToDevice();
  MojoQPagedAttentionArgs a;
  const bool coded = f.kind != kNumbers;
  CodedPool key_codes(f.kind, coded ? blocks : 1, f.block, f.key_heads, f.width, &random);
  CodedPool value_codes(f.kind, coded ? blocks : 1, f.block, f.key_heads, f.value_width, &random);
  for (size_t i = 0; i < blocks && coded; ++i) {
    for (size_t r = i * f.block; r < (i + 1) * f.block; ++r) {
      if (!is_read[r]) continue;
      key_codes.Fill(i, scale, &random), value_codes.Fill(i, scale, &random);
      break;
    }
  }
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
  if (coded) {
    key_codes.ToDevice(), value_codes.ToDevice();
    const int out = f.in_place ? 0 : 1;
    a.key_cache = key_codes.device_codes[0], a.key_cache_out = key_codes.device_codes[out];
    a.value_cache = value_codes.device_codes[0], a.value_cache_out = value_codes.device_codes[out];
    a.key_scale = key_codes.device_scales[0], a.key_scale_out = key_codes.device_scales[out];
    a.value_scale = value_codes.device_scales[0], a.value_scale_out = value_codes.device_scales[out];
    a.float8 = f.kind == kE4M3;
  }
  const auto call = [&](MojoQPagedAttentionArgs args, const std::string& what) {
    Numbers scratch(kMojoFloat32, (coded ? MojoQPagedAttentionScratch(&args) : MojoPagedAttentionScratch(&args)) / 4);
    args.scratch = scratch.device();
    Done(tally, name + what, coded ? MojoCudaQPagedAttention(&args, nullptr) : MojoCudaPagedAttention(&args, nullptr));
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
  if (coded) {
    key_codes.Write(slots, k), value_codes.Write(slots, v);
    const int out = f.in_place ? 0 : 1;
    if (!key_codes.IsWritten(out) || !value_codes.IsWritten(out)) Fail(tally, name, "a pool of codes is wrong");
  } else if (got_keys->bytes() != want_keys || got_values->bytes() != want_values) {
    Fail(tally, name, "a pool is wrong");
  }
  const auto key = [&](size_t row, size_t g, size_t d) {
    return coded ? key_codes.Get(row, g, d) : got_keys->Get((row * f.key_heads + g) * f.width + d);
  };
  const auto value = [&](size_t row, size_t g, size_t d) {
    return coded ? value_codes.Get(row, g, d) : got_values->Get((row * f.key_heads + g) * f.value_width + d);
  };
  Want want(y.count());
  double most = 0;
  // A piece is some of a sequence's tokens of a head.
  constexpr int32_t kPiece = 64;
  struct Piece {
    size_t sequence, head;
    int32_t token;
  };
  std::vector<Piece> pieces;
  for (size_t b = 0; b < sequences; ++b) {
    for (int32_t i = 0; i < f.added[b]; i += kPiece) {
      for (size_t h = 0; h < f.heads; ++h) pieces.push_back({b, h, i});
    }
  }
  std::atomic<size_t> taken{0};
  InParallel(pieces.size(), [&](size_t, size_t) {
    for (size_t n; (n = taken++) < pieces.size();) {
      const size_t b = pieces[n].sequence, h = pieces[n].head, g = f.cyclic ? h % f.key_heads : h / group;
      const size_t length = f.past[b] + f.added[b];
      std::vector<double> score(length), all_keys(length * f.width), all_values(length * f.value_width);
      for (size_t j = 0; j < length; ++j) {
        for (size_t d = 0; d < f.width; ++d) all_keys[j * f.width + d] = key(place(b, j), g, d);
        for (size_t d = 0; d < f.value_width; ++d) all_values[j * f.value_width + d] = value(place(b, j), g, d);
      }
      for (int32_t i = pieces[n].token; i < std::min(f.added[b], pieces[n].token + kPiece); ++i) {
        const size_t at = f.past[b] + i, row = (cumulative[b] + i) * f.heads + h;
        double greatest = f.sink ? sink.Get(h) : -HUGE_VAL, sum = 0;
        std::vector<double> query(f.width), total(f.value_width);
        for (size_t d = 0; d < f.width; ++d) query[d] = q.Get(row * f.width + d);
        for (size_t j = 0; j < length; ++j) {
          score[j] = -HUGE_VAL;
          if ((f.causal && j > at) || (f.window > 0 && j + f.window <= at)) continue;
          double sums[4] = {};  // widths are multiples of 4
          for (size_t d = 0; d < f.width; d += 4) {
            for (size_t i = 0; i < 4; ++i) sums[i] += query[d + i] * all_keys[j * f.width + d + i];
          }
          const double s = (sums[0] + sums[1] + sums[2] + sums[3]) * a.scale;
          score[j] = f.softcap > 0 ? f.softcap * tanh(s / f.softcap) : s;
          greatest = std::max(greatest, score[j]);
        }
        if (f.sink) sum = exp(sink.Get(h) - greatest);
        for (size_t j = 0; j < length; ++j) {
          const double w = exp(score[j] - greatest);
          if (w == 0) continue;
          sum += w;
          for (size_t d = 0; d < f.value_width; ++d) total[d] += w * all_values[j * f.value_width + d];
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
  const std::vector<char> all = y.bytes();
  y.Poison();
  call(a, " again");
  y.ToHost();
  if (y.bytes() != all) Fail(tally, name, "the second call has other bits");
  // The same bits for each sequence by itself.
  a.k = a.v = nullptr, a.key_cache = a.key_cache_out, a.value_cache = a.value_cache_out;
  a.key_scale = a.key_scale_out, a.value_scale = a.value_scale_out;
  for (size_t b = 0; b < sequences && sequences > 1; ++b) {
    if (f.added[b] == 0) continue;
    const size_t size = SizeOf(f.type), own = f.heads * f.value_width * size;
    const Int32s one({0, f.added[b]}), past({f.past[b]}),
        row(std::vector<int32_t>(table.begin() + b * columns, table.begin() + (b + 1) * columns)),
        none(std::vector<int32_t>(f.added[b], -1));
    Numbers alone(f.type, f.added[b] * f.heads * f.value_width, f.offset);
    MojoQPagedAttentionArgs args = a;
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

// TestPrompts tests sequences of many tokens, which Hopper multiplies by warpgroups if their blocks are multiples of 8.
void TestPrompts(Tally* tally, Tally* codes) {
  Random random(5);
  const auto test = [&](Form f) {
    for (const Kind k : {kNumbers, kInt8, kE4M3}) {
      f.kind = k;
      if (k == kNumbers || !f.huge) Test(k == kNumbers ? tally : codes, f);
    }
  };
  // Prompts of 1 to 600 tokens behind 0 to 5,000, and sequences without any.
  const auto lengths = [&](Form* f, size_t sequences) {
    f->past.clear(), f->added.clear();
    for (size_t b = 0; b < sequences; ++b) {
      f->past.push_back(static_cast<int32_t>(random.Below(random.Below(4) == 0 ? 5001 : 700)));
      f->added.push_back(static_cast<int32_t>(random.Below(5) == 0 ? 0 : 1 + random.Below(random.Below(3) ? 90 : 400)));
    }
    f->added[0] = static_cast<int32_t>(100 + random.Below(501));
  };
  for (const MojoType type : {kMojoBFloat16, kMojoFloat16}) {
    for (const size_t block : {16, 32, 64, 256, 8, 48, 20}) {
      if (type == kMojoFloat16 && block != 16 && block != 256) continue;
      Form f;
      f.type = type, f.block = block;
      for (const size_t group : {4, 1, 8}) {
        f.heads = group == 1 ? 3 : group, f.key_heads = f.heads / group;
        for (const size_t width : {64, 128}) {
          f.width = f.value_width = width;
          lengths(&f, width == 64 ? 1 : 5);
          test(f);
        }
      }
      f.heads = 6, f.key_heads = 2, f.cyclic = true, f.sink = true;
      lengths(&f, 4);
      f.window = 1 + random.Below(900);
      test(f);
      f.window = 0, f.softcap = 5, f.width = f.value_width = 64, f.causal = false;
      test(f);
      f.softcap = 0, f.heads = 17, f.key_heads = 1, f.window = 40;
      lengths(&f, 2);
      test(f);
      f.heads = 4, f.key_heads = 2, f.width = 192, f.value_width = 128, f.causal = true;
      test(f);
      f.width = f.value_width = 256, f.sink = false, f.window = 0;
      test(f);
      // Few scores, or the sign of one that is near 0 is another one in float32.
      f.past = {0, 3}, f.added = {90, 40}, f.width = f.value_width = 64, f.softcap = 5, f.sink = true, f.huge = true;
      test(f);
    }
    // More tiles than blocks, and more sequences than a warp has lanes.
    Form f;
    f.type = type, f.heads = 32, f.key_heads = 8, f.width = f.value_width = 64;
    for (int b = 0; b < 70; ++b) {
      f.past.push_back(static_cast<int32_t>(random.Below(200)));
      f.added.push_back(static_cast<int32_t>(b % 3 == 1 ? 60 + random.Below(60) : random.Below(30)));
    }
    test(f);
    f.past = {5000, 4990}, f.added = {600, 1}, f.heads = 4, f.key_heads = 1, f.width = f.value_width = 128;
    test(f);
  }
}

// TestSteps tests steps of few rows: blocks that sequences share, and divisions of the keys.
void TestSteps(Tally* tally, Tally* codes) {
  const auto test = [&](Form f) {
    for (const Kind k : {kNumbers, kInt8, kE4M3}) {
      for (const bool slots : {false, true}) {
        f.kind = k, f.slots = slots;
        Test(k == kNumbers ? tally : codes, f);
      }
    }
  };
  for (const MojoType type : {kMojoBFloat16, kMojoFloat16}) {
    // Blocks that sequences share, and new rows that other sequences read.
    for (const size_t block : {size_t{16}, size_t{48}, size_t{3}}) {
      for (const int32_t last : {1, 8}) {
        Form f;
        f.type = type, f.block = block, f.past = {150, 700, 200}, f.added = {1, 2, last}, f.shared = 96 / block;
        test(f);
        f.shared = 0, f.crossing = true;
        test(f);
        f.sink = true, f.in_place = false, f.window = 100, f.width = f.value_width = 64;
        test(f);
      }
    }
    // Every number of new rows of a step, and lengths around those at which keys are divided otherwise.
    Form f;
    for (const int32_t past : {0, 31, 126, 127, 128, 500, 1020, 1024, 2040, 2048, 4090, 4096, 5000}) {
      f.past.push_back(past), f.added.push_back(1 + static_cast<int32_t>(f.past.size()) % 8);
    }
    f.type = type, f.heads = 8, f.key_heads = 2, f.width = f.value_width = 64;
    test(f);
    f.past.resize(9), f.added.resize(9), f.heads = 5, f.key_heads = 1, f.width = f.value_width = 256, f.softcap = 20;
    test(f);
    // More sequences than blocks fit at once, which are not split, and are when they are alone.
    f = Form();
    f.type = type, f.heads = f.key_heads = 8, f.width = f.value_width = 64;
    for (int32_t n = 0; n < 70; ++n) f.past.push_back(n * 9 + n % 4 * 100), f.added.push_back(n % 7 != 3);
    test(f);
  }
}

}  // namespace

int main() {
  Tally tally{"PagedAttention"}, prompts{"prompts"}, codes{"QPagedAttention"};
  TestPrompts(&prompts, &codes);
  TestSteps(&tally, &codes);
  const std::vector<int32_t> pasts[] = {{0}, {5}, {255}, {256, 0, 17}, {1000, 3, 64, 511, 0}, {17000, 40}};
  for (const MojoType type : {kMojoBFloat16, kMojoFloat16, kMojoFloat32}) {
    for (const auto& past : pasts) {
      for (const std::vector<int32_t>& kind : {std::vector<int32_t>{1}, {3, 0}, {70, 1}, {130}, {16, 33, 0}}) {
        Form f;
        f.type = type, f.past = past;
        for (size_t b = 0; b < past.size(); ++b) f.added.push_back(kind[b % kind.size()]);
        if (past[0] > 1000 && (kind[0] > 3 || type == kMojoFloat32)) continue;  // slow on the host
        const auto test = [&] {
          Test(&tally, f);
          for (const Kind k : {kInt8, kE4M3}) {
            f.kind = k;
            if (f.offset == 0 && !f.huge && past[0] <= 1000) Test(&codes, f);
          }
          f.kind = kNumbers;
        };
        test();
        f.block = 48, f.heads = 6, f.key_heads = 1, f.sink = true, f.in_place = false;
        test();
        f.block = 256, f.heads = 8, f.key_heads = 8, f.width = 64, f.value_width = 64, f.window = 50, f.slots = true;
        test();
        f.heads = 8, f.key_heads = 2, f.width = 72, f.value_width = 40, f.cyclic = true, f.softcap = 5, f.window = 0;
        test();
        f.width = 192, f.value_width = 200, f.causal = false, f.block = 1;
        test();
        f.huge = true;
        test();
        f.width = 20, f.value_width = 12, f.offset = 4;  // no pieces of 16 bytes
        test();
        f.huge = false;
        test();
      }
    }
  }
  return Report({&tally, &prompts, &codes});
}
