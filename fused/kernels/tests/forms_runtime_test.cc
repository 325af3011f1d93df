// The part of the runtime test for the forms of the catalogue.
#include <string.h>

#include "tests/runtime_test.h"

namespace mojo_test {
namespace {

// RunForm makes and runs the kernel of a form, with outputs over the inputs whose memory the kernel may take, or not.
Result RunForm(const OrtApi& api, const OrtCustomOp* op, const Form& form, const mojo::TypeCombo& types, int threads,
               bool in_place) {
  std::vector<OrtValue> inputs, outputs;
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    inputs.push_back(Tensor(types.inputs[i], form.inputs[i], 0.25f * static_cast<float>(i)));
    if (types.inputs[i] != mojo::kI32 || form.inputs[i] == kLeftOut || inputs[i].data == nullptr) continue;
    for (size_t k = 0; k < inputs[i].memory.size() / 4 - 1; ++k) {
      const int32_t number = PagedNumber(form.inputs, i, static_cast<int64_t>(k));
      memcpy(inputs[i].data + 4 * k, &number, 4);
    }
  }
  for (size_t i = 0; i < form.outputs.size(); ++i) outputs.push_back(Tensor(types.outputs[i], form.outputs[i], 9));
  OrtKernelContext context{{}, {}, threads};
  for (size_t i = 0; i < inputs.size(); ++i) {
    context.inputs.push_back(form.inputs[i] == kLeftOut ? nullptr : &inputs[i]);
  }
  for (OrtValue& v : outputs) context.outputs.push_back(&v);
  if (in_place && op->version >= 18 && op->GetMayInplace != nullptr) {
    int *from, *to;
    const size_t pairs = op->GetMayInplace(&from, &to);
    for (size_t i = 0; i < pairs; ++i) {
      const size_t in = static_cast<size_t>(from[i]), out = static_cast<size_t>(to[i]);
      const bool given = in < inputs.size() && form.inputs[in] != kLeftOut;
      if (given && types.inputs[in] == types.outputs[out]) context.outputs[out] = &inputs[in];
    }
    op->ReleaseMayInplace(from, to);
  }
  if (in_place && form.op.name == mojo::kAttention.name && form.inputs.size() > mojo::kAttentionPastLength &&
      form.inputs[mojo::kAttentionPastLength] != kLeftOut) {
    // A caller may bind a cache over itself.
    context.outputs[1] = &inputs[mojo::kAttentionPastKey];
    context.outputs[2] = &inputs[mojo::kAttentionPastValue];
  }
  const bool coded = form.op.name == mojo::kQPagedAttention.name;
  if (in_place && (coded || form.op.name == mojo::kPagedAttention.name)) {
    context.outputs[1] = &inputs[mojo::kPagedAttentionKeyCache];
    context.outputs[2] = &inputs[mojo::kPagedAttentionValueCache];
  }
  if (in_place && coded) {
    context.outputs[3] = &inputs[mojo::kQPagedAttentionKeyScale];
    context.outputs[4] = &inputs[mojo::kQPagedAttentionValueScale];
  }
  Result result;
  void* kernel = nullptr;
  OrtStatus* status = op->CreateKernelV2(op, &api, &form.attributes, &kernel);
  if (status == nullptr) {
    status = op->KernelComputeV2(kernel, &context);
    op->KernelDestroy(kernel);
  }
  if (status != nullptr) {
    result.error = status->message;
    api.ReleaseStatus(status);
  } else {
    for (size_t i = 0; i < outputs.size(); ++i) {
      OrtValue& v = *context.outputs[i];
      Check(v.shape == form.outputs[i], form.op.name, "an output has another shape than the catalogue says");
      if (v.data != nullptr) result.bytes.append(v.data, v.memory.data() + v.memory.size());
    }
  }
  Check(live_objects == 0, form.op.name, "a status or a shape is not released");
  return result;
}

}  // namespace

void TestForms(const OrtApi& api, bool thorough) {
  for (const Form& form : Forms()) {
    for (const size_t at : form.types) {
      const mojo::TypeCombo& types = form.op.combos[at];
      const OrtCustomOp* op = FindKernel(form.op, types, nullptr);
      if (op == nullptr) {
        Check(false, form.op.name, "a combination of types has no kernel for the CPU");
        continue;
      }
      const Result want = RunForm(api, op, form, types, 1, false);
      Check(want.error.empty(), form.op.name, want.error);
      for (const Way& way : thorough ? kWays : std::vector<Way>()) {
        Check(RunForm(api, op, form, types, way.threads, way.in_place) == want, form.op.name,
              "threads or memory change the result");
      }
    }
  }
}

void TestAttributes(const OrtApi& api) {
  const mojo::OpDef* last = nullptr;
  for (const Form& form : Forms()) {
    if (&form.op == last) continue;
    last = &form.op;
    const mojo::TypeCombo& types = form.op.combos[form.types[0]];
    const OrtCustomOp* op = FindKernel(form.op, types, nullptr);
    for (size_t i = 0; op != nullptr && i < form.op.attribute_count; ++i) {
      const std::string name = form.op.attributes[i].name;
      OrtKernelInfo info = form.attributes;
      Check(info.ints.erase(name) + info.floats.erase(name) + info.strings.erase(name) == 1, form.op.name,
            "a form has no " + name);
      const Form without{form.op, info, form.inputs, form.outputs, form.types};
      const std::string error = RunForm(api, op, without, types, 1, false).error;
      Check(error.find("attribute " + name + " (") != std::string::npos, form.op.name + (" without " + name), error);
    }
  }
}

void TestEmpty(const OrtApi& api) {
  for (const Form& form : Forms()) {
    const mojo::TypeCombo& types = form.op.combos[form.types[0]];
    const OrtCustomOp* op = FindKernel(form.op, types, nullptr);
    for (size_t i = 0; op != nullptr && i < form.inputs.size(); ++i) {
      for (size_t axis = 0; form.inputs[i] != kLeftOut && axis < form.inputs[i].size(); ++axis) {
        Form empty = form;
        empty.inputs[i][axis] = 0;
        // The number of outputs is not known.
        std::vector<OrtValue> inputs, outputs(form.outputs.size());
        OrtKernelContext context{{}, {}, 1};
        for (size_t k = 0; k < form.inputs.size(); ++k) inputs.push_back(Tensor(types.inputs[k], empty.inputs[k], 0));
        for (size_t k = 0; k < form.inputs.size(); ++k) {
          context.inputs.push_back(form.inputs[k] == kLeftOut ? nullptr : &inputs[k]);
        }
        for (OrtValue& v : outputs) {
          v.element = 8;
          context.outputs.push_back(&v);
        }
        void* kernel = nullptr;
        OrtStatus* status = op->CreateKernelV2(op, &api, &form.attributes, &kernel);
        if (status == nullptr) {
          status = op->KernelComputeV2(kernel, &context);
          op->KernelDestroy(kernel);
        }
        const std::string name = form.op.input_names[i], error = status == nullptr ? "no error" : status->message;
        const bool quantized = name.find("codes") != std::string::npos || name.find("minus") != std::string::npos ||
                               (name.find("scale") != std::string::npos && form.op.attribute_count > 3);
        if (quantized) Check(error.find(" has shape [") != std::string::npos, form.op.name, name + ": " + error);
        if (status != nullptr) api.ReleaseStatus(status);
      }
    }
  }
}

}  // namespace mojo_test
