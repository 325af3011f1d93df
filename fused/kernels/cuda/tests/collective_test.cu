// The collective ops on all GPUs, one process each, or two processes on one GPU: each result against its definition,
// whose bits are known, and the same on every rank. Exits 1 on a failure. `make cuda-programs` builds it; it ends
// within a minute.
#include "cuda/tests/ranks.h"
#include "cuda/tests/tally.h"

namespace {

using mojo::PeerView;

// Group is this rank, its peers, and the results of its tests.
struct Group {
  const Rank& me;
  const PeerView& peers;
  cudaStream_t stream;
  Tally tally{"collective"};

  int ranks() const { return me.ranks; }
  void Done(const std::string& name, cudaError_t launched) {
    ++tally.cases;
    if (launched != cudaSuccess) Fail(&tally, name, cudaGetErrorString(launched));
    Check(cudaStreamSynchronize(stream), name.c_str());
  }
};

// Values are one tensor of all ranks on the host, which each rank draws by itself, and this rank's on the device.
struct Values {
  MojoType type;
  std::vector<std::vector<float>> of;
  Numbers own;

  Values(const Group& g, MojoType type, size_t count, uint64_t seed, size_t offset = 0, float scale = 1)
      : type(type), of(g.ranks()), own(type, count, offset) {
    for (int r = 0; r < g.ranks(); ++r) {
      Random random(seed * 64 + r);
      of[r].resize(count);
      for (float& v : of[r]) {
        v = RoundTo(type, random.Normal() * scale);
        if (random.Below(50) == 0) v = random.Below(3) == 0 ? INFINITY : -0.0f;
      }
    }
    for (size_t i = 0; i < count; ++i) own.Set(i, of[g.me.rank][i]);
    own.ToDevice();
  }
  // Sum is what AllReduce must give.
  float Sum(size_t i) const {
    float sum = 0;
    for (const auto& v : of) sum += v[i];
    return RoundTo(type, sum);
  }
};

// Same compares the bits of a result with numbers. NaN is any NaN, and a zero has any sign if any_zero.
void Same(Group* g, const std::string& name, Numbers* y, const std::function<float(size_t)>& want,
          bool any_zero = false) {
  y->ToHost();
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < y->count(); ++i) {
    const float got = y->Get(i), w = want(i);
    const bool same = (isnan(got) && isnan(w)) || (got == w && (any_zero || signbit(got) == signbit(w)));
    if (!same && wrong++ == 0) first = i;
  }
  if (!y->Guarded()) Fail(&g->tally, name, "it wrote beside its result");
  if (wrong == 0) return;
  char what[160];
  snprintf(what, sizeof(what), "rank %d: %zu of %zu are wrong, the first, %zu, is %.9g, not %.9g", g->me.rank, wrong,
           y->count(), first, y->Get(first), want(first));
  Fail(&g->tally, name, what);
}

MojoAllReduceArgs Reduces(const PeerView& peers, const Numbers& x, const Numbers& y, MojoType type) {
  MojoAllReduceArgs a;
  a.peers = &peers;
  a.x = x.device(), a.y = y.device(), a.count = y.count(), a.type = type;
  return a;
}

void TestAllReduce(Group* g, MojoType type, size_t count, size_t offset, bool in_place) {
  const std::string name = std::string("AllReduce ") + TypeName(type) + " " + std::to_string(count) + " offset " +
                           std::to_string(offset) + (in_place ? " in place" : "");
  Values x(*g, type, count, count + offset, offset);
  Numbers y(type, count, offset);
  Numbers* const result = in_place ? &x.own : &y;
  const MojoAllReduceArgs a = Reduces(g->peers, x.own, *result, type);
  g->Done(name, MojoCudaAllReduce(&a, g->stream));
  Same(g, name, result, [&](size_t i) { return x.Sum(i); });
}

struct NormForm {
  MojoType x_type, scale_type;
  size_t rows, width, offset;
  bool after_cast, keeps_sum;
};

