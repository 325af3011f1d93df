// MoE against its definition in double on the host. Exits 1 on a failure.
// `make cuda-programs` builds it.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "cuda/tests/host.h"
#include "tests/activations.h"

namespace {

enum Routing { kSpread, kAllOnOne, kRepeated, kBadIds, kFewExperts };

struct Form {
  MojoType x = kMojoBFloat16, experts_type = kMojoBFloat16, weights = kMojoFloat32;
  mojo::Packing packing = mojo::Packing::kHalves;
  bool gate_up_in_out = false, down_in_out = false, biases = false;
  mojo::Activation activation = mojo::Activation::kSilu;
  float alpha = 1, limit = 0, up_offset = 0;
  size_t offset = 0;  // of the tensors' data, in bytes
};

struct Size {
  size_t experts, top_k, hidden, inner;
};

double Activate(const Form& f, double gate, double up) {
  if (f.limit > 0) {
    gate = fmin(gate, f.limit);
    up = fmax(fmin(up, f.limit), -f.limit);
  }
  double v = 0;
  switch (f.activation) {
    case mojo::Activation::kSilu: v = mojo_test::Silu(gate, f.alpha); break;
    case mojo::Activation::kGelu: v = mojo_test::Gelu(gate); break;
    case mojo::Activation::kGeluTanh: v = mojo_test::GeluTanh(gate); break;
    case mojo::Activation::kRelu: v = fmax(gate, 0.0); break;
    case mojo::Activation::kRelu2: v = fmax(gate, 0.0) * fmax(gate, 0.0); break;
  }
  return f.packing == mojo::Packing::kNone ? v : v * (up + f.up_offset);
}

// Parallel calls work for 0 to n - 1 on all processors.
void Parallel(size_t n, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::min<size_t>(n, std::max(1u, std::thread::hardware_concurrency())); ++i) {
    threads.emplace_back([&] {
      for (size_t at; (at = next++) < n;) work(at);
    });
  }
  for (auto& t : threads) t.join();
}

// Layer is the weights and the widest call of one form and size.
struct Layer {
  Form form;
  Size size;
  size_t packed;
  Numbers gate_up, down, gate_up_bias, down_bias;
  std::vector<float> gate_up_rows, down_rows;  // as [rows, depth]

  Layer(const Form& f, const Size& s, Random* random)
      : form(f),
        size(s),
        packed(f.packing == mojo::Packing::kNone ? s.inner : 2 * s.inner),
        gate_up(f.experts_type, s.experts * packed * s.hidden, f.offset),
        down(f.experts_type, s.experts * s.inner * s.hidden, f.offset),
        gate_up_bias(f.experts_type, s.experts * packed),
        down_bias(f.experts_type, s.experts * s.hidden) {
    gate_up.Fill(random, 1.5f / sqrtf(static_cast<float>(s.hidden)));
    down.Fill(random, 1.0f / sqrtf(static_cast<float>(s.inner)));
    gate_up_bias.Fill(random, 0.5f);
    down_bias.Fill(random, 0.5f);
    for (Numbers* n : {&gate_up, &down, &gate_up_bias, &down_bias}) n->ToDevice();
    Rows(gate_up, packed, s.hidden, f.gate_up_in_out, &gate_up_rows);
    Rows(down, s.hidden, s.inner, f.down_in_out, &down_rows);
  }
  void Rows(const Numbers& matrix, size_t rows, size_t depth, bool in_out, std::vector<float>* out) const {
    out->resize(matrix.count());
    for (size_t e = 0; e < size.experts; ++e) {
      for (size_t r = 0; r < rows; ++r) {
        for (size_t d = 0; d < depth; ++d) {
          (*out)[(e * rows + r) * depth + d] = matrix.Get(e * rows * depth + (in_out ? d * rows + r : r * depth + d));
        }
      }
    }
  }
};

// Call is one set of inputs of a layer, and its output.
struct Call {
  const Layer& layer;
  size_t tokens;
  Numbers x, weights, y;
  Ids ids;
  std::vector<double> want;

  Call(const Layer& l, size_t t)
      : layer(l),
        tokens(t),
        x(l.form.x, t * l.size.hidden, l.form.offset),
        weights(l.form.weights, t * l.size.top_k),
        y(l.form.x, t * l.size.hidden, l.form.offset),
        ids(t * l.size.top_k),
        want(t * l.size.hidden) {}

