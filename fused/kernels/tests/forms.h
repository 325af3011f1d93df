// The ways to use each op that kernels are tried in: forms.cc is generated from the catalogue, read_forms.cc reads it.
#ifndef MOJO_KERNELS_TESTS_FORMS_H_
#define MOJO_KERNELS_TESTS_FORMS_H_

#include <vector>

#include "common/schema.h"
#include "tests/stand_in.h"

namespace mojo_test {

using Dims = std::vector<int64_t>;

// kLeftOut is the shape of an input that a node leaves out.
const Dims kLeftOut{-7};

struct Form {
  const mojo::OpDef& op;
  OrtKernelInfo attributes;
  std::vector<Dims> inputs, outputs;  // shapes
  std::vector<size_t> types;          // which of the op's combinations it is there for
};

// FormText is a form as it is written: words of NAME=VALUE, of [DIM,DIM] or "-" for an input that is left out, of
// numbers. It compiles in no time, which some hundred vectors of vectors do not.
struct FormText {
  const mojo::OpDef* op;
  const char *ints, *floats, *strings, *inputs, *outputs, *types;
};

const std::vector<FormText>& FormTexts();
const std::vector<Form>& Forms();

// FindKernel returns the kernel of an op for types and a provider, null for the CPU. It returns null if there is no
// such kernel.
const OrtCustomOp* FindKernel(const mojo::OpDef& op, const mojo::TypeCombo& types, const char* provider);

}  // namespace mojo_test

#endif  // MOJO_KERNELS_TESTS_FORMS_H_
