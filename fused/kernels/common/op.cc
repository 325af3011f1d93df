#include "common/op.h"

#include <memory>
#include <mutex>
#include <new>

namespace mojo {
namespace {

// CustomOp is an OrtCustomOp with its row of the table. onnxruntime passes the registered pointer to the callbacks, so
// they find their row by a cast.
struct CustomOp : OrtCustomOp {
  const OpDef* def;
  const Backend* backend;
  const TypeCombo* types;
};

const CustomOp& Self(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }

// Kernel is the state onnxruntime keeps for a node: which compute to call and its own state.
struct Kernel {
  const Backend* backend;
  void* state;
};

const char* GetName(const OrtCustomOp* op) { return Self(op).def->name; }
const char* GetProvider(const OrtCustomOp* op) { return Self(op).backend->provider; }
size_t GetInputCount(const OrtCustomOp* op) { return Self(op).def->input_count; }
size_t GetOutputCount(const OrtCustomOp* op) { return Self(op).def->output_count; }
ONNXTensorElementDataType GetInputType(const OrtCustomOp* op, size_t i) { return Self(op).types->inputs[i]; }
ONNXTensorElementDataType GetOutputType(const OrtCustomOp* op, size_t i) { return Self(op).types->outputs[i]; }
OrtCustomOpInputOutputCharacteristic GetInputCharacteristic(const OrtCustomOp* op, size_t i) {
  return i < Self(op).def->required_inputs ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
}
OrtCustomOpInputOutputCharacteristic GetOutputCharacteristic(const OrtCustomOp* op, size_t i) {
  return i < Self(op).def->required_outputs ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
}
OrtMemType GetInputMemoryType(const OrtCustomOp*, size_t) { return OrtMemTypeDefault; }
int One(const OrtCustomOp*) { return 1; }
void ReleasePairs(int* inputs, int* outputs) {
  free(inputs);
  free(outputs);
}

OrtStatus* CreateKernelV2(const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo* info, void** kernel) {
  const CustomOp& self = Self(op);
  const Api& api = TheApi();
  auto* made = new (std::nothrow) Kernel{self.backend, nullptr};
  if (made == nullptr) return api.ort->CreateStatus(ORT_FAIL, "mojo: out of memory");
  const KernelInit init{api, *self.def, *self.types, info};
  if (OrtStatus* status = self.backend->create(init, &made->state)) {
    delete made;
    return status;
  }
  *kernel = made;
  return nullptr;
}

OrtStatus* KernelComputeV2(void* kernel, OrtKernelContext* context) {
  const auto* self = static_cast<const Kernel*>(kernel);
  return self->backend->compute(self->state, context);
}

void KernelDestroy(void* kernel) {
  auto* self = static_cast<Kernel*>(kernel);
  if (self == nullptr) return;
  self->backend->destroy(self->state);
  delete self;
}

void Fill(CustomOp* op, const Api& api, const OpEntry& entry, size_t combo) {
  *op = CustomOp{};
  // Version 18 adds outputs written over inputs. Claim only the version in use: runtimes refuse a version above their
  // own. InferOutputShapeFn (17) stays null on purpose: a wrong or half-known shape makes later nodes fail to load, a
  // missing one never does.
  op->version = api.version >= 18 ? 18 : kOldestVersion;
  // CreateKernel and KernelCompute, which cannot report errors, stay null: only then does 1.16 call the V2 ones.
  op->GetName = GetName;
  op->GetExecutionProviderType = GetProvider;
  op->GetInputType = GetInputType;
  op->GetInputTypeCount = GetInputCount;
  op->GetOutputType = GetOutputType;
  op->GetOutputTypeCount = GetOutputCount;
  op->KernelDestroy = KernelDestroy;
  op->GetInputCharacteristic = GetInputCharacteristic;
  op->GetOutputCharacteristic = GetOutputCharacteristic;
  op->GetInputMemoryType = GetInputMemoryType;
  op->GetVariadicInputMinArity = One;
  op->GetVariadicInputHomogeneity = One;
  op->GetVariadicOutputMinArity = One;
  op->GetVariadicOutputHomogeneity = One;
  op->CreateKernelV2 = CreateKernelV2;
  op->KernelComputeV2 = KernelComputeV2;
  if (op->version >= 18 && entry.backend->may_in_place != nullptr) {
    op->GetMayInplace = entry.backend->may_in_place;
    op->ReleaseMayInplace = ReleasePairs;
  }
  op->def = entry.def;
  op->backend = entry.backend;
  op->types = &entry.def->combos[combo];
}

// Sessions outlive their options and the domain object holds pointers only, so the domain and its
// CustomOps are made once and stay until the process ends.
std::mutex mutex;
OrtCustomOpDomain* domain = nullptr;

OrtStatus* MakeDomain(const Api& api, const OpEntry* table, size_t count) {
  size_t op_count = 0;
  for (size_t row = 0; row < count; ++row) op_count += table[row].def->combo_count;
  std::unique_ptr<CustomOp[]> ops(new CustomOp[op_count]);
  OrtCustomOpDomain* made = nullptr;
  OrtStatus* status = api.ort->CreateCustomOpDomain("mojo", &made);
  CustomOp* op = ops.get();
  for (size_t row = 0; row < count; ++row) {
    for (size_t combo = 0; combo < table[row].def->combo_count && status == nullptr; ++combo, ++op) {
      Fill(op, api, table[row], combo);
      status = api.ort->CustomOpDomain_Add(made, op);
    }
  }
  if (status != nullptr) {
    if (made != nullptr) api.ort->ReleaseCustomOpDomain(made);
    return status;
  }
  ops.release();  // the domain owns them from here on
  domain = made;
  return nullptr;
}

}  // namespace

OrtStatus* RegisterOps(OrtSessionOptions* options, const Api& api, const OpEntry* table, size_t count) {
  try {
    if (api.version < kOldestVersion) {
      return Errorf(api,
                    "mojo: this onnxruntime has API version %u; these custom ops need onnxruntime "
                    "1.%u or newer",
                    static_cast<unsigned>(api.version), static_cast<unsigned>(kOldestVersion));
    }
    const std::lock_guard<std::mutex> lock(mutex);
    if (domain == nullptr) {
      SetTheApi(api);
      if (OrtStatus* status = MakeDomain(api, table, count)) return status;
    } else if (api.ort != TheApi().ort) {
      // The domain and the kernels' calls belong to the first one.
      return Errorf(api,
                    "mojo: a second onnxruntime in this process asks for the custom ops; they serve "
                    "the first one that registered them");
    }
    return api.ort->AddCustomOpDomain(options, domain);
  } catch (...) {
    return api.ort->CreateStatus(ORT_FAIL, "mojo: registering the custom ops failed: out of memory");
  }
}

}  // namespace mojo
