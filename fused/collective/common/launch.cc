#include "collective/common/launch.h"

#include <stdlib.h>

namespace mojo {
namespace {

struct Variables {
  const char *rank, *ranks;
  bool mpi;
};

constexpr Variables kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true},
    {"PMI_RANK", "PMI_SIZE", true},
    {"RANK", "WORLD_SIZE", false},
    {"SLURM_PROCID", "SLURM_NTASKS", false},
};

// Number parses a number from 0 to 1,000,000. It returns -1 for anything else.
int Number(const char* text) {
  char* end = nullptr;
  const long value = text == nullptr ? -1 : strtol(text, &end, 10);
  return value < 0 || value > 1000000 || end == text || *end != 0 ? -1 : static_cast<int>(value);
}

}  // namespace

bool ReadLaunch(Launch* launch, std::string* error) {
  for (const Variables& v : kLaunchers) {
    const char *const rank = getenv(v.rank), *const ranks = getenv(v.ranks);
    if (rank == nullptr || ranks == nullptr) continue;
    *launch = {Number(rank), Number(ranks), v.mpi, v.rank};
    if (launch->rank >= 0 && launch->rank < launch->ranks) return true;
    *error = std::string("the environment variables ") + v.rank + "=" + rank + " and " + v.ranks + "=" + ranks +
             " name no rank: the rank must be a number below the number of ranks";
    return false;
  }
  *error =
      "no launcher started this process as one of several ranks: start N processes with \"mpirun -n N COMMAND\" or "
      "\"torchrun --nproc-per-node N --no-python COMMAND\", or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
  return false;
}

double Seconds(const char* name, double otherwise) {
  const char* const text = getenv(name);
  const double value = text == nullptr ? 0 : strtod(text, nullptr);
  return value > 0 && value < 1e9 ? value : otherwise;
}

}  // namespace mojo
