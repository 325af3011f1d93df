// Times steps of decoding by Attention, with the cache updated in place and its length on the device: a CUDA graph of
// L2 flushes, each followed by the call, minus the time of only the flushes. `make cuda-programs` builds it. Arguments
// choose models by name.
#include "cuda/bench/attention_step.h"

namespace {

void Time(const StepModel& m, size_t batch, size_t keys, size_t room, double bandwidth, cudaStream_t stream) {
  const Step step(m, batch, keys, room);
  const double floor = step.Bytes() / bandwidth * 1e6;
  const double us = Microseconds(stream, floor, [&](cudaStream_t at) { step.Run(at); });
  printf("%-13s batch %2zu keys %5zu of %5zu  %9.2f us  %6.0f GB/s  %3.0f %% of what is read\n", m.name, batch, keys,
         room, us, step.Bytes() / us / 1e3, 100 * floor / us);
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const cudaStream_t stream = Begin();
  const double bandwidth = BeginSteps(stream);
  for (const StepModel& m : kStepModels) {
    bool chosen = argc < 2;
    for (int i = 1; i < argc; ++i) chosen = chosen || strcmp(argv[i], m.name) == 0;
    if (!chosen) continue;
    for (const size_t batch : {1, 8, 64}) {
      for (const size_t keys : {512, 4096, 32768}) Time(m, batch, keys, keys, bandwidth, stream);
    }
    Time(m, 1, 512, 32768, bandwidth, stream);
    Time(m, 8, 512, 32768, bandwidth, stream);
  }
  return 0;
}
