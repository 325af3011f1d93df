// Plans and executes aclnn calls.
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "opbase.h"
#include "tensor.h"

struct aclOpExecutor {
  std::string op;
  std::vector<const aclTensor*> tensors;
  std::vector<size_t> inputs, outputs;
  std::vector<cann_emulation::Tensor> planned;  // as they were in the first phase
  cann_emulation::Kernel kernel;
  uint64_t workspace;
  bool repeatable = false;
};

using namespace cann_emulation;

namespace {

std::mutex mutex;
std::set<const aclOpExecutor*>& alive() {
  static std::set<const aclOpExecutor*>& executors = *new std::set<const aclOpExecutor*>;
  return executors;
}

bool IsAlive(const aclOpExecutor* executor) {
  std::lock_guard<std::mutex> lock(mutex);
  return alive().count(executor) != 0;
}

void Forget(aclOpExecutor* executor) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    alive().erase(executor);
  }
  Destroyed("executor");
  delete executor;
}

// The workspace of a call: not 0, to catch callers who pass no workspace, unless the call has no output.
uint64_t WorkspaceFor(const Planner& plan) {
  int64_t bytes = 0;
  for (size_t i : plan.outputs()) {
    const Tensor& t = plan.tensors()[i]->tensor;
    bytes += t.Size() * aclDataTypeSize(t.type);
  }
  return bytes ? (bytes + 511) / 512 * 512 + 512 : 0;
}

// The body of a call on the device. It overwrites the workspace first, to destroy other data in it.
void OnDevice(const std::string& op, const Kernel& kernel, const std::vector<Tensor>& tensors, void* workspace,
              uint64_t size) {
  if (Called(op + "@device")) throw Failure{ACL_ERROR_RT_AICORE_EXCEPTION, op + ": planted failure on the device"};
  try {
    if (size) memset(Open(workspace, size), 0xa5, size);
    kernel(tensors);
  } catch (const Failure& f) {
    throw Failure{f.code, op + ": " + f.text};
  }
}

aclnnStatus SetAddress(aclOpExecutor* executor, const std::vector<size_t>& side, size_t index, aclTensor* tensor,
                       void* addr) {
  if (index >= side.size())
    return Refuse(ACLNN_ERR_PARAM_INVALID, Text("%s: there is no tensor %zu", executor->op.c_str(), index));
  if (executor->tensors[side[index]] != tensor) {
    return Refuse(ACLNN_ERR_PARAM_INVALID, Text("%s: tensor %zu is another one", executor->op.c_str(), index));
  }
  executor->planned[side[index]].data = addr;
  tensor->tensor.data = addr;
  return ACL_SUCCESS;
}

}  // namespace

