// The products of LatentAttention: of each head, rows of numbers with its part of w.
#pragma once

#include "cuda/common.cuh"

namespace mojo {

// HeadProduct multiplies the first depth numbers of each row of x by a matrix of its head, and copies the rest of the
// row after the columns of y.
struct HeadProduct {
  const void *x, *w;
  void* y;
  HeadSteps x_steps, y_steps;
  size_t w_head, w_deep,
      w_column;               // from one head, number of the depth or column to the next; one of the last two is 1
  size_t batch, heads, rows;  // rows of a sequence
  size_t depth, columns, copied;
  const int64_t* lengths;  // [batch] valid rows, on the device; null: all
  MojoType type;
};

cudaError_t MultiplyByHeads(const HeadProduct& p, cudaStream_t stream);

}  // namespace mojo
