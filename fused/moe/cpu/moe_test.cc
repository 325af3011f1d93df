// The inner loops of MoE against naive references in double.
#include <math.h>

#include <algorithm>

#include "moe/cpu/moe_plan.h"
#include "tests/testing.h"

namespace mojo_test {
namespace {

void TestProduct(const mojo::KernelTable& kernels, ElementType type, bool by_rows, size_t tokens, size_t depth,
                 size_t width, std::mt19937* rng) {
  const size_t stride = (by_rows ? depth : width) + 3, rows = by_rows ? width : depth;
  const Buffer w(type, Random(rng, (rows - 1) * stride + (by_rows ? depth : width), 1));
  std::vector<Buffer> x;
  std::vector<const float*> pointers;
  for (size_t t = 0; t < tokens; ++t) x.emplace_back(mojo::kFloat32, Random(rng, depth, 1));
  for (const Buffer& b : x) pointers.push_back(static_cast<const float*>(b.data()));
  const size_t y_stride = width + 1;
  Buffer y(mojo::kFloat32, (tokens - 1) * y_stride + width), alone(mojo::kFloat32, width);
  mojo::ProductArgs args{
      w.data(), stride, by_rows, pointers.data(), tokens, depth, width, static_cast<float*>(y.data()), y_stride};
  for (const bool of_few : {false, true}) {
    const auto product = of_few ? kernels.product_of_few(type) : kernels.product(type);
    args.x = pointers.data();
    args.tokens = tokens;
    args.y = static_cast<float*>(y.data());
    product(args);
    for (size_t t = 0; t < tokens; ++t) {
      args.x = &pointers[t];
      args.tokens = 1;
      args.y = static_cast<float*>(alone.data());
      if (t < 8) product(args);
      for (size_t n = 0; n < width; ++n) {
        double want = 0, size = 0;
        for (size_t k = 0; k < depth; ++k) {
          const double v = x[t].Get(k) * w.Get(by_rows ? n * stride + k : k * stride + n);
          want += v;
          size += fabs(v);
        }
        const double got = y.Get(t * y_stride + n);
        Check(Near(got, want, 1e-6 * size + 1e-7), "%s: product %s by %s, %zu tokens, %zu by %zu: %.9g, want %.9g",
              kernels.name, TypeName(type), by_rows ? "rows" : "columns", tokens, width, depth, got, want);
        if (t < 8 && !of_few)
          Check(got == alone.Get(n), "%s: product %s: other tokens change a token's result", kernels.name,
                TypeName(type));
      }
    }
  }
}

void TestPanels(const mojo::KernelTable& kernels, ElementType type, size_t panels, size_t depth, size_t width,
                std::mt19937* rng) {
  const size_t stride = depth + 3, lanes = kernels.lanes;
  const Buffer w(type, Random(rng, (width - 1) * stride + depth, 1)), bias(mojo::kFloat32, Random(rng, width, 1));
  Buffer x(mojo::kFloat32, panels * depth * lanes);
  std::vector<Buffer> tokens;
  for (size_t p = 0; p < panels; ++p) {
    std::vector<const float*> pointers;
    for (size_t l = 0; l < lanes; ++l) tokens.emplace_back(mojo::kFloat32, Random(rng, depth, 1));
    for (size_t l = 0; l < lanes; ++l) pointers.push_back(static_cast<const float*>(tokens[p * lanes + l].data()));
    kernels.to_panel(pointers.data(), static_cast<float*>(x.data()) + p * depth * lanes, depth);
  }
  const bool biased = width % 2 == 0;
  Buffer y(mojo::kFloat32, panels * width * lanes);
  kernels.panels(type)({w.data(), stride, biased ? static_cast<const float*>(bias.data()) : nullptr,
                        static_cast<const float*>(x.data()), panels, depth, width, static_cast<float*>(y.data()),
                        w.data()});
  for (size_t p = 0; p < panels; ++p) {
    std::vector<Buffer> rows(lanes, Buffer(mojo::kFloat32, width));
    std::vector<void*> pointers;
    for (Buffer& row : rows) pointers.push_back(row.data());
    const float* const panel = static_cast<const float*>(y.data()) + p * width * lanes;
    kernels.from_panel(mojo::kFloat32)(panel, nullptr, pointers.data(), width);
    for (const ElementType to : kTypes) {
      std::vector<Buffer> sums(lanes, Buffer(to, width));
      for (size_t l = 0; l < lanes; ++l) pointers[l] = sums[l].data();
      kernels.from_panel(to)(panel, static_cast<const float*>(bias.data()), pointers.data(), width);
      for (size_t i = 0; i < lanes * width; ++i) {
        const float sum = static_cast<float>(rows[i / width].Get(i % width)) + static_cast<float>(bias.Get(i % width));
        const double got = sums[i / width].Get(i % width), want = Round(to, sum);
        Check(got == want, "%s: a panel with a bias as %s, output %zu of %zu: %.9g, want %.9g", kernels.name,
              TypeName(to), i % width, width, got, want);
      }
    }
    for (size_t i = 0; i < lanes * width; ++i) {
      const size_t lane = i / width, n = i % width;
      double want = biased ? bias.Get(n) : 0, size = fabs(want);
      for (size_t k = 0; k < depth; ++k) {
        const double v = tokens[p * lanes + lane].Get(k) * w.Get(n * stride + k);
        want += v;
        size += fabs(v);
      }
      const double got = rows[lane].Get(n);
      Check(Near(got, want, 3e-6 * size + 1e-7), "%s: panels %s, %zu panels, %zu by %zu: %.9g, want %.9g", kernels.name,
            TypeName(type), panels, width, depth, got, want);
    }
  }
}

void TestWeightedSum(const mojo::KernelTable& kernels, ElementType type, std::mt19937* rng) {
  for (const size_t width : kSizes) {
    for (const size_t count : {0, 1, 5}) {
      std::vector<Buffer> rows;
      std::vector<const float*> pointers;
      std::vector<float> weights;
      for (size_t i = 0; i < count; ++i) {
        rows.emplace_back(mojo::kFloat32, Random(rng, width, 1));
        weights.push_back(static_cast<float>(Random(rng, 1, 1)[0]));
      }
      for (const Buffer& b : rows) pointers.push_back(static_cast<const float*>(b.data()));
      Buffer y(type, width);
      kernels.weighted_sum(type)({pointers.data(), weights.data(), count, width, y.data()});
      for (size_t n = 0; n < width; ++n) {
        double want = 0, size = 0;
        for (size_t i = 0; i < count; ++i) {
          want += weights[i] * rows[i].Get(n);
          size += fabs(weights[i] * rows[i].Get(n));
        }
        Check(Near(y.Get(n), want, 4e-7 * size + 0.51 * Epsilon(type) * fabs(want) + 1e-7),
              "%s: weighted sum %s: %.9g, want %.9g", kernels.name, TypeName(type), y.Get(n), want);
      }
    }
  }
}

void TestRelu(const mojo::KernelTable& kernels) {
  const std::vector<double> g{-INFINITY, -3, -0.0, 0, 1e-30, 2.5, INFINITY, NAN, 7};
  const Buffer gate(mojo::kFloat32, g), up(mojo::kFloat32, std::vector<double>(g.size(), 1));
  Buffer y(mojo::kFloat32, g.size());
  for (const auto kind : {mojo::Activation::kRelu, mojo::Activation::kRelu2}) {
    kernels.gate(mojo::kFloat32, kind)({gate.data(), up.data(), y.data(), 1, 0, 0}, 0, g.size());
    for (size_t i = 0; i < g.size(); ++i) {
      const double v = gate.Get(i), positive = isnan(v) || v > 0 ? v : 0;
      const double want = kind == mojo::Activation::kRelu ? positive : static_cast<float>(positive * positive);
      Check(Near(y.Get(i), want, 0), "%s: relu%s of %g: %g", kernels.name, kind == mojo::Activation::kRelu ? "" : "2",
            v, y.Get(i));
    }
  }
}

// TestPlan cuts choices into runs: every choice that has an expert once, by expert, in order; every panel once.
void TestPlan(size_t lanes, std::mt19937* rng) {
  for (const size_t experts : {1, 3, 40}) {
    for (const size_t choices : {0, 1, 7, 500, 2000}) {
      std::vector<int64_t> ids(choices);
      for (auto& id : ids) id = (*rng)() % 5 == 0 ? mojo::kNoExpert : static_cast<int64_t>((*rng)() % experts % 20);
      const size_t none = static_cast<size_t>(std::count(ids.begin(), ids.end(), mojo::kNoExpert));
      std::vector<size_t> starts(experts + 1), choice(choices), place(choices);
      std::vector<mojo::ExpertRun> runs(mojo::MostRuns(choices, experts));
      const size_t count =
          mojo::PlanRuns(ids.data(), choices, experts, lanes, starts.data(), choice.data(), place.data(), runs.data());
      Check(count <= runs.size(), "plan: %zu runs, at most %zu expected", count, runs.size());
      size_t next = 0, panel = 0;
      for (size_t r = 0; r < count && count <= runs.size(); ++r) {
        const mojo::ExpertRun& run = runs[r];
        Check(run.first == next && run.count >= 1 && run.count <= mojo::kMostInRun, "plan: run %zu is not next", r);
        Check(r == 0 || runs[r - 1].expert <= run.expert, "plan: experts are not in order");
        for (size_t p = run.first; p < run.first + run.count; ++p) {
          Check(static_cast<size_t>(ids[choice[p]]) == run.expert && place[choice[p]] == p, "plan: place %zu is wrong",
                p);
          Check(p == run.first || choice[p - 1] < choice[p], "plan: place %zu is out of order", p);
        }
        next = run.first + run.count;
        const size_t full = run.count - run.rest;
        Check(run.panel == panel && full <= run.panels * lanes &&
                  (run.panels == 0 || full + lanes > run.panels * lanes) &&
                  (run.rest == 0 || full == run.panels * lanes),
              "plan: %zu panels for %zu of %zu choices", run.panels, full, run.count);
        panel += run.panels;
      }
      Check(panel <= mojo::MostPanels(choices, lanes), "plan: %zu panels of %zu choices", panel, choices);
      Check(next == choices - none && starts[experts] == next, "plan: %zu places of %zu", next, choices - none);
    }
  }
}

}  // namespace

MOJO_TEST(TestMoE) {
  std::mt19937 rng(19);
  for (const ElementType type : kTypes) {
    for (const bool by_rows : {true, false}) {
      for (const size_t tokens : {1, 2, 3, 4, 5, 6, 7, 13, 25}) {
        for (const size_t depth : {1, 33, 150}) {
          for (const size_t width : {1, 7, 64, 150}) TestProduct(kernels, type, by_rows, tokens, depth, width, &rng);
        }
      }
      TestProduct(kernels, type, by_rows, 9, 2100, 21, &rng);
      TestProduct(kernels, type, by_rows, 2, 2100, 21, &rng);
    }
    for (const size_t panels : {1, 2, 3}) {
      for (const size_t depth : {0, 1, 33, 650}) {
        for (const size_t width : {1, 7, 12, 32, 64}) TestPanels(kernels, type, panels, depth, width, &rng);
      }
    }
    TestWeightedSum(kernels, type, &rng);
  }
  TestRelu(kernels);
  for (const size_t lanes : {size_t{0}, kernels.lanes}) TestPlan(lanes, &rng);
}

}  // namespace mojo_test
