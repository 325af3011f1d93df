// The forms of each op that tests run: forms.cc is generated from the catalogue, read_forms.cc reads it.
#pragma once

#include <vector>

#include "common/schema.h"
#include "tests/stand_in.h"

namespace mojo_test {

using Dims = std::vector<int64_t>;

// kLeftOut is the shape of an omitted input.
const Dims kLeftOut{-7};

struct Form {
  const mojo::OpDef& op;
  OrtKernelInfo attributes;
  std::vector<Dims> inputs, outputs;  // shapes
  std::vector<size_t> types;          // the op's combinations that it applies to
};

// FormText is a form as text: words of NAME=VALUE, of [DIM,DIM] or "-" for an omitted input, of numbers. A text that is
// the same as in the form above is null. It compiles fast; hundreds of vectors of vectors do not.
struct FormText {
  const mojo::OpDef* op;
  const char *ints, *floats, *strings, *inputs, *outputs, *types;
};

const std::vector<FormText>& FormTexts();
const std::vector<Form>& Forms();

// PagedNumber returns a number of an integer input of PagedAttention, for inputs of these shapes: sequences of unequal
// lengths, each in blocks of its own if there are enough.
int32_t PagedNumber(const std::vector<Dims>& inputs, size_t input, int64_t at);

// FindKernel returns the kernel of an op for types and a provider, null for the CPU. It returns null if there is no
// such kernel.
const OrtCustomOp* FindKernel(const mojo::OpDef& op, const mojo::TypeCombo& types, const char* provider);

}  // namespace mojo_test
