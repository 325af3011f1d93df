// Attention against its definition in double on the host. Exits 1 on a failure. `make cuda-programs` builds it.
// Arguments: "small" and "race" are for compute-sanitizer's memcheck and racecheck.
#include "cuda/tests/attention_case.h"

namespace {

int checks = 0, failures = 0;
double share = 0;

void Fail(const Form& f, const std::string& what) {
  if (++failures <= 20) printf("FAIL %s: %s\n", f.Text().c_str(), what.c_str());
}

// Test runs a form twice; the second run must return the same bits.
void Test(const Form& f, Random* random) {
  Case c(f, random);
  ++checks;
  Check(MojoCudaAttention(&c.args, nullptr), f.Text().c_str());
  Check(cudaDeviceSynchronize(), f.Text().c_str());
  const std::string wrong = c.Check();
  share = std::max(share, c.share);
  if (!wrong.empty()) return Fail(f, wrong);
  const std::vector<char> once = c.y.bytes();
  c.y.Poison();
  Check(MojoCudaAttention(&c.args, nullptr), "again");
  c.y.ToHost();
  if (c.y.bytes() != once) Fail(f, "another result the second time");
}

// Any draws a form.
Form Any(MojoType type, Random* random) {
  const auto pick = [&](std::vector<size_t> of) { return of[random->Below(of.size())]; };
  Form f;
  f.type = type;
  f.batch = pick({1, 1, 2, 3});
  f.key_heads = pick({1, 2, 3});
  f.group = pick({1, 2, 3, 4, 7, 8});
  f.queries = pick({1, 1, 1, 2, 3, 5, 17, 40, 70, 130});
  f.added = pick({f.queries, f.queries, f.queries, 4, 0});
  f.width = pick({8, 16, 24, 40, 64, 64, 80, 128, 128, 192, 256, 9, 320});
  f.value_width = random->Below(3) == 0 ? pick({8, 16, 64, 128, 256, 7, 136, 300}) : f.width;
  f.past = pick({0, 1, 9, 31, 64, 130, 300, 700});
  f.cache = f.past > 0;
  if (f.past >= f.added && f.cache && random->Below(2) == 0) f.lengths = pick({1, f.batch});
  f.in_place = random->Below(3) != 0;
  f.presents = random->Below(5) != 0;
  f.causal = random->Below(3) != 0;
  f.window = pick({0, 0, 1, 5, 64, 200});
  f.softcap = static_cast<float>(pick({0, 0, 2, 30}));
  f.mean = random->Below(2) == 0;
  f.cyclic = random->Below(3) == 0;
  f.sink = random->Below(3) == 0;
  for (bool& by_token : f.by_token) by_token = random->Below(2) == 0;
  f.padding = static_cast<Padding>(random->Below(2) * random->Below(5));
  f.bias = random->Below(3) == 0 ? static_cast<int>(random->Below(16)) : -1;
  f.offset = random->Below(8) == 0 ? 4 : 0;
  return f;
}

void Line(const char* what) {
  static int checked = 0, failed = 0;
  printf("%-60s %5d checks, %d failed, worst %.2f of what may be\n", what, checks - checked, failures - failed, share);
  checked = checks, failed = failures, share = 0;
  fflush(stdout);
}

// Heads and widths of models.
struct Model {
  size_t key_heads, group, width, value_width, window;
  float softcap;
  bool sink;
};
const Model kModels[] = {{8, 4, 128, 128, 0, 0, false},  {4, 8, 128, 128, 0, 0, false},  {8, 8, 64, 64, 128, 0, true},
                         {4, 2, 256, 256, 0, 50, false}, {3, 3, 64, 64, 0, 0, false},    {2, 7, 128, 128, 0, 0, false},
                         {4, 1, 192, 128, 0, 0, false},  {1, 16, 576, 512, 0, 0, false}, {2, 1, 96, 96, 0, 0, false}};

Form Of(const Model& m, MojoType type) {
  Form f;
  f.type = type;
  f.key_heads = m.key_heads;
  f.group = m.group;
  f.width = m.width;
  f.value_width = m.value_width;
  f.window = m.window;
  f.softcap = m.softcap;
  f.sink = m.sink;
  f.scale = 1 / sqrtf(static_cast<float>(m.width));
  for (bool& by_token : f.by_token) by_token = true;
  return f;
}

// TestPadded runs a form with every key and with left padding; rows that see no key get the mean.
void TestPadded(Form f, Random* random) {
  Test(f, random);
  f.padding = kLeft;
  f.mean = true;
  Test(f, random);
}

// TestModels runs steps of one token, and prompts with a past.
void TestModels(MojoType type, bool small, Random* random) {
  for (const Model& m : kModels) {
    Form f = Of(m, type);
    for (const size_t past : small ? std::vector<size_t>{77} : std::vector<size_t>{1, 63, 500, 2049, 5000}) {
      for (const size_t batch : {1, 3}) {
        f.batch = batch;
        f.past = past;
        f.lengths = 0;
        Test(f, random);
        f.lengths = batch;
        TestPadded(f, random);
      }
    }
    f.batch = 2;
    f.lengths = 0;
    for (const size_t queries : small ? std::vector<size_t>{70} : std::vector<size_t>{2, 4, 33, 64, 300}) {
      f.queries = f.added = queries;
      for (const size_t past : {0, 130}) {
        f.past = past;
        f.cache = past > 0;
        TestPadded(f, random);
      }
    }
  }
}

// TestBranches runs each kernel and its branches once with few rows: racecheck is slow.
void TestBranches(Random* random) {
  Form step;
  step.group = 3;
  step.past = 300;
  step.lengths = 1;
  const auto with = [&](Form f, const std::function<void(Form*)>& change) {
    change(&f);
    Test(f, random);
  };
  for (const MojoType type : {kMojoBFloat16, kMojoFloat16, kMojoFloat32}) {
    for (const size_t width : {64, 128, 256}) {
      with(step, [&](Form* f) { f->type = type, f->width = f->value_width = width; });
    }
    with(step, [&](Form* f) { f->type = type, f->past = 5000; });  // parts in scratch memory
    with(step, [&](Form* f) { f->type = type, f->sink = true, f->window = 40, f->softcap = 20, f->padding = kHoles; });
    with(step, [&](Form* f) { f->type = type, f->bias = 15, f->padding = kNoneValid, f->mean = true; });
    with(step, [&](Form* f) { f->type = type, f->lengths = 0, f->queries = f->added = 4; });  // 12 rows, appended
    with(step, [&](Form* f) { f->type = type, f->past = 0, f->cache = false, f->lengths = 0; });
  }
  Form prompt = step;
  prompt.queries = prompt.added = 50;
  for (const MojoType type : {kMojoBFloat16, kMojoFloat32}) {
    for (const size_t width : {64, 128, 256}) {
      with(prompt, [&](Form* f) { f->type = type, f->width = f->value_width = width, f->bias = 15; });
    }
    with(prompt, [&](Form* f) { f->type = type, f->width = f->value_width = 9, f->padding = kLeft, f->mean = true; });
  }
  Form latents;
  latents.in_keys = latents.by_token[0] = latents.by_token[3] = true;
  latents.group = 80, latents.width = 576, latents.value_width = 512, latents.scale = 0.05f;
  latents.past = 400, latents.batch = latents.lengths = 2;
  TestPadded(latents, random);
  for (const size_t width : {64, 128, 192, 256}) {  // Hopper's
    with(prompt, [&](Form* f) {
      f->width = width, f->value_width = std::min<size_t>(width, width == 192 ? 128 : 256);
      f->softcap = width == 256 ? 30 : 0, f->padding = kLeft, f->mean = true;
    });
  }
}

// TestLatents uses keys whose first channels are the values, with DeepSeek's widths and others.
void TestLatents(MojoType type, bool small, Random* random) {
  Form f;
  f.type = type;
  f.in_keys = true;
  f.by_token[0] = f.by_token[3] = true;
  for (const size_t group : small ? std::vector<size_t>{16} : std::vector<size_t>{128, 16, 3, 100}) {
    f.group = group;
    f.width = 576;
    f.value_width = 512;
    f.scale = 0.05f;
    for (const size_t past : small ? std::vector<size_t>{150} : std::vector<size_t>{1, 63, 128, 700, 5000}) {
      for (const size_t batch : {1, 3}) {
        for (const size_t queries : {1, 2, 5}) {
          f.queries = f.added = queries;
          f.batch = batch;
          f.past = past;
          f.lengths = 0;
          Test(f, random);
          if (past < queries) continue;
          f.lengths = batch;
          TestPadded(f, random);
          f.padding = kHoles;
          f.causal = f.mean = false;
          Test(f, random);
          f.padding = kAllValid;
          f.causal = true;
        }
      }
    }
  }
  f.queries = f.added = 1;
  f.batch = small ? 3 : 67;  // more sequences than a warp has lanes
  f.past = 300;
  f.lengths = f.batch;
  Test(f, random);
  f.lengths = 1;
  Test(f, random);
  f.width = 96;
  f.value_width = 64;
  f.batch = 2;
  f.lengths = 0;
  TestPadded(f, random);
  f.past = 0;
  f.cache = false;
  f.queries = f.added = 90;
  TestPadded(f, random);
}

// TestReplays captures a step in place, and replays it while the cache grows, and is cut back.
void TestReplays(const Model& m, MojoType type, size_t batch, Random* random) {
  Form f = Of(m, type);
  f.batch = batch;
  f.past = 600;
  f.lengths = batch;
  Case c(f, random);
  for (Numbers* cache : {&c.past_key, &c.past_value}) {
    cache->Fill(random, 1);
    cache->ToDevice();
  }
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  Check(MojoCudaAttention(&c.args, stream), "captured");
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  const size_t lengths[] = {0, 1, 2, 3, 64, 599, 598, 17, 300};
  for (const size_t n : lengths) {
    c.SetLength(n);
    c.Fill(random);
    if (n % 2 == 0) c.scratch->Poison();
    Check(cudaGraphLaunch(exec, stream), "replay");
    Check(cudaStreamSynchronize(stream), "replay");
    ++checks;
    const std::string wrong = c.Check();
    share = std::max(share, c.share);
    if (!wrong.empty()) Fail(f, "replay with " + std::to_string(n) + " keys: " + wrong);
    c.Keep();
  }
  Check(cudaGraphExecDestroy(exec), "graph");
  Check(cudaGraphDestroy(graph), "graph");
  Check(cudaStreamDestroy(stream), "stream");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const MojoType types[] = {kMojoBFloat16, kMojoFloat16, kMojoFloat32};
  Random random(11);
  if (how == "race") {
    TestBranches(&random);
    Line("each kernel and branch");
    TestReplays(kModels[0], kMojoBFloat16, 2, &random);
  } else {
    for (const MojoType type : types) {
      for (int i = 0; i < (how == "small" ? 60 : 700); ++i) Test(Any(type, &random), &random);
      Line((std::string(TypeName(type)) + ", any forms").c_str());
    }
    for (const MojoType type : types) {
      TestModels(type, how == "small", &random);
      Line((std::string(TypeName(type)) + ", heads and widths of models").c_str());
    }
    for (const MojoType type : types) {
      TestLatents(type, how == "small" || type == kMojoFloat32, &random);
      Line((std::string(TypeName(type)) + ", values in keys").c_str());
    }
    for (const MojoType type : types) {
      for (const Model& m : kModels) TestReplays(m, type, 2, &random);
    }
  }
  Line("graphs with lengths on the device");
  if (how != "race") {
    MojoCudaSetDependentLaunch(0);
    for (int i = 0; i < 20; ++i) Test(Any(types[i % 3], &random), &random);
    Line("without dependent launches");
  }
  printf("attention_test: %d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
