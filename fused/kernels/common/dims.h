// The tensors of a running node, and their sizes.
#pragma once

#include "common/op.h"

namespace mojo {

// CallBase is a running node of any op.
class CallBase {
 public:
  CallBase(const Api& api, OrtKernelContext* context, const OpDef& def, const void* attributes)
      : api_(api), context_(context), def_(def), attributes_(attributes) {}

  const void* data[kMaxInputs];  // null: left out
  Shape shapes[kMaxInputs];

  const Api& api() const { return api_; }
  const OpDef& def() const { return def_; }
  OrtKernelContext* context() const { return context_; }

  // Empty reports whether each output that Make has allocated is left out or has no elements.
  bool Empty() const { return empty_; }

  // Make allocates an output, of the shape that the op declares. data is null if the node leaves it out.
  OrtStatus* Make(size_t output, void** data);
  template <class T>
  OrtStatus* Make(size_t output, T** data) {
    void* made = nullptr;
    OrtStatus* s = Make(output, &made);
    *data = static_cast<T*>(made);
    return s;
  }

  template <class T>
  const T* Get(size_t input) const {
    return static_cast<const T*>(data[input]);
  }

 protected:
  // Read reads the inputs and checks them against the op's shapes.
  OrtStatus* Read(size_t* sizes);
  // Check checks an input again, with sizes known since.
  OrtStatus* Check(size_t input, const size_t* sizes);

 private:
  int Choice(int selector) const;
  int64_t Value(int size) const;
  int64_t Derived(const SizeDef& s) const;
  void Alternatives(const ShapeDef& shape, size_t* begin, size_t* end) const;
  OrtStatus* Check(size_t input);
  OrtStatus* CheckRelations() const;
  bool Fits(const Alternative& want, size_t input);
  bool FitsSpread(const DimDef& d, size_t input, size_t first, size_t count);
  bool FitsSize(const DimDef& d, int64_t size);
  bool Holds(const RelationDef& r) const;
  OrtStatus* Mismatch(size_t input) const;
  OrtStatus* Unrelated(const RelationDef& r) const;
  struct Words;
  void Write(const DimDef& d, Words* words) const;
  void Expected(const ShapeDef& shape, Words* words) const;
  void Uses(int size, uint64_t* inputs, uint64_t* attributes) const;
  void With(uint64_t inputs, uint64_t attributes, Words* words) const;

  const Api& api_;
  OrtKernelContext* const context_;
  const OpDef& def_;
  const void* const attributes_;
  int64_t values_[kMaxSizes];
  // A spread is count dims of an input, from number first on.
  struct {
    size_t input, first, count;
  } spreads_[kMaxSizes];
  bool open_ = false;  // the checked input has an unknown size
  bool empty_ = true;
};

// CallOf is a running node of one op. Its Sizes (types.h) contain only numbers.
template <const OpDef& kDef, class AttributesOf, class SizesOf>
class CallOf : public CallBase {
 public:
  using Attributes = AttributesOf;
  using Sizes = SizesOf;

  CallOf(const Api& api, OrtKernelContext* context, const Attributes& attributes)
      : CallBase(api, context, kDef, &attributes), attributes(attributes) {}

  const Attributes& attributes;
  Sizes sizes;  // set by Read; a size that only the data of a tensor tells is greater than any other

  OrtStatus* Read() { return CallBase::Read(reinterpret_cast<size_t*>(&sizes)); }
  OrtStatus* Check(size_t input) { return CallBase::Check(input, reinterpret_cast<size_t*>(&sizes)); }
};

}  // namespace mojo
