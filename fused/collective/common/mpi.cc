// Messages by the MPI library that started the process, which is opened when the first node runs: no build needs it.
#include <stdlib.h>
#include <string.h>

#include "collective/common/transport.h"

#ifdef _WIN32

namespace mojo {

std::unique_ptr<Transport> OpenMPI(const Launch&, Failure* failure) {
  Fail(failure, -1, Failure::kOther, "MPI is not supported on Windows");
  return nullptr;
}

}  // namespace mojo

#else

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <unistd.h>

#include <new>
#include <vector>

// The library also loads on systems with an older C library than the one it was built on, which has these functions in
// another file and version. A weak symbol is null if it is missing.
#ifdef __GLIBC__
#ifdef __x86_64__
#define MOJO_OLDEST_GLIBC "GLIBC_2.2.5"
#else
#define MOJO_OLDEST_GLIBC "GLIBC_2.17"
#endif
__asm__(".symver dlopen,dlopen@" MOJO_OLDEST_GLIBC);
__asm__(".symver dlsym,dlsym@" MOJO_OLDEST_GLIBC);
__asm__(".symver dlerror,dlerror@" MOJO_OLDEST_GLIBC);
#pragma weak dlopen
#pragma weak dlsym
#pragma weak dlerror
#endif

namespace mojo {
namespace {

constexpr int kSerialized = 2;  // MPI_THREAD_SERIALIZED
constexpr int kHeaderTag = 1, kBytesTag = 2;

// MPI is a transport by a library whose handles are a Handle: int in MPICH and libraries of its ABI, a pointer in Open
// MPI.
template <class Handle>
class MPI : public Transport {
 public:
  // Open finds the functions of the library, and begins MPI unless the program has.
  bool Open(void* library, const Launch& launch, Failure* failure);
  bool Exchange(const Header& mine, const Part* send, const Place* receive, Clock::duration patience,
                Failure* failure) override;
  bool Beat() override;
  void Abort(const Header& mine, const Failure& failure) override;
  void Finalize() override;

 private:
  struct Request {
    Handle handle;
    int rank;
    bool header;
  };

  bool Start(bool send, int rank, const void* data, size_t bytes, int tag, Failure* failure);
  bool Handles(void* library);

  int (*initialized_)(int*) = nullptr;
  int (*finalized_)(int*) = nullptr;
  int (*init_)(int*, char***, int, int*) = nullptr;
  int (*size_)(Handle, int*) = nullptr;
  int (*rank_)(Handle, int*) = nullptr;
  int (*dup_)(Handle, Handle*) = nullptr;
  int (*set_errhandler_)(Handle, Handle) = nullptr;
  int (*isend_)(const void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*irecv_)(void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*test_)(Handle*, int*, void*) = nullptr;
  int (*finalize_)() = nullptr;