void TestNorm(Group* g, const NormForm& f) {
  char name[160];
  snprintf(name, sizeof(name), "AllReduceAddRMSNorm %s scale %s [%zu, %zu] offset %zu after_cast %d sum %d",
           TypeName(f.x_type), TypeName(f.scale_type), f.rows, f.width, f.offset, f.after_cast, f.keeps_sum);
  const size_t count = f.rows * f.width;
  const MojoType y_type = f.after_cast ? f.scale_type : f.x_type;
  Values x(*g, f.x_type, count, count + f.width, f.offset);
  for (int r = 0; r < g->ranks(); ++r) {  // finite: an infinite row is all NaN
    for (float& v : x.of[r]) v = isinf(v) ? 1 : v;
  }
  for (size_t i = 0; i < count; ++i) x.own.Set(i, x.of[g->me.rank][i]);
  x.own.ToDevice();
  Random random(7);
  Numbers residual(f.x_type, count, f.offset), scale(f.scale_type, f.width, f.offset), y(y_type, count, f.offset),
      sum(f.x_type, count, f.offset);
  residual.Fill(&random, 1), residual.ToDevice();
  scale.Fill(&random, 1), scale.ToDevice();
  MojoAllReduceAddRMSNormArgs a;
  a.peers = &g->peers;
  a.x = x.own.device(), a.residual = residual.device(), a.scale = scale.device(), a.y = y.device();
  a.sum = f.keeps_sum ? sum.device() : nullptr;
  a.rows = f.rows, a.width = f.width, a.x_type = f.x_type, a.scale_type = f.scale_type;
  a.epsilon = 1e-6f, a.scale_after_cast = f.after_cast;
  Numbers scratch(kMojoFloat32, MojoAllReduceAddRMSNormScratch(&a) / 4);
  a.scratch = scratch.device();
  g->Done(name, MojoCudaAllReduceAddRMSNorm(&a, g->stream));
  std::vector<float> sums(count);
  for (size_t i = 0; i < count; ++i) sums[i] = RoundTo(f.x_type, x.Sum(i) + residual.Get(i));
  if (f.keeps_sum) Same(g, name, &sum, [&](size_t i) { return sums[i]; }, true);
  Want want(count);
  for (size_t row = 0; row < f.rows; ++row) {
    const std::vector<float> of_row(sums.begin() + row * f.width, sums.begin() + (row + 1) * f.width);
    Normalize(
        of_row, [&](size_t i) { return scale.Get(i); }, a.epsilon, f.after_cast, y_type,
        want.value.data() + row * f.width, want.off.data() + row * f.width);
  }
  Compare(&g->tally, name, &y, y_type, want, 0.02);
  // The bits are the same on every rank.
  const size_t bytes = std::min<size_t>(y.bytes().size(), Board::kMost);
  std::vector<char> all(bytes * g->ranks());
  if (!g->me.Gather()(y.bytes().data(), all.data(), bytes)) Fail(&g->tally, name, "a rank has ended");
  for (int r = 0; r < g->ranks(); ++r) {
    if (memcmp(all.data() + r * bytes, y.bytes().data(), bytes) != 0) Fail(&g->tally, name, "ranks have other bits");
  }
}

void TestParts(Group* g, MojoType type, size_t lines, size_t inner, size_t offset) {
  const std::string form = std::string(TypeName(type)) + " [" + std::to_string(lines) + ", ranks, " +
                           std::to_string(inner) + "] offset " + std::to_string(offset);
  const size_t ranks = g->ranks(), part = lines * inner, me = g->me.rank;
  Values one(*g, type, part, part + 1, offset), all(*g, type, part * ranks, part + 2, offset);
  Numbers y_one(type, part, offset), y_all(type, part * ranks, offset);
  MojoPartsArgs a;
  a.peers = &g->peers, a.part = part, a.inner = inner, a.type = type;
  const auto in_all = [&](size_t i, size_t r) { return (i / inner * ranks + r) * inner + i % inner; };
  a.x = one.own.device(), a.y = y_all.device();
  g->Done("AllGather " + form, MojoCudaAllGather(&a, g->stream));
  Same(g, "AllGather " + form, &y_all, [&](size_t i) {
    const size_t line = i / (inner * ranks), r = i / inner % ranks;
    return one.of[r][line * inner + i % inner];
  });
  a.x = all.own.device();
  y_all.Poison();
  g->Done("AllToAll " + form, MojoCudaAllToAll(&a, g->stream));
  Same(g, "AllToAll " + form, &y_all, [&](size_t i) {
    const size_t line = i / (inner * ranks), r = i / inner % ranks;
    return all.of[r][in_all(line * inner + i % inner, me)];
  });
  a.y = y_one.device();
  g->Done("ReduceScatter " + form, MojoCudaReduceScatter(&a, g->stream));
  Same(g, "ReduceScatter " + form, &y_one, [&](size_t i) { return all.Sum(in_all(i, me)); });
}

// Mix is steps of all kinds and sizes.
struct Mix {
  static constexpr size_t kForms = 7;
  std::vector<std::unique_ptr<Values>> x;
  std::vector<std::unique_ptr<Numbers>> y;

