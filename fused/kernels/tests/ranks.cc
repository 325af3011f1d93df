// Runs the collective ops in real processes, a rank each, through a stand-in for onnxruntime:
//
//   mojo_ranks_test            2, 3 and 4 ranks by TCP on this host, then ranks that fail
//   mpiexec -n N mojo_ranks_test --rank            this process is one rank: its launcher says which
//   mpiexec -n N mojo_ranks_test --stopped-rank I  the same, and rank 1 stops after I exchanges, or if I is -1 before
//                                                  it connects: the others print their errors
//
// Every result must have the bits that the sum in the order of ranks has. Every rank must end, and name the rank that
// is to blame. The exit status is 1 after a failure.
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "collective/common/launch.h"
#include "tests/forms.h"
#include "tests/stand_in.h"

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base);
extern "C" void MojoCollectivesBegin();
extern "C" void MojoCollectivesLeave();
extern "C" void MojoCollectivesFinalize();

namespace mojo_test {
namespace {

using Type = ONNXTensorElementDataType;

OrtApi api;
int failures = 0;

void Check(bool ok, const std::string& what) {
  if (ok) return;
  ++failures;
  fprintf(stderr, "FAIL: %s\n", what.c_str());
}

// Bits is a number of a type. Numbers of the 16-bit types are small integers.
std::string Bits(Type type, float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  if (type == mojo::kF32) return std::string(reinterpret_cast<const char*>(&bits), 4);
  auto half = static_cast<uint16_t>(bits >> 16);
  if (type == mojo::kF16) {
    half =
        v == 0
            ? 0
            : static_cast<uint16_t>((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 0x3ff));
  }
  return std::string(reinterpret_cast<const char*>(&half), 2);
}

// Number is element i of a rank's tensor.
float Number(Type type, int rank, size_t i) {
  const uint32_t hash = (static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(rank) * 40503u) >> 8;
  const int small = static_cast<int>(hash % 41) - 20;
  return type == mojo::kF32 ? static_cast<float>(small) * 0.1f : static_cast<float>(small);
}

size_t Count(const Dims& dims) {
  size_t n = 1;
  for (const int64_t d : dims) n *= static_cast<size_t>(d);
  return n;
}

// Bytes is the tensor of a rank, or with ranks > 0 the sum of the ranks' tensors.
std::string Bytes(Type type, const Dims& dims, int rank, int ranks = 0) {
  std::string made;
  for (size_t i = 0; i < Count(dims); ++i) {
    float v = Number(type, ranks > 0 ? 0 : rank, i);
    for (int r = 1; r < ranks; ++r) v += Number(type, r, i);
    made += Bits(type, v);
  }
  return made;
}

struct Node {
  const mojo::OpDef& op;
  Type type;
  int rank, ranks;
  int64_t axis = -1;
  std::string plan = "a plan";
};

// Run makes the kernel of a node and runs it. It returns the bytes of the outputs, and the error in *error.
std::string Run(const Node& node, const std::vector<std::string>& data, const std::vector<Dims>& dims,
                std::string* error) {
  const mojo::TypeCombo* types = nullptr;
  for (size_t i = 0; i < node.op.combo_count; ++i) {
    const mojo::TypeCombo& c = node.op.combos[i];
    if (c.inputs[0] == node.type && c.inputs[node.op.input_count - 1] == node.type && types == nullptr) types = &c;
  }
  OrtKernelInfo info{{{"axis", node.axis}, {"rank", node.rank}, {"ranks", node.ranks}, {"scale_after_cast", 0}},
                     {{"epsilon", 1e-6f}},
                     {{"plan", node.plan}},
                     {}};
  const OrtCustomOp* op = FindKernel(node.op, *types, nullptr);
  std::vector<OrtValue> inputs, outputs;
  for (size_t i = 0; i < data.size(); ++i) {
    inputs.push_back({dims[i], std::vector<char>(data[i].begin(), data[i].end()), nullptr});
  }
  for (size_t i = 0; i < node.op.output_count; ++i) outputs.push_back({{}, {}, nullptr, data[0].empty() ? 4u : 0u});
  OrtKernelContext context{{}, {}, 2};
  for (OrtValue& v : inputs) {
    v.data = v.memory.data();
    context.inputs.push_back(&v);
  }
  for (OrtValue& v : outputs) {
    v.element = node.type == mojo::kF32 ? 4 : 2;
    context.outputs.push_back(&v);
  }
  void* kernel = nullptr;
  OrtStatus* status = op->CreateKernelV2(op, &api, &info, &kernel);
  if (status == nullptr) {
    status = op->KernelComputeV2(kernel, &context);
    op->KernelDestroy(kernel);
  }
  *error = status == nullptr ? "" : status->message;
  if (status != nullptr) api.ReleaseStatus(status);
  std::string bytes;
  for (const OrtValue& v : outputs) bytes.append(v.memory.begin(), v.memory.end());
  return bytes;
}

void Expect(const Node& node, const Dims& dims, const std::string& want) {
  std::string error;
  const std::string got = Run(node, {Bytes(node.type, dims, node.rank)}, {dims}, &error);
  Check(error.empty() && got == want, "rank " + std::to_string(node.rank) + " of " + std::to_string(node.ranks) + ": " +
                                          node.op.name + " along " + std::to_string(node.axis) + " of " +
                                          std::to_string(Count(dims)) + " numbers: " + error);
}

// Part is part number r of a tensor along an axis, in so many parts.
std::string Part(const std::string& bytes, size_t size, const Dims& dims, int64_t axis, int r, int parts) {
  const size_t at = dims.size() - static_cast<size_t>(-axis);
  const size_t run = Count(Dims(dims.begin() + static_cast<long>(at), dims.end())) * size;
  const size_t part = run / static_cast<size_t>(parts);
  std::string made;
  for (size_t i = 0; part > 0 && i < bytes.size(); i += run)
    made += bytes.substr(i + static_cast<size_t>(r) * part, part);
  return made;
}

// Joined is tensors of equal shapes side by side along an axis.
std::string Joined(const std::vector<std::string>& list, size_t size, const Dims& dims, int64_t axis) {
  const size_t at = dims.size() - static_cast<size_t>(-axis);
  const size_t run = Count(Dims(dims.begin() + static_cast<long>(at), dims.end())) * size;
  std::string made;
  for (size_t i = 0; run > 0 && i < list[0].size(); i += run) {
    for (const std::string& bytes : list) made += bytes.substr(i, run);
  }
  return made;
}

// Succeed runs every op as one rank: no element, one, odd numbers of them, and many.
void Succeed(int rank, int ranks) {
  for (const Type type : {mojo::kF32, mojo::kF16, mojo::kBF16}) {
    const size_t size = type == mojo::kF32 ? 4 : 2;
    for (const Dims& dims : {Dims{0}, Dims{1}, Dims{7}, Dims{3, 5, 22}, Dims{9, 20011}, Dims{2, 16384}}) {
      Expect({mojo::kAllReduce, type, rank, ranks}, dims, Bytes(type, dims, 0, ranks));
    }
    for (int64_t axis = -4; axis < 0; ++axis) {
      for (const int64_t width : {0, 1, 3, 500}) {
        const Dims dims{2, 2 * ranks, ranks, 3 * ranks}, more{ranks, ranks, 2 * ranks, width * ranks};
        for (const Dims& shape : {dims, more}) {
          std::vector<std::string> all, mine;
          for (int r = 0; r < ranks; ++r) {
            all.push_back(Bytes(type, shape, r));
            mine.push_back(Part(all.back(), size, shape, axis, rank, ranks));
          }
          Expect({mojo::kAllGather, type, rank, ranks, axis}, shape, Joined(all, size, shape, axis));
          if (shape[static_cast<size_t>(4 + axis)] % ranks != 0) continue;
          Dims part = shape;
          part[static_cast<size_t>(4 + axis)] /= ranks;
          Expect({mojo::kAllToAll, type, rank, ranks, axis}, shape, Joined(mine, size, part, axis));
          Expect({mojo::kReduceScatter, type, rank, ranks, axis}, shape,
                 Part(Bytes(type, shape, 0, ranks), size, shape, axis, rank, ranks));
        }
      }
    }
    for (const Dims& dims : {Dims{0, 6}, Dims{3, 70}, Dims{40, 2048}}) {
      const Dims row{dims[1]};
      const std::string residual = Bytes(type, dims, 9), scale = Bytes(type, row, 8);
      std::string error, alone;
      const std::string want = Run({mojo::kAddRMSNorm, type, 0, 1}, {Bytes(type, dims, 0, ranks), residual, scale},
                                   {dims, dims, row}, &alone);
      const std::string got = Run({mojo::kAllReduceAddRMSNorm, type, rank, ranks},
                                  {Bytes(type, dims, rank), residual, scale}, {dims, dims, row}, &error);
      Check(error.empty() && alone.empty() && got == want, "AllReduceAddRMSNorm: " + error + alone);
    }
  }
}

// Serve is the life of a rank in a test of failures: it reduces until an error, which must have the words.
void Serve(int rank, int ranks, const std::string& plan, const Dims& dims, const std::string& words) {
  std::string error;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000 && error.empty(); ++i) {
    Run({mojo::kAllReduce, mojo::kF32, rank, ranks, -1, plan}, {Bytes(mojo::kF32, dims, rank)}, {dims}, &error);
    usleep(1000);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  Check(error.find(words) != std::string::npos,
        "rank " + std::to_string(rank) + " says \"" + error + "\", want \"" + words + "\"");
  Check(seconds < 9, "rank " + std::to_string(rank) + " took " + std::to_string(seconds) + " s");
}

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(a);
  bind(fd, reinterpret_cast<sockaddr*>(&a), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size);
  close(fd);
  return ntohs(a.sin_port);
}

// Ranks starts a process for each rank, and waits for all. stray is a rank that does not end by itself, or -1.
template <class Body>
void Ranks(const std::string& name, int ranks, int stray, const Body& body) {
  const int port = FreePort();
  std::vector<pid_t> children;
  fflush(nullptr);
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    setenv("RANK", std::to_string(r).c_str(), 1);
    setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
    alarm(60);
    failures = 0;
    body(r, port);
    fflush(nullptr);
    _exit(failures == 0 ? 0 : 1);
  }
  for (int r = 0; r < ranks; ++r) {
    int status = 0;
    if (r == stray) continue;
    waitpid(children[static_cast<size_t>(r)], &status, 0);
    Check(WIFEXITED(status) && WEXITSTATUS(status) == 0, name + ": rank " + std::to_string(r) + " fails");
  }
  if (stray >= 0) {
    kill(children[static_cast<size_t>(stray)], SIGKILL);
    waitpid(children[static_cast<size_t>(stray)], nullptr, 0);
  }
}