namespace cann_emulation {

void Planner::Add(const Argument& a, std::vector<size_t>* side) {
  if (a.tensor) {
    Require(Alive(a.tensor), ACLNN_ERR_PARAM_INVALID, "%s is no tensor, or one that was destroyed", a.name);
    Require(a.tensor->format == ACL_FORMAT_ND, ACLNN_ERR_PARAM_INVALID, "%s has format %d, not ND", a.name,
            a.tensor->format);
    side->push_back(tensors_.size());
  }
  tensors_.push_back(a.tensor);
}

void Planner::Inputs(std::initializer_list<Argument> arguments) {
  for (const Argument& a : arguments) NotNull(a.name, a.tensor);
  for (const Argument& a : arguments) Add(a, &inputs_);
}

void Planner::Outputs(std::initializer_list<Argument> arguments) {
  for (const Argument& a : arguments) NotNull(a.name, a.tensor);
  for (const Argument& a : arguments) Add(a, &outputs_);
}

void Planner::Optional(std::initializer_list<Argument> arguments) {
  for (const Argument& a : arguments) Add(a, &inputs_);
}

void Planner::InputList(const char* name, const aclTensorList* list) {
  NotNull(name, list);
  for (const aclTensor* t : list->tensors) {
    NotNull(name, t);
    Add({name, t}, &inputs_);
  }
}

void Planner::OutputList(const char* name, const aclTensorList* list) {
  NotNull(name, list);
  for (const aclTensor* t : list->tensors) {
    NotNull(name, t);
    Add({name, t}, &outputs_);
  }
}

void Planner::Require(bool condition, int code, const char* format, ...) const {
  if (condition) return;
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  throw Failure{code, std::string(op_) + ": " + text};
}

void Planner::NotNull(const char* name, const void* argument) const {
  Require(argument, ACLNN_ERR_PARAM_NULLPTR, "%s is NULL", name);
}

void Planner::Absent(const char* name, const void* argument) const {
  Require(!argument, ACLNN_ERR_PARAM_INVALID, "%s must be NULL", name);
}

void Planner::Types(const Argument& a, std::initializer_list<aclDataType> types) const {
  bool known = false;
  for (aclDataType type : types) known |= type == TypeOf(a.tensor) && !(type == ACL_BF16 && Is310P());
  Require(known, ACLNN_ERR_PARAM_INVALID, "%s is of %s, which is not supported on %s", a.name,
          TypeName(TypeOf(a.tensor)), SocName().c_str());
}

void Planner::SameType(const Argument& a, const Argument& b) const {
  Require(TypeOf(a.tensor) == TypeOf(b.tensor), ACLNN_ERR_PARAM_INVALID, "%s is of %s, %s of %s", a.name,
          TypeName(TypeOf(a.tensor)), b.name, TypeName(TypeOf(b.tensor)));
}

void Planner::SameDims(const Argument& a, const Argument& b, int code) const { HasDims(a, DimsOf(b.tensor), code); }

void Planner::HasDims(const Argument& a, const std::vector<int64_t>& dims, int code) const {
  Require(DimsOf(a.tensor) == dims, code, "%s has shape %s, not %s", a.name, Dims(DimsOf(a.tensor)).c_str(),
          Dims(dims).c_str());
}

void Planner::Rank(const Argument& a, size_t least, size_t most, int code) const {
  const size_t rank = DimsOf(a.tensor).size();
  Require(rank >= least && rank <= most, code, "%s has shape %s: %zu to %zu dims are supported", a.name,
          Dims(DimsOf(a.tensor)).c_str(), least, most);
}

void Planner::Contiguous(const Argument& a) const {
  Require(IsContiguous(a.tensor->tensor), ACLNN_ERR_PARAM_INVALID, "%s is not contiguous: strides %s for shape %s",
          a.name, Dims(a.tensor->tensor.strides).c_str(), Dims(DimsOf(a.tensor)).c_str());
}

aclnnStatus Plan(const char* op, uint64_t* workspaceSize, aclOpExecutor** executor,
                 const std::function<void(Planner&)>& plan) {
  const std::string name = std::string(op) + "GetWorkspaceSize";
  if (int planted = Called(name)) return planted;
  if (NeedsDevice(name.c_str())) return ACLNN_ERR_RUNTIME_ERROR;
  if (!workspaceSize || !executor) return Refuse(ACLNN_ERR_PARAM_NULLPTR, name + ": workspaceSize or executor is NULL");
  Planner planner(op);
  try {
    plan(planner);
  } catch (const Failure& f) {
    return Refuse(f);
  }
  auto* made = new aclOpExecutor{op, planner.tensors(), planner.inputs(),      planner.outputs(),
                                 {}, planner.kernel,    WorkspaceFor(planner), false};
  for (const aclTensor* t : made->tensors) made->planned.push_back(t ? t->tensor : Tensor());
  if (!made->workspace) made->kernel = [](const std::vector<Tensor>&) {};  // nothing to write
  *workspaceSize = made->workspace;
  *executor = made;
  Created("executor");
  std::lock_guard<std::mutex> lock(mutex);
  alive().insert(made);
  return ACL_SUCCESS;
}

aclnnStatus Execute(const char* op, void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                    aclrtStream stream) {
  if (int planted = Called(op)) {
    if (executor && IsAlive(executor) && !executor->repeatable) Forget(executor);
    return planted;
  }
  if (NeedsDevice(op)) return ACLNN_ERR_RUNTIME_ERROR;
  if (!executor) return Refuse(ACLNN_ERR_PARAM_NULLPTR, Text("%s: the executor is NULL", op));
  if (!IsAlive(executor)) return Refuse(ACLNN_ERR_INNER_NULLPTR, Text("%s: the executor was used before", op));
  std::string wrong;
  for (size_t i = 0; i < executor->tensors.size(); ++i) {
    if (executor->tensors[i] && !Alive(executor->tensors[i]))
      wrong = Text("tensor %zu was destroyed before the second phase", i);
  }
  if (executor->op != op) wrong = "the executor is one of " + executor->op;
  if (workspaceSize < executor->workspace) {
    wrong = Text("a workspace of %llu bytes was asked for, and %llu are given", (unsigned long long)executor->workspace,
                 (unsigned long long)workspaceSize);
  } else if (executor->workspace && !IsDevice(workspace)) {
    wrong = Text("the workspace at %p is not on the device", workspace);
  }
  int code = wrong.empty() ? ACL_SUCCESS : Refuse(ACLNN_ERR_PARAM_INVALID, std::string(op) + ": " + wrong);
  if (!code) {
    const uint64_t size = executor->workspace;
    code = Launch(stream, [op = executor->op, kernel = executor->kernel, tensors = executor->planned, workspace, size] {
      OnDevice(op, kernel, tensors, workspace, size);
    });
  }
  if (!executor->repeatable) Forget(executor);
  return code;
}

}  // namespace cann_emulation

extern "C" {

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  if (int planted = Called("aclSetAclOpExecutorRepeatable")) return planted;
  if (!executor || !IsAlive(executor))
    return Refuse(ACLNN_ERR_INNER_NULLPTR, "aclSetAclOpExecutorRepeatable: no executor");
  executor->repeatable = true;
  return ACL_SUCCESS;
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  if (int planted = Called("aclDestroyAclOpExecutor")) return planted;
  if (!executor || !IsAlive(executor)) return Refuse(ACLNN_ERR_INNER_NULLPTR, "aclDestroyAclOpExecutor: no executor");
  Forget(executor);
  return ACL_SUCCESS;
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  if (int planted = Called("aclSetInputTensorAddr")) return planted;
  if (!executor || !tensor) return Refuse(ACLNN_ERR_INNER_NULLPTR, "aclSetInputTensorAddr: no executor, or no tensor");
  return SetAddress(executor, executor->inputs, index, tensor, addr);
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  if (int planted = Called("aclSetOutputTensorAddr")) return planted;
  if (!executor || !tensor) return Refuse(ACLNN_ERR_INNER_NULLPTR, "aclSetOutputTensorAddr: no executor, or no tensor");
  return SetAddress(executor, executor->outputs, index, tensor, addr);
}
}