  explicit Mix(const Group& g) {
    const size_t counts[kForms] = {8, 6 * 6144, 2048, 100000, 1, 3 << 20, 4096};
    for (size_t i = 0; i < kForms; ++i) {
      x.push_back(std::make_unique<Values>(g, kMojoBFloat16, counts[i], 900 + i));
      y.push_back(std::make_unique<Numbers>(kMojoBFloat16, counts[i] * (i == 6 ? g.ranks() : 1)));
    }
  }
  cudaError_t Launch(const Group& g, size_t i) const {
    if (i != 6) {
      const MojoAllReduceArgs a = Reduces(g.peers, x[i]->own, *y[i], kMojoBFloat16);
      return MojoCudaAllReduce(&a, g.stream);
    }
    MojoPartsArgs a;
    a.peers = &g.peers;
    a.x = x[i]->own.device(), a.y = y[i]->device(), a.part = a.inner = x[i]->own.count(), a.type = kMojoBFloat16;
    return MojoCudaAllGather(&a, g.stream);
  }
  void Compare(Group* g, const std::string& name) const {
    for (size_t i = 0; i < kForms; ++i) {
      const Values& from = *x[i];
      const size_t part = from.own.count();
      Same(g, name + ", form " + std::to_string(i), y[i].get(),
           [&](size_t k) { return i == 6 ? from.of[k / part][k % part] : from.Sum(k); });
      y[i]->Poison();
    }
  }
};

// TestSteps launches many steps, which ranks reach at different times, without waiting for them.
void TestSteps(Group* g, int steps) {
  const Mix mix(*g);
  Random order(5), sleeps(g->me.rank + 100);
  for (int i = 0; i < steps; ++i) {
    const size_t form = i < 7 ? i : order.Below(Mix::kForms);
    if (sleeps.Below(100) == 0) usleep(static_cast<useconds_t>(sleeps.Below(3000)));
    const cudaError_t e = mix.Launch(*g, form);
    if (e != cudaSuccess) Fail(&g->tally, "steps", cudaGetErrorString(e));
    if ((i + 1) % (steps / 4) != 0) continue;
    g->Done("steps", cudaSuccess);
    if (i > steps / 4) {  // all forms again: Compare has poisoned their results
      for (size_t f = 0; f < Mix::kForms; ++f) mix.Launch(*g, f);
      g->Done("steps", cudaSuccess);
    }
    mix.Compare(g, "after " + std::to_string(i + 1) + " steps");
  }
}

// TestGraph replays a graph of a number of steps that the buffers do not divide, with new numbers.
void TestGraph(Group* g, int replays) {
  const Mix mix(*g);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  Check(cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeGlobal), "capture");
  for (size_t i = 0; i < Mix::kForms; ++i) Check(mix.Launch(*g, i), "captured");
  for (int i = 0; i < 3; ++i) Check(mix.Launch(*g, 1), "captured");
  Check(cudaStreamEndCapture(g->stream, &graph), "capture");
  Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  for (int n = 0; n < replays; ++n) {
    const auto& x = mix.x[1];
    for (auto& values : x->of) std::rotate(values.begin(), values.begin() + 17, values.end());
    for (size_t i = 0; i < x->own.count(); ++i) x->own.Set(i, x->of[g->me.rank][i]);
    x->own.ToDevice();
    Check(cudaGraphLaunch(exec, g->stream), "replay");
    g->Done("graph", cudaSuccess);
    mix.Compare(g, "replay " + std::to_string(n));
  }
  Check(cudaGraphExecDestroy(exec), "graph");
  Check(cudaGraphDestroy(graph), "graph");
}

