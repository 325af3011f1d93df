// The steps of a run of Attention, each cut into tasks that threads take by turns.
//
// A pair is a sequence and a head of keys. Its rows are the queries of its heads, head after head for each token. The
// result of a task does not depend on the number of threads.
#pragma once

#include <atomic>

#include "attention/common/attention.h"
#include "cpu/simd/kernels.h"

namespace mojo {

// PairRows are the keys or the values of a pair, as tasks read them.
struct PairRows {
  const char* data;
  size_t step;                     // elements from one to the next
  const size_t* places = nullptr;  // the number of each in data; null: they follow each other
};

// AttentionState is the state of a tile, or of one slice of its keys.
struct AttentionState {
  float *most = nullptr, *sum = nullptr, *total = nullptr;
};

// AttentionGo is the shared state of a run's tasks.
struct AttentionGo {
  const AttentionAttributes& attributes;
  const AttentionTensors& t;
  const AttentionFns& fns;
  size_t size = 0;        // of an element of keys and values
  size_t row_size = 0;    // of one row of queries or of the result
  bool panels = false;    // keys and values are put into panels first
  bool shared = false;    // all tiles share the panels of all blocks; else a pair's only tile packs block by block
  bool copies = false;    // rows of past_key become rows of present_key
  bool by_token = false;  // a task reads the keys of all heads: they are side by side
  bool streams = false;   // the copies bypass the processor's caches, while rows are read
  size_t pairs = 0;       // all of them
  size_t group = 0;       // heads that share keys
  size_t rows = 0;        // of a pair
  size_t tile_rows = 0;   // of a tile
  size_t tiles = 0;       // of a pair
  size_t least = 0;       // keys that are worth a slice
  size_t calls = 0;       // tiles that are worked off together: of a sequence of its own, or of all
  size_t slices = 0;      // of the keys of a tile, the most of all sequences
  size_t q_step = 0;      // padded widths
  size_t total_step = 0;
  const float* valid = nullptr;  // [batch, valid_step], 0 or minus infinity; null: all are valid
  size_t valid_step = 0;
  char* workers = nullptr;  // scratch memory of each worker
  size_t worker_bytes = 0;
  AttentionState partial{};  // [pair, slice, row] if there are several slices, or by_token
  float* means = nullptr;    // [pair, total_step] if there are several slices and empty rows become the mean
  // The pairs that are worked off now.
  size_t first_pair = 0, pair_count = 0;
  size_t blocks = 0;  // of the longest sequence
  float *key_panels = nullptr, *value_panels = nullptr;
  std::atomic<size_t>* next = nullptr;  // task of the workers
};

// SlicesOf is the number of slices of the keys of a tile.
size_t SlicesOf(const AttentionGo& go, size_t length);

// WorkerBytes is the scratch memory of a worker.
size_t WorkerBytes(const AttentionGo& go);

// FillAttentionPanels completes present_key and present_value for the blocks of keys from begin to end - 1, beginning
// with the first pair, and packs them into shared panels.
void FillAttentionPanels(const AttentionGo& go, size_t begin, size_t end);

// WorkOffTiles works off tiles until all are done. state is an AttentionGo.
void WorkOffTiles(void* state, size_t worker);

// WorkOffTokens is WorkOffTiles for tasks that read the keys of all heads.
void WorkOffTokens(void* state, size_t worker);

// JoinSlices joins the slices' results into rows of y, for the pairs from begin to end - 1.
void JoinSlices(const AttentionGo& go, size_t begin, size_t end);

}  // namespace mojo
