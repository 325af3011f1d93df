// Chains of ops that read the previous op's output: dependent launches and graphs must not change the results. Exits 1
// on a failure. `make cuda-programs` builds it. An argument "small" keeps sizes low enough for compute-sanitizer.
#include "cuda/tests/tally.h"

namespace {

// TestChain runs ops that read the previous op's output and overwrite its input: without dependent launches, with them,
// and with them in a graph. The results must be the same.
void TestChain(Tally* tally, size_t rows, size_t width) {
  const std::string name = std::to_string(rows) + "x" + std::to_string(width);
  const size_t count = rows * width;
  Random random(5);
  Numbers x(kMojoBFloat16, count), scale(kMojoBFloat16, width), a(kMojoBFloat16, count), b(kMojoBFloat16, count);
  Numbers table(kMojoBFloat16, 128), q(kMojoBFloat16, count);
  x.Fill(&random, 1), scale.Fill(&random, 1), table.Fill(&random, 0.7f);
  scale.ToDevice(), table.ToDevice();
  std::vector<char> results[3];
  cudaStream_t stream;
  Check(cudaStreamCreate(&stream), "stream");
  for (int way = 0; way < 3; ++way) {
    const bool in_graph = way == 2;
    MojoCudaSetDependentLaunch(way > 0);
    x.ToDevice();
    a.Poison(), b.Poison(), q.Poison();
    MojoRMSNormArgs norm = {{0, 1e-6f, true}};
    norm.x = norm.sum = x.device(), norm.residual = b.device(), norm.scale = scale.device(), norm.y = a.device();
    norm.rows = rows, norm.width = width;
    norm.x_type = norm.scale_type = kMojoBFloat16;
    MojoGLUArgs glu = {{mojo::Activation::kSilu, 1, 0, 0}};
    glu.gate = a.device(), glu.up = q.device(), glu.y = b.device();
    glu.count = count, glu.type = kMojoBFloat16;
    MojoRotaryArgs rotary = {};
    rotary.x = a.device(), rotary.y = q.device(), rotary.cos = rotary.sin = table.device();
    rotary.rank = 1, rotary.dims[0] = count / 128, rotary.width = rotary.rotated = 128;
    rotary.type = kMojoBFloat16;
    rotary.cos_wide = rotary.sin_wide = 1;
    Check(cudaDeviceSynchronize(), "operands");
    cudaError_t error = cudaSuccess;
    if (in_graph) Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < 30 && error == cudaSuccess; ++i) {
      error = i == 0 ? MojoCudaRMSNorm(&norm, stream) : MojoCudaAddRMSNorm(&norm, stream);
      if (error == cudaSuccess) error = MojoCudaRotaryEmbedding(&rotary, 1, stream);
      if (error == cudaSuccess) error = MojoCudaGLU(&glu, stream);
    }
    if (in_graph) {
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      Check(cudaStreamEndCapture(stream, &graph), "end of capture");
      Check(cudaGraphInstantiate(&exec, graph, 0), "graph");
      Check(cudaGraphLaunch(exec, stream), "graph");
      Check(cudaStreamSynchronize(stream), "graph");
      Check(cudaGraphExecDestroy(exec), "graph");
      Check(cudaGraphDestroy(graph), "graph");
    }
    Done(tally, name, error);
    b.ToHost();
    results[way] = b.bytes();
  }
  Check(cudaStreamDestroy(stream), "stream");
  if (results[0] != results[1]) Fail(tally, name, "another result with dependent launches");
  if (results[0] != results[2]) Fail(tally, name, "another result in a graph");
  for (size_t i = 0; i < count; ++i) {
    if (isnan(b.Get(i))) return Fail(tally, name, "a number was read before it was written");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && strcmp(argv[1], "small") == 0;
  Tally chain{"one after another"};
  TestChain(&chain, 1, 4096);
  if (!small) TestChain(&chain, 64, 7168), TestChain(&chain, 2048, 2048);
  return Report({&chain});
}