  Handle world_{}, byte_{}, return_{}, all_{};
  void* ignore_ = nullptr;
  bool began_ = false;
  int self_ = 0;
  std::atomic<bool> busy_{false};  // in calls after Open
  bool beats_ = true;              // until the first exchange
  std::vector<Handle> beating_;    // a request for each rank
  std::vector<bool> sends_beat_;   // whether it is under way
  Header beat_;
  std::vector<Header> headers_;  // received; the last one is sent
  std::vector<Request> requests_;
};

template <>
bool MPI<void*>::Handles(void* library) {
  world_ = dlsym(library, "ompi_mpi_comm_world");
  byte_ = dlsym(library, "ompi_mpi_byte");
  return_ = dlsym(library, "ompi_mpi_errors_return");
  return world_ != nullptr && byte_ != nullptr && return_ != nullptr;
}

template <>
bool MPI<int>::Handles(void*) {
  world_ = 0x44000000;
  byte_ = 0x4c00010d;
  return_ = 0x54000001;
  ignore_ = reinterpret_cast<void*>(1);
  return true;
}

template <class Function>
bool Find(void* library, const char* name, Function* function, Failure* failure) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr || Fail(failure, -1, Failure::kOther,
                                      "the MPI library has no function %s: set MOJO_MPI_LIBRARY to another", name);
}

template <class Handle>
bool MPI<Handle>::Open(void* library, const Launch& launch, Failure* failure) {
  if (!Handles(library)) {
    return Fail(failure, -1, Failure::kOther, "the MPI library is not the one of Open MPI: set MOJO_MPI_LIBRARY");
  }
  if (!Find(library, "MPI_Initialized", &initialized_, failure) ||
      !Find(library, "MPI_Finalized", &finalized_, failure) || !Find(library, "MPI_Init_thread", &init_, failure) ||
      !Find(library, "MPI_Comm_size", &size_, failure) || !Find(library, "MPI_Comm_rank", &rank_, failure) ||
      !Find(library, "MPI_Comm_dup", &dup_, failure) ||
      !Find(library, "MPI_Comm_set_errhandler", &set_errhandler_, failure) ||
      !Find(library, "MPI_Isend", &isend_, failure) || !Find(library, "MPI_Irecv", &irecv_, failure) ||
      !Find(library, "MPI_Test", &test_, failure) || !Find(library, "MPI_Finalize", &finalize_, failure)) {
    return false;
  }
  int is = 0, provided = 0, rank = -1, ranks = 0;
  finalized_(&is);
  if (is) return Fail(failure, -1, Failure::kOther, "the program has called MPI_Finalize");
  initialized_(&is);
  if (!is) {
    if (init_(nullptr, nullptr, kSerialized, &provided) != 0) {
      return Fail(failure, -1, Failure::kOther,
                  "MPI_Init_thread failed: is the library in MOJO_MPI_LIBRARY the one of "
                  "the mpirun that started this process?");
    }
    began_ = true;
    if (provided < kSerialized) {
      return Fail(failure, -1, Failure::kOther, "this MPI library does not allow calls from several threads");
    }
  }
  size_(world_, &ranks);
  rank_(world_, &rank);
  if (rank != launch.rank || ranks != launch.ranks) {
    return Fail(
        failure, -1, Failure::kOther,
        "the MPI library says that this is rank %d of %d, and %s that it is rank %d of %d: set MOJO_MPI_LIBRARY "
        "to the library of the mpirun that started this process",
        rank, ranks, launch.variable, launch.rank, launch.ranks);
  }
  self_ = rank;
  set_errhandler_(world_, return_);
  if (dup_(world_, &all_) != 0) return Fail(failure, -1, Failure::kOther, "MPI_Comm_dup failed");
  set_errhandler_(all_, return_);
  headers_.resize(static_cast<size_t>(ranks) + 1);
  beating_.resize(static_cast<size_t>(ranks));
  sends_beat_.resize(static_cast<size_t>(ranks));
  beat_.kind = Header::kBeat;
  return true;
}

template <class Handle>
bool MPI<Handle>::Start(bool send, int rank, const void* data, size_t bytes, int tag, Failure* failure) {
  if (bytes > INT_MAX)
    return Fail(failure, -1, Failure::kOther, "a message of %zu bytes is longer than MPI takes", bytes);
  Request r{Handle{}, rank, !send && tag == kHeaderTag};
  const int n = static_cast<int>(bytes);
  const int error = send ? isend_(data, n, byte_, rank, tag, all_, &r.handle)
                         : irecv_(const_cast<void*>(data), n, byte_, rank, tag, all_, &r.handle);
  if (error != 0) return Fail(failure, rank, Failure::kEnded, "MPI cannot reach rank %d (error %d)", rank, error);
  requests_.push_back(r);
  return true;
}

template <class Handle>
bool MPI<Handle>::Exchange(const Header& mine, const Part* send, const Place* receive, Clock::duration patience,
                           Failure* failure) {
  const Busy busy(&busy_, true);
  const int ranks = static_cast<int>(mine.ranks), self = static_cast<int>(mine.rank);
  Vigil vigil(beats_, patience, static_cast<size_t>(ranks));
  beats_ = false;
  headers_.back() = mine;
  requests_.clear();
  for (int i = 1; i < ranks; ++i) {
    const int r = (self + i) % ranks;
    if (!Start(false, r, &headers_[static_cast<size_t>(r)], sizeof(Header), kHeaderTag, failure) ||
        !Start(true, r, &headers_.back(), sizeof(Header), kHeaderTag, failure) ||
        (send[r].bytes > 0 && !Start(true, r, send[r].data, send[r].bytes, kBytesTag, failure))) {
      return false;
    }
  }
  while (!requests_.empty()) {
    for (size_t i = 0; i < requests_.size();) {
      Request r = requests_[i];
      int done = 0;
      if (const int error = test_(&requests_[i].handle, &done, ignore_)) {
        return Fail(failure, r.rank, Failure::kEnded, "rank %d has ended, or MPI cannot reach it (error %d)", r.rank,
                    error);
      }
      if (!done) {
        ++i;
        continue;
      }
      requests_.erase(requests_.begin() + static_cast<long>(i));
      Header& header = headers_[static_cast<size_t>(r.rank)];
      if (r.header && header.magic == Header::kMagic && header.kind == Header::kBeat) {
        vigil.Heard(r.rank);
        if (!Start(false, r.rank, &header, sizeof(Header), kHeaderTag, failure)) return false;
        continue;
      }
      vigil.Moved();
      if (!r.header) continue;
      if (!CheckHeader(mine, header, r.rank, failure)) return false;
      const Place& to = receive[r.rank];
      if (to.bytes > 0 && !Start(false, r.rank, to.data, to.bytes, kBytesTag, failure)) return false;
    }
    if (requests_.empty()) break;
    int late = requests_[0].rank;
    bool begun = true;
    for (const Request& r : requests_) {
      if (!r.header) continue;
      late = r.rank;
      begun = false;
    }
    if (!vigil.Look(late, begun, failure)) return false;
    if (vigil.Still() < std::chrono::microseconds(200)) {
      sched_yield();
    } else {
      usleep(50);
    }
  }
  return true;
}

template <class Handle>
bool MPI<Handle>::Beat() {
  const Busy busy(&busy_, false);
  for (size_t r = 0; busy.held() && beats_ && r < beating_.size(); ++r) {
    int done = 1;
    if (sends_beat_[r] && (test_(&beating_[r], &done, ignore_) != 0 || !done)) continue;
    if (static_cast<int>(r) == self_) continue;
    sends_beat_[r] = isend_(&beat_, sizeof(Header), byte_, static_cast<int>(r), kHeaderTag, all_, &beating_[r]) == 0;
  }
  return !busy.held() || beats_;
}

// Abort sends the failure instead of the header of the next exchange. The request and its memory stay.
template <class Handle>
void MPI<Handle>::Abort(const Header& mine, const Failure& failure) {
  auto* const header = new (std::nothrow) Header(mine);
  if (header == nullptr) return;
  header->kind = Header::kAbort;
  header->culprit = static_cast<uint32_t>(failure.culprit);
  header->cause = failure.cause;
  Failure ignored;
  for (int r = 0; r < static_cast<int>(mine.ranks); ++r) {
    if (r != static_cast<int>(mine.rank)) Start(true, r, header, sizeof(Header), kHeaderTag, &ignored);
  }
}

template <class Handle>
void MPI<Handle>::Finalize() {
  int is = 1;
  finalized_(&is);
  if (began_ && !is) finalize_();
}

template <class Handle>
std::unique_ptr<Transport> OpenWith(void* library, const Launch& launch, Failure* failure) {
  std::unique_ptr<MPI<Handle> > mpi(new MPI<Handle>);
  if (mpi->Open(library, launch, failure)) return mpi;
  return nullptr;
}

}  // namespace

