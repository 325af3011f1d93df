// The loops of Attention against a naive reference: with few rows and in panels, whole and in slices.
#include <math.h>

#include <algorithm>

#include "tests/testing.h"

namespace mojo_test {
namespace {

using mojo::AttentionFns;
using mojo::AttentionTile;
using mojo::kAttentionBlock;

size_t Padded(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Case is a head of keys with its rows.
struct Case {
  size_t rows, keys, width, value_width;
  double scale;  // of the queries
  bool valid = false, bias = false;
  float softcap = 0;
  size_t window = 0;
  // One-hot queries and keys, and the same value for every key: all roundings of a sum go the same way.
  bool one_hot = false;
};

std::vector<double> OneHot(std::mt19937* rng, size_t rows, size_t width) {
  const std::vector<double> size = Random(rng, rows, 1);
  std::vector<double> v(rows * width);
  for (size_t i = 0; i < rows; ++i) v[i * width + i % width] = 1 + fabs(size[i]);
  return v;
}

std::vector<double> Repeated(std::mt19937* rng, size_t rows, size_t width) {
  const std::vector<double> row = Random(rng, width, 1);
  std::vector<double> v(rows * width);
  for (size_t i = 0; i < v.size(); ++i) v[i] = row[i % width];
  return v;
}

// Run adds the keys of a case in so many slices, with panels or without, and checks every row.
void Run(const mojo::KernelTable& kernels, ElementType type, const Case& c, size_t slices, bool panels) {
  std::mt19937 rng(static_cast<unsigned>(c.rows * 1000 + c.keys));
  const AttentionFns& fns = *kernels.attention(type);
  const auto rows_of = [&](size_t rows, double scale) {
    return c.one_hot ? OneHot(&rng, rows, c.width) : Random(&rng, rows * c.width, scale);
  };
  const Buffer q(type, rows_of(c.rows, c.scale)), k(type, rows_of(c.keys, 1));
  const Buffer v(type, c.one_hot ? Repeated(&rng, c.keys, c.value_width) : Random(&rng, c.keys * c.value_width, 1));
  const size_t q_step = Padded(c.width, mojo::kMostLanes), total_step = Padded(c.value_width, 2 * kernels.lanes);
  const size_t blocks = (c.keys + kAttentionBlock - 1) / kAttentionBlock, size = type == mojo::kFloat32 ? 4 : 2;
  const size_t all = mojo::kAttentionRows;  // rows of the memory for a tile
  const float kScale = 0.25f;
  std::vector<float> scaled(all * q_step), scores(all * kAttentionBlock), factors(all), wide(q_step * mojo::kMostLanes);
  std::vector<float> partial(all * total_step);
  for (size_t r = 0; r < c.rows; ++r) {
    fns.query(static_cast<const char*>(q.data()) + r * c.width * size, kScale, &scaled[r * q_step], c.width, q_step);
  }
  std::vector<size_t> first(c.rows), last(c.rows);
  for (size_t r = 0; r < c.rows; ++r) {  // the last row sees the last key, if there are at least as many keys as rows
    last[r] = c.keys + r + 1 < c.rows ? 0 : std::min(c.keys, c.keys + r + 1 - c.rows);
    first[r] = c.window > 0 && last[r] > c.window ? last[r] - c.window : 0;
  }
  const size_t padded = (blocks + 1) * kAttentionBlock;
  std::vector<float> valid(padded), bias(c.keys);
  for (size_t j = 0; j < c.keys; ++j) {
    valid[j] = c.valid && j % 3 == 1 ? -INFINITY : 0;
    bias[j] = static_cast<float>(j % 7) / 4;
  }
  const std::vector<const float*> biases(c.rows, bias.data());
  std::vector<float> key_panels(blocks * kAttentionBlock * c.width),
      value_panels(blocks * kAttentionBlock * total_step);
  for (size_t b = 0; panels && b < blocks; ++b) {
    const size_t from = b * kAttentionBlock;
    fns.pack({static_cast<const char*>(k.data()) + from * c.width * size, c.width,
              static_cast<const char*>(v.data()) + from * c.value_width * size, c.value_width, nullptr, nullptr,
              nullptr, c.width, c.value_width, std::min(kAttentionBlock, c.keys - from), &key_panels[from * c.width],
              &value_panels[from * total_step]});
  }
  std::vector<float> most(slices * all, -INFINITY), sum(slices * all), total(slices * all * total_step);
  for (size_t s = 0; s < slices; ++s) {
    AttentionTile t{};
    t.rows = c.rows;
    t.q = scaled.data();
    t.q_step = q_step;
    t.width = c.width;
    t.value_width = c.value_width;
    t.begin = blocks * s / slices * kAttentionBlock;
    t.end = std::min(c.keys, blocks * (s + 1) / slices * kAttentionBlock);
    t.first = first.data();
    t.last = last.data();
    t.valid = c.valid ? valid.data() : nullptr;
    t.bias = c.bias ? biases.data() : nullptr;
    t.bias_step = 1;
    t.softcap = c.softcap;
    t.keys = k.data();
    t.key_step = c.width;
    t.values = v.data();
    t.value_step = c.value_width;
    t.key_panels = panels ? key_panels.data() : nullptr;
    t.value_panels = value_panels.data();
    t.scores = scores.data();
    t.factors = factors.data();
    t.wide = wide.data();
    t.most = &most[s * all];
    t.sum = &sum[s * all];
    t.total = &total[s * all * total_step];
    t.total_step = total_step;
    t.partial = partial.data();
    if (t.begin < t.end) fns.add(t);
    for (const float p : scores) Check(p == 0 || !(fabsf(p) < 1.17549435e-38f), "%s: a subnormal weight", kernels.name);
  }
  std::vector<double> want(c.value_width);
  for (size_t r = 0; r < c.rows; ++r) {
    Buffer y(type, c.value_width);
    fns.finish(
        {&most[r], &sum[r], &total[r * total_step], slices, all, all * total_step, nullptr, c.value_width, y.data()});
    double weights = 0, greatest = 0, top = -INFINITY;
    std::vector<double> s(c.keys, -INFINITY);
    for (size_t j = first[r]; j < last[r]; ++j) {
      if (valid[j] != 0) continue;
      double dot = 0;
      for (size_t i = 0; i < c.width; ++i) dot += q.Get(r * c.width + i) * k.Get(j * c.width + i);
      s[j] = dot * static_cast<double>(kScale);
      if (c.softcap > 0) s[j] = static_cast<double>(c.softcap) * tanh(s[j] / static_cast<double>(c.softcap));
      if (c.bias) s[j] += static_cast<double>(bias[j]);
      top = std::max(top, s[j]);
    }
    std::fill(want.begin(), want.end(), 0.0);
    for (size_t j = first[r]; j < last[r]; ++j) {
      if (s[j] == -(double)INFINITY) continue;
      const double p = exp(s[j] - top);
      weights += p;
      for (size_t i = 0; i < c.value_width; ++i) want[i] += p * v.Get(j * c.value_width + i);
    }
    for (double& x : want) {
      x = weights > 0 ? x / weights : 0;
      greatest = std::max(greatest, fabs(x));
    }
    // The error of a score grows with its magnitude.
    double units = 8 + 4 * c.scale;
    if (c.one_hot) units = 24;  // sums in blocks are off by 18, one chain over 1,500 keys by 230
    const double bound = (Epsilon(type) + Epsilon(mojo::kFloat32) * units) * (greatest + 1e-30);
    for (size_t i = 0; i < c.value_width; ++i) {
      Check(Near(y.Get(i), want[i], bound),
            "%s: Attention of %s, %zu rows, %zu keys, %zu slices%s: row %zu [%zu] is %g, "
            "want %g",
            kernels.name, TypeName(type), c.rows, c.keys, slices, panels ? ", panels" : "", r, i, y.Get(i), want[i]);
    }
  }
}

}  // namespace

MOJO_TEST(TestAttention) {
  const Case cases[] = {
      {1, 1, 1, 1, 1},
      {1, 200, 64, 64, 1},
      {2, 130, 17, 33, 1, true},
      {3, 129, 40, 5, 1, false, true},
      {4, 128, 16, 48, 1, false, false, 1.5f},
      {5, 300, 8, 8, 1, false, false, 0, 50},
      {7, 257, 24, 100, 1, true, true},
      {13, 150, 33, 20, 1},
      {16, 40, 9, 128, 1, true, true, 2.0f, 20},
      {6, 3, 8, 8, 1},
      {3, 260, 64, 16, 60},
  };
  for (const ElementType type : kTypes) {
    for (const Case& c : cases) {
      for (const size_t slices : {1, 3}) {
        for (const bool panels : {false, true}) Run(kernels, type, c, slices, panels);
      }
    }
  }
  Run(kernels, mojo::kFloat32, {48, 200, 20, 33, 1}, 1, true);
  Run(kernels, mojo::kFloat32, {35, 400, 20, 33, 1, true, false, 0, 130}, 2, true);
}

// TestAttentionOverManyKeys compares long sums with float64: their error must not grow with their length.
MOJO_TEST(TestAttentionOverManyKeys) {
  for (const ElementType type : kTypes) {
    for (const size_t keys : {577, 1500, 8192}) {
      for (const bool one_hot : {false, true}) {
        const double scale = one_hot ? 1 : 0.25;  // great scores add errors
        Run(kernels, type, {3, keys, 64, 40, scale, false, false, 0, 0, one_hot}, 1, false);
        Run(kernels, type, {24, keys, 64, 40, scale, false, false, 0, 0, one_hot}, 1, true);
      }
      const size_t width = 40;
      std::mt19937 rng(1);
      const Buffer v(type, Repeated(&rng, keys, width));
      std::vector<float> mean(width + mojo::kMostLanes);
      kernels.attention(type)->mean(v.data(), width, keys, width, mean.data());
      for (size_t i = 0; i < width; ++i) {
        const double want = v.Get(i), bound = 24 * Epsilon(mojo::kFloat32) * fabs(want);
        Check(Near(mean[i], want, bound), "%s: the mean of %zu values of %s [%zu] is %g, want %g", kernels.name, keys,
              TypeName(type), i, static_cast<double>(mean[i]), want);
      }
    }
  }
}

MOJO_TEST(TestStream) {
  for (const size_t bytes : {0, 1, 31, 64, 100, 129, 1000}) {
    for (size_t offset = 0; offset < 70; offset += 3) {
      std::vector<unsigned char> from(bytes + 8), to(bytes + 140, 255);
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i % 251);
      kernels.stream(&from[offset % 8], &to[offset], bytes);
      for (size_t i = 0; i < to.size(); ++i) {
        const bool within = i >= offset && i < offset + bytes;
        const unsigned want = within ? from[offset % 8 + i - offset] : 255;
        Check(to[i] == want, "%s: Stream of %zu bytes to %zu: [%zu] is %u", kernels.name, bytes, offset, i, to[i]);
      }
    }
  }
}

}  // namespace mojo_test