  void Fill(Routing routing, Random* random) {
    const Size& s = layer.size;
    x.Fill(random, 1);
    for (size_t c = 0; c < ids.host.size(); ++c) {
      weights.Set(c, 0.05f + static_cast<float>(random->Below(1000)) / 1000);
      const size_t token = c / s.top_k, slot = c % s.top_k;
      switch (routing) {
        case kSpread:  // distinct within a token, some experts more often than others
          ids.host[c] = static_cast<int64_t>(
              (slot == 0 ? random->Below(1 + random->Below(s.experts)) : ids.host[c - 1] + 1) % s.experts);
          break;
        case kAllOnOne: ids.host[c] = static_cast<int64_t>(s.experts - 1); break;
        case kRepeated: ids.host[c] = static_cast<int64_t>((token * 7 + slot / 2) % s.experts); break;
        case kBadIds:
          ids.host[c] = random->Below(3) == 0
                            ? (random->Below(2) == 0 ? -1 : INT64_C(1) << 40) +
                                  static_cast<int64_t>(random->Below(3)) * static_cast<int64_t>(s.experts)
                            : static_cast<int64_t>(random->Below(s.experts));
          break;
        case kFewExperts: ids.host[c] = static_cast<int64_t>((slot * 2 + random->Below(2)) % s.experts); break;
      }
    }
    x.ToDevice();
    weights.ToDevice();
    ids.ToDevice();
  }

  void Reference() {
    const Size& s = layer.size;
    const Form& f = layer.form;
    Parallel(tokens, [&](size_t t) {
      std::vector<double> activated(s.inner), row(s.hidden);
      std::vector<float> in(s.hidden);
      for (size_t h = 0; h < s.hidden; ++h) in[h] = x.Get(t * s.hidden + h);
      double* out = &want[t * s.hidden];
      std::fill(out, out + s.hidden, 0.0);
      for (size_t j = 0; j < s.top_k; ++j) {
        const int64_t id = ids.host[t * s.top_k + j];
        if (id < 0 || id >= static_cast<int64_t>(s.experts)) continue;
        const size_t e = static_cast<size_t>(id);
        const auto product = [&](size_t r) {
          const float* w = &layer.gate_up_rows[(e * layer.packed + r) * s.hidden];
          double sum = f.biases ? layer.gate_up_bias.Get(e * layer.packed + r) : 0;
          for (size_t h = 0; h < s.hidden; ++h) sum += static_cast<double>(w[h]) * in[h];
          return sum;
        };
        for (size_t i = 0; i < s.inner; ++i) {
          const bool turns = f.packing == mojo::Packing::kInterleaved;
          const double gate = product(turns ? 2 * i : i);
          activated[i] =
              Activate(f, gate, f.packing == mojo::Packing::kNone ? 0 : product(turns ? 2 * i + 1 : s.inner + i));
        }
        for (size_t h = 0; h < s.hidden; ++h) {
          const float* w = &layer.down_rows[(e * s.hidden + h) * s.inner];
          double sum = f.biases ? layer.down_bias.Get(e * s.hidden + h) : 0;
          for (size_t i = 0; i < s.inner; ++i) sum += w[i] * activated[i];
          out[h] += weights.Get(t * s.top_k + j) * sum;
        }
      }
    });
  }

  MojoMoEArgs Args(void* scratch) const {
    const Form& f = layer.form;
    MojoMoEArgs a = {};
    a.x = x.device();
    a.weights = weights.device();
    a.ids = ids.device;
    a.gate_up = layer.gate_up.device();
    a.down = layer.down.device();
    a.gate_up_bias = f.biases ? layer.gate_up_bias.device() : nullptr;
    a.down_bias = f.biases ? layer.down_bias.device() : nullptr;
    a.y = y.device();
    a.scratch = scratch;
    a.tokens = tokens;
    a.top_k = layer.size.top_k;
    a.experts = layer.size.experts;
    a.hidden = layer.size.hidden;
    a.inner = layer.size.inner;
    a.x_type = f.x;
    a.weights_type = f.weights;
    a.expert_type = f.experts_type;
    a.packing = f.packing;
    a.gate_up_in_out = f.gate_up_in_out;
    a.down_in_out = f.down_in_out;
    a.gate.activation = f.activation;
    a.gate.alpha = f.alpha;
    a.gate.limit = f.limit;
    a.gate.up_offset = f.up_offset;
    return a;
  }

