// The two phases of an aclnn call: the first checks the arguments and plans, the second puts the plan into a stream.
#pragma once

#include <initializer_list>

#include "values.h"

struct aclTensor {
  cann_emulation::Tensor tensor;
  aclFormat format;
};

struct aclTensorList {
  std::vector<aclTensor*> tensors;
};

struct aclScalar {
  double value;
  aclDataType type;
};

struct aclIntArray {
  std::vector<int64_t> values;
};

namespace cann_emulation {

// The work of an operator on the device. The tensors come in the plan's order; an omitted one is false.
using Kernel = std::function<void(const std::vector<Tensor>&)>;

// A named tensor of a call.
struct Argument {
  const char* name;
  const aclTensor* tensor;
};

// The first phase of one call: gathers the tensors while it checks them. All checks throw Failure, with 161001 for a
// missing argument and 161002 for a wrong one unless another code is given.
class Planner {
 public:
  explicit Planner(const char* op) : op_(op) {}

  // The tensors that the call reads and writes: all of one position at a time, so that their order is the kernel's.
  void Inputs(std::initializer_list<Argument> arguments);
  void Outputs(std::initializer_list<Argument> arguments);
  void Optional(std::initializer_list<Argument> arguments);
  void InputList(const char* name, const aclTensorList* list);
  void OutputList(const char* name, const aclTensorList* list);

  void Require(bool condition, int code, const char* format, ...) const __attribute__((format(printf, 4, 5)));
  void NotNull(const char* name, const void* argument) const;
  void Absent(const char* name, const void* argument) const;
  // BFLOAT16 does not count on a chip without it.
  void Types(const Argument& a, std::initializer_list<aclDataType> types) const;
  void SameType(const Argument& a, const Argument& b) const;
  void SameDims(const Argument& a, const Argument& b, int code = ACLNN_ERR_PARAM_INVALID) const;
  void HasDims(const Argument& a, const std::vector<int64_t>& dims, int code = ACLNN_ERR_PARAM_INVALID) const;
  void Rank(const Argument& a, size_t least, size_t most, int code = ACLNN_ERR_PARAM_INVALID) const;
  void Contiguous(const Argument& a) const;

  Kernel kernel;  // set by the call

  const char* op() const { return op_; }
  const std::vector<const aclTensor*>& tensors() const { return tensors_; }
  const std::vector<size_t>& inputs() const { return inputs_; }
  const std::vector<size_t>& outputs() const { return outputs_; }

 private:
  void Add(const Argument& a, std::vector<size_t>* side);

  const char* op_;
  std::vector<const aclTensor*> tensors_;
  std::vector<size_t> inputs_, outputs_;
};

// Runs the first phase: counts the call, plans, and returns executor and workspace size.
aclnnStatus Plan(const char* op, uint64_t* workspaceSize, aclOpExecutor** executor,
                 const std::function<void(Planner&)>& plan);
// Runs the second phase.
aclnnStatus Execute(const char* op, void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                    aclrtStream stream);

inline const std::vector<int64_t>& DimsOf(const aclTensor* t) { return t->tensor.dims; }
inline aclDataType TypeOf(const aclTensor* t) { return t->tensor.type; }

}  // namespace cann_emulation

// Defines the second phase of a call.
#define SECOND_PHASE(op)                                                                                            \
  extern "C" aclnnStatus op(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) { \
    return cann_emulation::Execute(#op, workspace, workspaceSize, executor, stream);                                \
  }