// Test runs all cases, or with few some of them, over memory in one place.
int Test(const Rank& me, mojo::SharedPlace place, bool few, bool alone) {
  std::string error;
  const auto peers = mojo::Peers::MakeIn(place, me.rank, me.ranks, 10, me.Gather(), &error);
  if (peers == nullptr) {
    if (me.rank == 0) printf("%d ranks cannot share memory: %s\n", me.ranks, error.c_str());
    return alone ? 0 : 1;
  }
  Group g{me, peers->view(), nullptr};
  Check(cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking), "stream");
  for (const MojoType type : {kMojoFloat32, kMojoFloat16, kMojoBFloat16}) {
    if (few && type == kMojoFloat16) continue;
    for (const size_t count : {1, 2, 7, 8, 9, 1000, 6 * 6144, 138 * 6144, 64 * 4096 + 3, 1 << 20}) {
      TestAllReduce(&g, type, count, 0, count % 2 == 0);
    }
    TestAllReduce(&g, type, 5003, SizeOf(type), false);
    for (const size_t offset : {size_t{0}, SizeOf(type)}) {
      TestParts(&g, type, 1, 8 * 1024 + (offset > 0 ? 1 : 0), offset);
      TestParts(&g, type, 6, 96, offset);
      TestParts(&g, type, 5, 7, offset);
    }
  }
  // More than the buffers hold at once.
  TestAllReduce(&g, kMojoBFloat16, (10 << 20) + 3, 0, true);
  TestParts(&g, kMojoBFloat16, 3, (3 << 20) / me.ranks, 0);
  for (const MojoType narrow : {kMojoFloat16, kMojoBFloat16}) {
    if (few && narrow == kMojoFloat16) continue;
    for (const auto& size : {std::pair<size_t, size_t>{6, 6144},
                             {1, 2048},
                             {64, 4096},
                             {138, 6144},
                             {3, 16384},
                             {300, 512},
                             {5, 100},
                             {2, 20000},
                             {9, 8}}) {
      TestNorm(&g, {narrow, narrow, size.first, size.second, 0, size.first % 2 == 0, size.first != 9});
    }
    TestNorm(&g, {narrow, kMojoFloat32, 7, 1024, 0, false, true});
    TestNorm(&g, {kMojoFloat32, narrow, 7, 1024, 0, true, true});
    TestNorm(&g, {kMojoFloat32, narrow, 7, 1023, 0, true, false});
    TestNorm(&g, {narrow, narrow, 4, 2048, 2, false, true});
  }
  TestNorm(&g, {kMojoFloat32, kMojoFloat32, 6, 6144, 0, false, true});
  TestSteps(&g, few ? 100 : 1000);
  TestGraph(&g, few ? 4 : 20);
  const int result = Report({&g.tally});
  return me.Wait() ? result : 1;  // no rank frees memory that another uses
}

// TestLate lets the last rank launch nothing: all others must end, and name it.
int TestLate(const Rank& me, bool alone) {
  std::string error;
  const auto peers = mojo::Peers::Make(me.rank, me.ranks, 1, me.Gather(), &error);
  if (peers == nullptr) return alone ? 0 : 1;
  Numbers x(kMojoFloat32, 100), y(kMojoFloat32, 100);
  int result = 0;
  if (me.rank != me.ranks - 1) {
    const MojoAllReduceArgs a = Reduces(peers->view(), x, y, kMojoFloat32);
    const cudaError_t launched = MojoCudaAllReduce(&a, nullptr);
    const cudaError_t ended = cudaDeviceSynchronize();
    if (launched != cudaSuccess || ended == cudaSuccess || peers->Late() != me.ranks - 1) {
      printf("FAIL rank %d of %d without rank %d: %s, late is %d\n", me.rank, me.ranks, me.ranks - 1,
             cudaGetErrorString(ended), peers->Late());
      result = 1;
    }
  }
  return me.Wait() ? result : 1;
}

// TestClosed closes memory that other ranks still have open: it must be freed, but later.
int TestClosed(const Rank& me) {
  size_t bytes = 0, first = 0, free = 0, all = 0;
  for (int n = 0; n < 9; ++n) {
    std::string error;
    auto peers = mojo::Peers::MakeIn(mojo::SharedPlace::kDevice, me.rank, me.ranks, 10, me.Gather(), &error);
    if (peers == nullptr) return 0;
    bytes = peers->view().Bytes();
    if (me.rank == n % me.ranks) peers.reset();
    if (!me.Wait()) return 1;
    peers.reset();
    if (!me.Wait()) return 1;
    Check(cudaMemGetInfo(&free, &all), "memory");
    if (n == 0) first = free;
    if (!me.Wait()) return 1;
  }
  if (free + 4 * bytes > first) return 0;
  printf("FAIL rank %d of %d: %zu bytes of device memory stay after 9 times %zu\n", me.rank, me.ranks, first - free,
         bytes);
  return 1;
}

}  // namespace

int main() {
  alarm(58);
  const int devices = Devices();
  if (devices == 0) {
    printf("collective_test: no GPU\n");
    return 1;
  }
  int failed = 0;
  for (const int ranks : {2, 3, 4, 8}) {
    if (ranks > 2 && ranks > devices) break;
    printf("%d ranks%s\n", ranks, ranks > devices ? " on one GPU" : "");
    const bool alone = ranks > devices;
    for (const auto place : {mojo::SharedPlace::kDevice, mojo::SharedPlace::kHost}) {
      printf("memory of the %s\n", place == mojo::SharedPlace::kHost ? "host" : "devices");
      const bool few = alone || place == mojo::SharedPlace::kHost;
      failed += RunRanks(ranks, devices, 25, [&](const Rank& me) { return Test(me, place, few, alone); });
    }
    failed += RunRanks(ranks, devices, 10, TestClosed);
    failed += RunRanks(ranks, devices, 10, [&](const Rank& me) { return TestLate(me, alone); });
  }
  printf("collective_test: %s\n", failed == 0 ? "all passed" : "failed");
  return failed == 0 ? 0 : 1;
}