  // Error is the greatest distance from the reference over the distance that rounding explains: fine up to 1.
  double Error() {
    y.ToHost();
    // 16-bit numbers are multiplied as such, so the activation is rounded, and in large calls each choice; a sum may be
    // smaller than its terms.
    const MojoType coarse = layer.form.x;
    const double unit = coarse == kMojoFloat32 ? 3e-6 : coarse == kMojoFloat16 ? 1.0 / 1024 : 1.0 / 128;
    double worst = 0;
    for (size_t t = 0; t < tokens; ++t) {
      double square = 0, off = 0;
      for (size_t h = 0; h < layer.size.hidden; ++h) {
        const double w = want[t * layer.size.hidden + h], d = y.Get(t * layer.size.hidden + h) - w;
        square += w * w;
        off += d * d;
      }
      const double norm = sqrt(square / static_cast<double>(layer.size.hidden));
      // The whole row, and each number.
      double error = square == 0 ? (off == 0 ? 0 : 99) : sqrt(off / square) / unit;
      for (size_t h = 0; h < layer.size.hidden; ++h) {
        const double w = want[t * layer.size.hidden + h], d = fabs(y.Get(t * layer.size.hidden + h) - w);
        const double e = square == 0 ? (d == 0 ? 0 : 99) : d / (3 * unit * (norm + fabs(w)));
        if (!(e <= error)) error = e;  // a NaN too
        if (error != error) return 1e9;
      }
      worst = fmax(worst, error);
    }
    return worst;
  }
};

// Scratch is memory of the size that a call asks for, full of NaN.
struct Scratch {
  Numbers memory;

  explicit Scratch(const MojoMoEArgs& a) : memory(kMojoFloat32, MojoMoEScratch(&a) / 4 + 1) {}
  bool Kept() const { return memory.Guarded(); }
};

int failures = 0, checks = 0;
double greatest = 0;

void Report(bool fine, double error, const std::string& what) {
  ++checks;
  if (error < 1e8 && fine) greatest = fmax(greatest, error);
  if (fine) return;
  ++failures;
  if (failures <= 40) printf("FAILED %s: %.3g of what rounding explains\n", what.c_str(), error);
}

std::string Name(const Form& f, const Size& s, size_t tokens, Routing routing) {
  static const char* packings[] = {"halves", "by turns", "no gate"};
  static const char* routings[] = {"spread", "all on one", "repeated", "bad ids", "few experts"};
  char text[300];
  snprintf(
      text, sizeof(text),
      "T %zu E %zu k %zu H %zu I %zu x %s experts %s weights %s, %s, %s/%s%s, activation %d limit %g offset %zu, %s",
      tokens, s.experts, s.top_k, s.hidden, s.inner, TypeName(f.x), TypeName(f.experts_type), TypeName(f.weights),
      packings[static_cast<int>(f.packing)], f.gate_up_in_out ? "in_out" : "out_in",
      f.down_in_out ? "in_out" : "out_in", f.biases ? ", biases" : "", static_cast<int>(f.activation), f.limit,
      f.offset, routings[routing]);
  return text;
}

// Test runs one call twice and compares.
void Test(const Layer& layer, size_t tokens, Routing routing, Random* random) {
  const std::string name = Name(layer.form, layer.size, tokens, routing);
  Call call(layer, tokens);
  call.Fill(routing, random);
  Scratch scratch(call.Args(nullptr));
  const MojoMoEArgs a = call.Args(scratch.memory.device());
  call.Reference();
  call.y.Poison();
  Check(MojoCudaMoE(&a, nullptr), name.c_str());
  Check(cudaDeviceSynchronize(), name.c_str());
  const double error = call.Error();
  const std::vector<char> first = call.y.bytes();
  call.y.Poison();
  Check(MojoCudaMoE(&a, nullptr), name.c_str());
  Check(cudaDeviceSynchronize(), name.c_str());
  call.y.ToHost();
  Report(error <= 1, error, name);
  Report(first == call.y.bytes(), 0, name + ": a second run has other bits");
  Report(call.y.Guarded() && scratch.Kept(), 0, name + ": writes outside");
}

// TestForms tries the forms of a type.
void TestForms(MojoType x, MojoType experts, MojoType weights, const std::vector<size_t>& tokens, Random* random,
               size_t inner = 88) {
  for (int n = 0; n < 12; ++n) {
    Form f;
    f.x = x;
    f.experts_type = experts;
    f.weights = weights;
    f.packing = static_cast<mojo::Packing>(n % 3);
    f.gate_up_in_out = n / 3 % 2 != 0;
    f.down_in_out = n / 6 % 2 != 0;
    f.activation = static_cast<mojo::Activation>(n % 5);
    f.biases = n % 4 != 1;
    if (f.activation == mojo::Activation::kSilu && n % 2 == 0) f.alpha = 1.702f;
    if (f.packing != mojo::Packing::kNone && n % 4 >= 2) f.limit = 1.5f, f.up_offset = 1;
    const Layer layer(f, {8, 3, 136, inner}, random);
    for (const size_t t : tokens) Test(layer, t, static_cast<Routing>(n % 5), random);
  }
}