std::unique_ptr<Transport> OpenMPI(const Launch& launch, Failure* failure) {
#ifdef __GLIBC__
  if (dlopen == nullptr || dlsym == nullptr || dlerror == nullptr) {
    Fail(failure, -1, Failure::kOther, "this program cannot open libraries: link it with libdl");
    return nullptr;
  }
#endif
  const char* const named = getenv("MOJO_MPI_LIBRARY");
  const char* const usual[] = {"libmpi.so.40", "libmpi.so.12", "libmpi.so"};
  void* library = nullptr;
  if (named != nullptr && *named != 0) {
    library = dlopen(named, RTLD_NOW | RTLD_GLOBAL);
  } else {
    for (size_t i = 0; i < 3 && library == nullptr; ++i) library = dlopen(usual[i], RTLD_NOW | RTLD_GLOBAL);
  }
  if (library == nullptr) {
    const char* const why = dlerror();
    Fail(
        failure, -1, Failure::kOther,
        "MPI started this process, and its library cannot be opened: set MOJO_MPI_LIBRARY to the path of the libmpi.so "
        "that belongs to the mpirun (%s)",
        why == nullptr ? "not found" : why);
    return nullptr;
  }
  const bool open_mpi = dlsym(library, "ompi_mpi_comm_world") != nullptr;
  return open_mpi ? OpenWith<void*>(library, launch, failure) : OpenWith<int>(library, launch, failure);
}

}  // namespace mojo

#endif  // !_WIN32
