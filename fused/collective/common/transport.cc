#include "collective/common/transport.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

namespace mojo {
namespace {

const char* Reason(uint32_t cause) {
  switch (cause) {
    case Failure::kEnded: return "ended or lost its connection";
    case Failure::kLate: return "did not answer in time";
    case Failure::kPlan: return "runs a model of another plan";
    case Failure::kNode: return "is at another node";
    case Failure::kSize: return "has a tensor of another size";
    default: return "failed";
  }
}

}  // namespace

bool Fail(Failure* failure, int culprit, Failure::Cause cause, const char* format, ...) {
  char text[700];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  *failure = {text, culprit, cause};
  return false;
}

bool Vigil::Look(int late, bool begun, Failure* failure) {
  const auto now = Clock::now();
  if (now - looked_ > std::chrono::seconds(1)) {  // this process was stopped itself
    moved_ = now;
    heard_.assign(heard_.size(), now);
  }
  looked_ = now;
  const bool silent = first_ && !begun && now - heard_[static_cast<size_t>(late)] > silence_;
  const auto most = begun ? std::min(patience_, silence_) : patience_;
  if (!silent && now - moved_ <= most) return true;
  return Fail(failure, late, Failure::kLate,
              "rank %d did not answer within %.0f s: it hangs, is stopped, or does not run this model", late,
              std::chrono::duration<double>(silent ? silence_ : most).count());
}

bool CheckHeader(const Header& mine, const Header& theirs, int rank, Failure* failure) {
  if (theirs.magic != Header::kMagic) {
    return Fail(failure, rank, Failure::kOther,
                "rank %d sends messages of another version: use the same mojo kernel library on all ranks", rank);
  }
  if (theirs.kind == Header::kAbort) {
    const auto culprit = static_cast<int>(theirs.culprit);
    if (theirs.culprit >= mine.ranks || culprit == rank) {
      return Fail(failure, rank, Failure::kOther, "rank %d gave up: its own message says why", rank);
    }
    if (theirs.culprit == mine.rank) {
      return Fail(failure, rank, Failure::Cause(theirs.cause),
                  "rank %d gave up because this rank, rank %d, %s: run the files of one folder on all ranks, with "
                  "inputs of the same shapes",
                  rank, culprit, Reason(theirs.cause));
    }
    const bool differs = theirs.cause >= Failure::kPlan;
    return Fail(failure, culprit, Failure::Cause(theirs.cause), "rank %d %s%s rank %d%s", culprit, Reason(theirs.cause),
                differs ? " than" : " (as", rank, differs ? "" : " says)");
  }
  if (theirs.kind == Header::kBye && mine.kind == Header::kBye) return true;
  if (theirs.kind == Header::kBye) {
    return Fail(failure, rank, Failure::kEnded, "rank %d has ended its run: see its own messages", rank);
  }
  if (theirs.kind != Header::kData || theirs.ranks != mine.ranks || theirs.rank != static_cast<uint32_t>(rank)) {
    return Fail(failure, rank, Failure::kOther, "rank %d sends a message of rank %u of %u ranks", rank, theirs.rank,
                theirs.ranks);
  }
  if (theirs.plan != mine.plan) {
    return Fail(failure, rank, Failure::kPlan,
                "rank %d runs a model of another plan: run the files of one folder on all ranks", rank);
  }
  if (theirs.node != mine.node || theirs.sequence != mine.sequence) {
    char name[sizeof(theirs.name) + 1] = "";
    for (size_t i = 0; i < sizeof(theirs.name) && theirs.name[i] != 0; ++i) {
      name[i] = theirs.name[i] < ' ' || theirs.name[i] > '~' ? '?' : theirs.name[i];
    }
    return Fail(
        failure, rank, Failure::kNode,
        "rank %d is at node \"%s\" (exchange %llu), and this rank, rank %u, at node \"%s\" (exchange %llu): all "
        "ranks must run the same steps, one session at a time",
        rank, name, static_cast<unsigned long long>(theirs.sequence), mine.rank, mine.name,
        static_cast<unsigned long long>(mine.sequence));
  }
  if (theirs.bytes != mine.bytes) {
    return Fail(
        failure, rank, Failure::kSize,
        "rank %d has a tensor of %llu bytes at node \"%s\", and this rank, rank %u, one of %llu: give all ranks "
        "inputs of the same shapes",
        rank, static_cast<unsigned long long>(theirs.bytes), mine.name, mine.rank,
        static_cast<unsigned long long>(mine.bytes));
  }
  return true;
}

}  // namespace mojo
