// The scale of a norm, where it is a constant.
#ifndef MOJO_KERNELS_CPU_PREPARED_SCALE_H_
#define MOJO_KERNELS_CPU_PREPARED_SCALE_H_

#include <memory>

#include "common/op.h"

namespace mojo {

// PreparedScale keeps a constant scale as float32: a run then neither fetches it nor widens it.
class PreparedScale {
 public:
  // Prepare reads input number index of the node. It does nothing where that is no constant.
  OrtStatus* Prepare(const KernelInit& init, size_t index);

  // data is the scale, null where it is no constant.
  const float* data() const { return data_.get(); }
  // SetShape writes its shape to *shape.
  void SetShape(Shape* shape) const;

 private:
  std::unique_ptr<float[]> data_;
  size_t rank_ = 0;
  int64_t dims_[kMaxRank];
};

}  // namespace mojo

#endif  // MOJO_KERNELS_CPU_PREPARED_SCALE_H_
