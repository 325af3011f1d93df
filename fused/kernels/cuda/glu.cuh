// How a GLU is spread over threads, for timings.
#ifndef MOJO_KERNELS_CUDA_GLU_CUH_
#define MOJO_KERNELS_CUDA_GLU_CUH_

namespace mojo {

// GLUPlan is the packs of 16 bytes of each tensor that a thread does (1, 2 or 4), and the threads of a
// block.
struct GLUPlan {
  int packs;
  int threads;
};

// ForceGLUPlan makes every GLU take plan, until it is called with null: for timings only, from one
// thread.
void ForceGLUPlan(const GLUPlan* plan);

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_GLU_CUH_