// Disturb connects to rank 0 as strangers do, and says nothing, or nonsense.
void Disturb(int port) {
  for (int i = 0; i < 40; ++i) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(static_cast<uint16_t>(port));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const std::string text(static_cast<size_t>(i * 13), static_cast<char>(i % 3 == 0 ? 'm' : 0xff));
    if (connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)) == 0) send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    usleep(20000);
    if (i % 2 == 0) close(fd);
  }
}

void TestFailures() {
  setenv("MOJO_COLLECTIVE_TIMEOUT", "2", 1);
  const Dims small{5}, large{300000};
  for (const Dims& dims : {small, large}) {
    Ranks("a killed rank", 3, 1, [&](int r, int) {
      std::string error;
      if (r == 1) {
        Run({mojo::kAllReduce, mojo::kF32, r, 3}, {Bytes(mojo::kF32, dims, r)}, {dims}, &error);
        raise(SIGKILL);
      }
      Serve(r, 3, "a plan", dims, "rank 1 has ended");
    });
    Ranks("a stopped rank", 3, 1, [&](int r, int) {
      std::string error;
      if (r == 1) {
        Run({mojo::kAllReduce, mojo::kF32, r, 3}, {Bytes(mojo::kF32, dims, r)}, {dims}, &error);
        raise(SIGSTOP);
      }
      Serve(r, 3, "a plan", dims, "rank 1 did not answer");
    });
  }
  // Nobody stays at a rank that ends or stops while it loads its model.
  Ranks("a rank that is killed early", 3, 1, [&](int r, int) {
    MojoCollectivesBegin();
    if (r == 1) MojoCollectivesLeave(), raise(SIGKILL);
    Serve(r, 3, "a plan", small, "rank 1 has ended");
  });
  Ranks("a rank that is stopped early", 3, 1, [&](int r, int) {
    MojoCollectivesBegin();
    if (r == 1) MojoCollectivesLeave(), raise(SIGSTOP);
    Serve(r, 3, "a plan", small, "rank 1 did not answer");
  });
  Ranks("rank 0 is stopped before all are there", 3, 0, [&](int r, int) {
    if (r == 0) MojoCollectivesBegin(), sleep(1), raise(SIGSTOP);
    if (r == 1) Serve(r, 3, "a plan", small, "rank 0 did not answer");
  });
  Ranks("a rank that has no more to do", 3, -1, [&](int r, int) {
    for (int i = 0; r == 1 && i < 3; ++i) {
      Expect({mojo::kAllReduce, mojo::kF32, r, 3}, small, Bytes(mojo::kF32, small, 0, 3));
    }
    r == 1 ? MojoCollectivesFinalize() : Serve(r, 3, "a plan", small, "rank 1 has ended its run");
  });
  Ranks("another plan", 3, -1, [&](int r, int) {
    Serve(r, 3, r == 2 ? "another" : "a plan", small, r == 2 ? "another plan" : "rank 2 runs a model of another plan");
  });
  Ranks("another size", 3, -1, [&](int r, int) {
    Serve(r, 3, "a plan", r == 2 ? Dims{6} : small, r == 2 ? "has a tensor of" : "rank 2 has a tensor of");
  });
  Ranks("a rank that is slow to load, and strangers", 3, -1, [&](int r, int port) {
    if (r == 1) Disturb(port);
    MojoCollectivesBegin();
    if (r == 2) sleep(4);
    Expect({mojo::kAllReduce, mojo::kF32, r, 3}, small, Bytes(mojo::kF32, small, 0, 3));
  });
  Ranks("a rank that is not there", 2, -1, [&](int r, int) {
    setenv("MOJO_COLLECTIVE_JOIN_TIMEOUT", "1", 1);
    if (r == 0) Serve(r, 2, "a plan", small, "rank 1 did not connect in time");
  });
  Ranks("the file of another rank", 2, -1,
        [&](int r, int) { Serve(1 - r, 2, "a plan", small, "open rank-" + std::to_string(r) + ".onnx"); });
  Ranks("another number of ranks", 2, -1, [&](int r, int) { Serve(r, 4, "a plan", small, "the model is rank"); });
  std::string error;
  Run({mojo::kAllReduce, mojo::kF32, 0, 2}, {Bytes(mojo::kF32, small, 0)}, {small}, &error);
  Check(error.find("start N processes with \"mpirun") != std::string::npos, "no launcher: " + error);
}

}  // namespace