// TestGraph replays a captured call with other inputs.
void TestGraph(const Layer& layer, size_t tokens, Random* random) {
  Call call(layer, tokens);
  Scratch scratch(call.Args(nullptr));
  const MojoMoEArgs a = call.Args(scratch.memory.device());
  call.Fill(kSpread, random);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  Check(MojoCudaMoE(&a, stream), "captured call");
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  for (const Routing routing : {kSpread, kAllOnOne, kBadIds, kRepeated}) {
    call.Fill(routing, random);
    call.Reference();
    call.y.Poison();
    Check(cudaDeviceSynchronize(), "before replay");
    Check(cudaGraphLaunch(exec, stream), "replay");
    Check(cudaStreamSynchronize(stream), "replay");
    const double error = call.Error();
    Report(error <= 1, error, "graph, " + Name(layer.form, layer.size, tokens, routing));
  }
  Check(cudaGraphExecDestroy(exec), "graph");
  Check(cudaGraphDestroy(graph), "graph");
  Check(cudaStreamDestroy(stream), "stream");
}

// TestChain runs calls back to back in the same scratch memory, each of which reads the previous output: a kernel that
// starts early must not read or write too early.
void TestChain(const Layer& layer, size_t tokens, Random* random) {
  Call one(layer, tokens), two(layer, tokens);
  one.Fill(kSpread, random);
  two.Fill(kFewExperts, random);
  Scratch scratch(one.Args(nullptr));
  const MojoMoEArgs a = one.Args(scratch.memory.device());
  MojoMoEArgs b = two.Args(scratch.memory.device());
  b.x = a.y;
  for (int i = 0; i < 20; ++i) {
    Check(MojoCudaMoE(&a, nullptr), "chain");
    Check(MojoCudaMoE(&b, nullptr), "chain");
  }
  Check(cudaDeviceSynchronize(), "chain");
  one.Reference();
  const double first = one.Error();
  Report(first <= 1, first, "chain, first, " + Name(layer.form, layer.size, tokens, kSpread));
  for (size_t i = 0; i < one.y.count(); ++i) two.x.Set(i, one.y.Get(i));
  two.Reference();
  const double second = two.Error();
  Report(second <= 1, second, "chain, second, " + Name(layer.form, layer.size, tokens, kFewExperts));
}

void Line(const char* what, int* before, double* error) {
  printf("%-58s %5d checks, at most %.2f of what rounding explains\n", what, checks - *before, greatest);
  fflush(stdout);
  *before = checks;
  *error = greatest = 0;
}

// TestEachWay runs every MoE implementation, with tiles of every width, on its smallest input: racecheck takes minutes
// for more.
void TestEachWay(Random* random) {
  for (int n = 0; n < 4; ++n) {
    Form f;
    f.x = f.experts_type = n == 3 ? kMojoFloat32 : n == 2 ? kMojoFloat16 : kMojoBFloat16;
    f.packing = n == 1 ? mojo::Packing::kInterleaved : mojo::Packing::kHalves;
    f.gate_up_in_out = f.down_in_out = n == 1;
    f.biases = n == 1;
    const Layer layer(f, {4, 2, 136, 88}, random);
    for (const size_t t : {3, 12, 40, 100, 200}) Test(layer, t, kSpread, random);
  }
}

}  // namespace

