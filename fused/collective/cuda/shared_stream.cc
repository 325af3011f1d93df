#include "collective/cuda/shared_stream.h"

#include <stdio.h>

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>

namespace mojo {
namespace {

// Streams are the streams of this process that have shared memory, by device. They are never deleted: their thread
// runs until the process ends.
struct Streams {
  std::mutex mutex;
  std::map<std::pair<int, cudaStream_t>, std::weak_ptr<Peers>> all;
  bool watched = false;
};

Streams& TheStreams() {
  static Streams& streams = *new Streams;
  return streams;
}

// Named writes once which rank kernels of this process have given up on, if they have: onnxruntime reports no more than
// that a kernel has failed, and a graph runs no node on the host.
bool Named(const Peers& peers) {
  static std::atomic<bool> named{false};
  if (peers.Late() < 0) return false;
  if (named.exchange(true)) return true;
  fprintf(stderr, "mojo: rank %d waited for rank %d in vain; it ended or hangs\n", peers.view().rank, peers.Late());
  return true;
}

// Watch is the thread that looks for such a rank.
void Watch() {
  Streams& streams = TheStreams();
  for (bool named = false; !named; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    const std::lock_guard<std::mutex> lock(streams.mutex);
    for (const auto& entry : streams.all) {
      const std::shared_ptr<Peers> peers = entry.second.lock();
      named = named || (peers != nullptr && Named(*peers));
    }
  }
}

}  // namespace

SharedStream::~SharedStream() {
  if (peers_ != nullptr) Named(*peers_);
}

OrtStatus* SharedStream::Join(const Api& api, const OpDef& def, const Member& member, OrtKernelContext* context,
                              const PeerView** view) {
  *view = nullptr;
  if (member.ranks == 1) return nullptr;
  cudaStream_t stream;
  if (OrtStatus* s = ReadStream(api, context, &stream)) return s;
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (peers_ == nullptr || stream != stream_) {
      int device = 0;
      cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
      if (OrtStatus* s = Launched(api, def, cudaGetDevice(&device))) return s;
      if (OrtStatus* s = Launched(api, def, cudaStreamIsCapturing(stream, &captured))) return s;
      Turn turn(member);  // keeps other nodes of the process from sharing memory at the same time
      Streams& streams = TheStreams();
      std::shared_ptr<Peers> peers;
      {
        const std::lock_guard<std::mutex> reads(streams.mutex);
        peers = streams.all[{device, stream}].lock();
      }
      if (peers == nullptr) {
        if (captured != cudaStreamCaptureStatusNone) {
          return Errorf(api, "mojo.%s: its first run is captured into a CUDA graph; run it once before", def.name);
        }
        OrtStatus* failed = nullptr;
        std::string error;
        const GatherBytes gather = [&](const void* mine, void* all, size_t bytes) {
          failed = turn.Gather(api, mine, all, bytes);
          return failed == nullptr;
        };
        peers = Peers::Make(member.rank, member.ranks, Seconds("MOJO_COLLECTIVE_TIMEOUT", kTimeout), gather, &error);
        if (failed != nullptr) return failed;
        if (peers == nullptr) {
          return Errorf(api, "mojo.%s: the ranks' GPUs cannot exchange data: %s", def.name, error.c_str());
        }
        const std::lock_guard<std::mutex> writes(streams.mutex);
        streams.all[{device, stream}] = peers;
        if (!streams.watched) std::thread(Watch).detach();
        streams.watched = true;
      }
      peers_ = std::move(peers);
      stream_ = stream;
    }
    if (peers_->Late() >= 0) {
      return Errorf(api, "mojo.%s: rank %d waited for rank %d in vain; it ended or hangs", def.name, member.rank,
                    peers_->Late());
    }
    *view = &peers_->view();
    return nullptr;
  } catch (...) {
    return OutOfMemory(api);
  }
}

}  // namespace mojo