// StopRank1 prints the errors of the other ranks.
void StopRank1(int rank, int ranks, int at) {
  const Dims dims{5};
  std::string error;
  if (rank != 1 || at >= 0) MojoCollectivesBegin();
  if (at == 0) MojoCollectivesLeave();
  for (int i = 1; error.empty(); ++i) {
    if (rank == 1 && i > at) raise(SIGSTOP);
    Run({mojo::kAllReduce, mojo::kF32, rank, ranks}, {Bytes(mojo::kF32, dims, rank)}, {dims}, &error);
  }
  printf("%s\n", error.c_str());
  fflush(nullptr);
}

int Main(bool one, const char* stop) {
  api = StandIn();
  const OrtApiBase base{[](uint32_t v) noexcept -> const OrtApi* { return v <= ORT_API_VERSION ? &api : nullptr; },
                        []() noexcept -> const char* {
                          return "1."
                                 "99.0";
                        }};
  if (OrtStatus* s = RegisterCustomOps(nullptr, &base)) {
    fprintf(stderr, "%s\n", s->message.c_str());
    return 1;
  }
  if (one) {
    mojo::Launch launch;
    std::string error;
    if (!mojo::ReadLaunch(&launch, &error)) {
      fprintf(stderr, "%s\n", error.c_str());
      return 1;
    }
    alarm(100);
    if (stop != nullptr) {
      StopRank1(launch.rank, launch.ranks, atoi(stop));
      sleep(30);  // a rank that ends would have its launcher end the others
    }
    Succeed(launch.rank, launch.ranks);
    MojoCollectivesFinalize();
    if (failures == 0 && launch.rank == 0) printf("%d ranks: every op\n", launch.ranks);
    return failures == 0 ? 0 : 1;
  }
  for (int ranks = 2; ranks <= 4; ++ranks) {
    Ranks(std::to_string(ranks) + " ranks", ranks, -1, [&](int r, int) { Succeed(r, ranks); });
  }
  TestFailures();
  if (failures == 0) printf("2, 3 and 4 ranks by TCP: every op; ranks that fail are named\n");
  return failures == 0 ? 0 : 1;
}

}  // namespace mojo_test

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const char* const stop = argc == 3 && mode == "--stopped-rank" ? argv[2] : nullptr;
  return mojo_test::Main(mode == "--rank" || stop != nullptr, stop);
}