// Arguments: "small" and "race" are for compute-sanitizer's memcheck and racecheck.
int main(int argc, char** argv) {
  const bool small = argc > 1 && strcmp(argv[1], "small") == 0;
  Random random(7);
  int before = 0;
  double error = 0;
  const std::vector<size_t> few = {1, 3, 8, 11, 33}, all = {0, 1, 3, 8, 16, 33, 70, 200, 512};
  if (argc > 1 && strcmp(argv[1], "race") == 0) {
    TestEachWay(&random);
    Line("each way", &before, &error);
    return failures == 0 ? 0 : 1;
  }
  const MojoType half = kMojoFloat16, bfloat = kMojoBFloat16, single = kMojoFloat32;
  TestForms(bfloat, bfloat, single, small ? few : all, &random);
  Line("bfloat16, all forms", &before, &error);
  TestForms(half, half, half, small ? few : all, &random);
  Line("float16, all forms, float16 weights", &before, &error);
  TestForms(single, single, single, small ? few : all, &random);
  Line("float32, all forms", &before, &error);
  TestForms(bfloat, bfloat, bfloat, {1, 64}, &random);
  TestForms(single, bfloat, single, {1, 8, 33}, &random);
  TestForms(half, single, single, {1, 8, 33}, &random);
  TestForms(bfloat, half, bfloat, {1, 8, 33}, &random);
  Line("mixed types", &before, &error);
  TestForms(bfloat, bfloat, single, {3, 33, 70, 150}, &random, 56);
  TestForms(half, half, single, {3, 33, 70, 150}, &random, 56);
  Line("less than a stage of Hopper's is deep", &before, &error);
  for (const Size& s : {Size{4, 2, 33, 17}, Size{3, 1, 40, 24}, Size{16, 4, 264, 8}, Size{1, 1, 8, 8},
                        Size{5, 5, 72, 200}, Size{40, 8, 64, 64}, Size{6, 4, 72, 1048}}) {
    for (const MojoType type : {bfloat, half, single}) {
      for (const size_t offset : {0, 4}) {
        Form f;
        f.x = f.experts_type = type;
        f.offset = offset;
        f.biases = offset == 0;
        const Layer layer(f, s, &random);
        for (const size_t t : {1, 7, 16, 65}) Test(layer, t, t == 7 ? kRepeated : kSpread, &random);
      }
    }
  }
  Line("odd sizes, unaligned data", &before, &error);
  for (int n = 0; n < 4; ++n) {
    Form f;
    f.packing = n % 2 == 0 ? mojo::Packing::kHalves : mojo::Packing::kInterleaved;
    f.gate_up_in_out = f.down_in_out = n >= 2;
    const Layer layer(f, {16, 4, 256, 192}, &random);
    for (const size_t t : {4, 8, 16, 64, 200}) TestGraph(layer, t, &random);
    for (const size_t t : {1, 8, 16, 64, 200}) TestChain(layer, t, &random);
  }
  Line("graphs with changed routing, calls in a row", &before, &error);
  if (!small) {
    for (const MojoType type : {bfloat, half}) {
      for (int n = 0; n < 3; ++n) {
        Form f;
        f.x = f.experts_type = type;
        f.packing = static_cast<mojo::Packing>(n);
        f.gate_up_in_out = f.down_in_out = n == 1;
        f.biases = n == 1;
        const Layer layer(f, {32, 4, 320, 160}, &random);
        for (const size_t t : {130, 512, 1000, 4096}) {
          for (const Routing r : {kSpread, kAllOnOne, kBadIds}) Test(layer, t, r, &random);
        }
      }
    }
    Line("many tokens", &before, &error);
    Form f;
    const Layer wide(f, {6, 2, 2048, 768}, &random);
    for (const size_t t : {1, 8, 16, 64}) Test(wide, t, kSpread, &random);
    f.packing = mojo::Packing::kInterleaved;
    f.biases = true;
    f.limit = 7;
    f.alpha = 1.702f;
    f.up_offset = 1;
    const Layer clamped(f, {5, 4, 2880, 2880}, &random);
    for (const size_t t : {1, 8, 20}) Test(clamped, t, kSpread, &random);
    f.gate_up_in_out = f.down_in_out = true;
    const Layer turned(f, {5, 4, 2880, 2880}, &random);
    for (const size_t t : {1, 8, 20}) Test(turned, t, kSpread, &random);
    for (const MojoType type : {bfloat, half}) {
      for (int n = 0; n < 3; ++n) {
        Form g;
        g.x = g.experts_type = type;
        g.packing = static_cast<mojo::Packing>(n);
        g.biases = n != 0;
        const Layer deep(g, {2, 1, 2056, 2048}, &random);
        for (const size_t t : {230, 333}) Test(deep, t, t == 230 ? kSpread : kAllOnOne, &random);
      }
    }
    const Layer many(Form(), {600, 8, 64, 32}, &random);
    for (const size_t t : {1, 16, 512}) Test(many, t, kSpread, &random);
    Line("widths of models, 600 experts", &before, &error);
  }
  MojoCudaSetDependentLaunch(0);
  const Layer plain(Form(), {16, 4, 256, 192}, &random);
  for (const size_t t : {1, 8, 64}) TestChain(plain, t, &random);
  Line("without dependent launches", &before, &error);
  printf("moe_test: %d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
