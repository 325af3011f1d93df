// The steps of a run of Attention, each cut into tasks that threads take by turns.
//
// A pair is a sequence and a head of keys. Its rows are its queries, those of its heads one after the other for each
// token. What a task computes does not depend on how many threads there are.
#ifndef MOJO_KERNELS_CPU_ATTENTION_TASKS_H_
#define MOJO_KERNELS_CPU_ATTENTION_TASKS_H_

#include <atomic>

#include "common/attention.h"
#include "cpu/simd/kernels.h"

namespace mojo {

// PairRows are the keys or the values of a pair, as tasks read them.
struct PairRows {
  const char* data;
  size_t step;  // elements from one to the next
};

// AttentionState is what a tile, or a slice of the keys of one, has seen.
struct AttentionState {
  float *most = nullptr, *sum = nullptr, *total = nullptr;
};

// AttentionGo is what the tasks of a run share.
struct AttentionGo {
  const AttentionAttributes& attributes;
  const AttentionTensors& t;
  const AttentionFns& fns;
  size_t size = 0;       // of an element of keys and values
  size_t row_size = 0;   // of one of queries and of the result
  bool panels = false;   // keys and values are put into panels first
  bool shared = false;   // those of all blocks, for all tiles; else the only tile of a pair makes one block's at a time
  bool copies = false;   // rows of past_key become rows of present_key
  bool streams = false;  // they do past the caches of the processor, while they are read
  size_t pairs = 0;      // all of them
  size_t group = 0;      // heads that share keys
  size_t rows = 0;       // of a pair
  size_t tile_rows = 0;  // of a tile
  size_t tiles = 0;      // of a pair
  size_t slices = 0;     // of the keys of a tile
  size_t q_step = 0;     // padded widths
  size_t total_step = 0;
  const float* valid = nullptr;  // [batch, valid_step], 0 or minus infinity; null: all are
  size_t valid_step = 0;
  char* workers = nullptr;  // scratch memory of each worker
  size_t worker_bytes = 0;
  AttentionState partial{};  // [pair, slice, row] where there are several slices
  float* means = nullptr;    // [pair, total_step] where there are several slices and empty rows become the mean
  // The pairs that are worked off now.
  size_t first_pair = 0, pair_count = 0;
  size_t blocks = 0;  // of the longest sequence
  float *key_panels = nullptr, *value_panels = nullptr;
  std::atomic<size_t>* next = nullptr;  // task of the workers
};

// WorkerBytes is how much scratch memory a worker takes.
size_t WorkerBytes(const AttentionGo& go);

// FillAttentionPanels completes present_key and present_value for the blocks of keys from begin to end - 1, those of
// the first pair first, and puts them into panels that are shared.
void FillAttentionPanels(const AttentionGo& go, size_t begin, size_t end);

// WorkOffTiles works off tiles until there are none. state is an AttentionGo.
void WorkOffTiles(void* state, size_t worker);

// JoinSlices makes the rows of y of the pairs from begin to end - 1 of what slices gave.
void JoinSlices(const AttentionGo& go, size_t begin, size_t end);

}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_ATTENTION_TASKS_H_
