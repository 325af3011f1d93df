// The place of this process among the ranks, as its launcher writes it into the environment.
#pragma once

#include <string>

namespace mojo {

// Launch is what started this process as one of several ranks.
struct Launch {
  int rank = 0, ranks = 0;
  bool mpi = false;           // started by mpirun or mpiexec
  const char* variable = "";  // the variable with the rank
};

// ReadLaunch reads the variables of Open MPI, MPICH, torchrun and Slurm, in this order. It returns false if no launcher
// set its two variables, or if their values are impossible; error then says what to do.
bool ReadLaunch(Launch* launch, std::string* error);

// Seconds returns the environment variable name as a number of seconds, or otherwise if it is not set or not positive.
double Seconds(const char* name, double otherwise);

}  // namespace mojo
