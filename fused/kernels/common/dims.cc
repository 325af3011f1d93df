// Matches the tensors of a running node against the shapes that its op declares, as fused/dims.go does for a model's.
#include "common/dims.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <initializer_list>

namespace mojo {
namespace {

// kOpen is a size that is not known, or not yet.
constexpr int64_t kOpen = INT64_MIN;

// Read reads a field of the struct of attributes.
template <class T>
T Field(const void* attributes, const AttributeDef& def) {
  T value;
  memcpy(&value, static_cast<const char*>(attributes) + def.offset, sizeof(value));
  return value;
}

// Combine makes one size of two. It saturates on overflow.
int64_t Combine(char kind, int64_t a, int64_t b) {
  int64_t made = 0;
  bool less = false, over = false;
  switch (kind) {
    case '+': over = __builtin_add_overflow(a, b, &made), less = a < 0; break;
    case '-': over = __builtin_sub_overflow(a, b, &made), less = a < 0; break;
    case '*': over = __builtin_mul_overflow(a, b, &made), less = (a < 0) != (b < 0); break;
    case ',': return a > b ? a : b;
    default: return b == 0 ? kOpen : b == -1 ? Combine('-', 0, a) : a / b;
  }
  if (!over) return made;
  return less ? kOpen + 1 : INT64_MAX;
}

}  // namespace

// Words are a message that grows.
struct CallBase::Words {
  char text[900] = "";
  size_t used = 0;

  __attribute__((format(MOJO_PRINTF, 2, 3))) void Add(const char* format, ...) {
    if (used + 1 >= sizeof(text)) return;
    va_list args;
    va_start(args, format);
    used += static_cast<size_t>(vsnprintf(text + used, sizeof(text) - used, format, args));
    va_end(args);
    if (used >= sizeof(text)) used = sizeof(text) - 1;
  }
};

OrtStatus* CallBase::Read(size_t* sizes) {
  uint64_t given = 0, open = 0;
  for (size_t i = 0; i < def_.input_count; ++i) {
    if (OrtStatus* s = ReadInput(api_, context_, def_, i, &data[i], &shapes[i])) return s;
    if (data[i] != nullptr) given |= uint64_t{1} << i;
  }
  for (size_t i = 0; i < def_.symbol_count; ++i) {
    const SizeDef& s = def_.sizes[i];
    const bool absent = s.kind != 'l' && (static_cast<uint64_t>(s.number) & given) == 0;
    values_[i] = absent ? 0 : kOpen;
    if (absent) spreads_[i] = {};
  }
  for (size_t i = 0; i < def_.relation_count; ++i) {
    const RelationDef& r = def_.relations[i];
    if (r.kind != 'i' && r.kind != 'n') continue;
    const bool left = data[r.left] != nullptr, right = data[r.right] != nullptr;
    if (left != right && (r.kind == 'i' || left)) return Errorf(api_, "mojo.%s takes %s", def_.name, r.doc);
  }
  for (size_t i = 0; i < def_.input_count; ++i) {
    if (OrtStatus* s = Check(i)) return s;
    if (open_) open |= uint64_t{1} << i;
  }
  for (size_t i = 0; i < def_.symbol_count; ++i) {
    if (values_[i] == kOpen) values_[i] = Value(static_cast<int>(i));
  }
  for (size_t i = 0; open >> i != 0; ++i) {  // a size may follow from a later input
    if ((open >> i & 1) == 0) continue;
    if (OrtStatus* s = Check(i)) return s;
  }
  if (OrtStatus* s = CheckRelations()) return s;
  for (size_t i = 0; i < def_.symbol_count; ++i) sizes[i] = static_cast<size_t>(values_[i]);
  return nullptr;
}

OrtStatus* CallBase::Check(size_t input, const size_t* sizes) {
  for (size_t i = 0; i < def_.symbol_count; ++i) values_[i] = static_cast<int64_t>(sizes[i]);
  return Check(input);
}

OrtStatus* CallBase::Check(size_t input) {
  open_ = false;
  if (data[input] == nullptr) return nullptr;
  const ShapeDef& shape = def_.input_shapes[input];
  size_t begin, end;
  for (Alternatives(shape, &begin, &end); begin < end; ++begin) {
    if (Fits(shape.list[begin], input)) return nullptr;
  }
  if (OrtStatus* s = CheckRelations()) return s;  // a broken relation is closer to the cause
  return Mismatch(input);
}

OrtStatus* CallBase::CheckRelations() const {
  for (size_t i = 0; i < def_.relation_count; ++i) {
    if (!Holds(def_.relations[i])) return Unrelated(def_.relations[i]);
  }
  return nullptr;
}

// Choice is the alternative that a selector picks: -1 if all of them are right.
int CallBase::Choice(int selector) const {
  if (selector == -1) return -1;
  if (selector < -1) return data[-2 - selector] != nullptr ? 1 : 0;
  const AttributeDef& a = def_.attributes[selector];
  if (a.type == AttributeType::kInt && !a.is_bool) return static_cast<int>(-1 - Field<int64_t>(attributes_, a));
  return a.is_bool ? Field<bool>(attributes_, a) : Field<int>(attributes_, a);
}

// Value is a size, or kOpen.
inline int64_t CallBase::Value(int size) const {
  if (static_cast<size_t>(size) < def_.symbol_count && values_[size] != kOpen) return values_[size];
  const SizeDef& s = def_.sizes[size];
  return s.kind == 'n' ? s.number : Derived(s);
}

// Derived is a size that follows from others.
int64_t CallBase::Derived(const SizeDef& s) const {
  switch (s.kind) {
    case 'a': return Field<int64_t>(attributes_, def_.attributes[s.left]);
    case '=': return Value(s.left);
    case 'l': return Value(s.right + (s.number == 1 ? 0 : Choice(s.left)));
    case 's':
    case 'p':
    case '?': return kOpen;
    default: break;
  }
  const int64_t a = Value(s.left), b = Value(s.right);
  return a == kOpen || b == kOpen ? kOpen : Combine(s.kind, a, b);
}

// Alternatives finds the alternatives of a shape that its selector allows.
void CallBase::Alternatives(const ShapeDef& shape, size_t* begin, size_t* end) const {
  const int choice = Choice(shape.selector);
  *begin = choice < 0 ? 0 : static_cast<size_t>(choice);
  *end = choice < 0 ? shape.count : *begin + 1;
}

// Fits reports whether an input has a shape, and records the sizes that follow. Each word takes one dimension, except a
// spread, which takes the others.
bool CallBase::Fits(const Alternative& want, size_t input) {
  const Shape& shape = shapes[input];
  const size_t words = want.rank - (want.spread < 0 ? 0 : 1);
  size_t missing = 0, more = 0;
  if (shape.rank > words) {
    if (want.spread < 0) return false;
    more = shape.rank - words;
  } else {
    missing = words - shape.rank;  // leading words that may be missing
    for (size_t i = 0, left = missing; left > 0; ++i) {
      if (i == want.rank || !want.dims[i].wide) return false;
      if (!want.dims[i].spread) --left;
    }
  }
  const int64_t* dim = shape.dims;
  for (size_t i = 0; i < want.rank; ++i) {
    const DimDef& d = want.dims[i];
    if (d.spread) {
      if (!FitsSpread(d, input, static_cast<size_t>(dim - shape.dims), more)) return false;
      dim += more;
    } else if (missing > 0) {
      --missing;
    } else if (!FitsSize(d, *dim++)) {
      return false;
    }
  }
  return true;
}

bool CallBase::FitsSpread(const DimDef& d, size_t input, size_t first, size_t count) {
  const int64_t* const dims = shapes[input].dims + first;
  auto& known = spreads_[d.size];
  if (values_[d.size] == kOpen) {
    known = {input, first, count};
    values_[d.size] = static_cast<int64_t>(shapes[input].Product(first, first + count));
    return true;
  }
  size_t begin = 0;
  if (d.from >= 0) {
    const int64_t from = Value(d.from) + static_cast<int64_t>(known.count);
    if (from < 0 || static_cast<size_t>(from) + count != known.count) return false;
    begin = static_cast<size_t>(from);
  } else if (count > known.count || (!d.wide && count < known.count)) {
    return false;
  } else {
    begin = known.count - count;
  }
  const int64_t* const want = shapes[known.input].dims + known.first + begin;
  for (size_t i = 0; i < count; ++i) {
    if (dims[i] != want[i] && !(d.wide && dims[i] == 1)) return false;
  }
  return true;
}

bool CallBase::FitsSize(const DimDef& d, int64_t size) {
  const int64_t want = Value(d.size);
  if (want == size) return true;
  if (want != kOpen) return d.least ? size > want : d.wide && size == 1;
  if (def_.sizes[d.size].kind == 's' && !d.wide && !d.least) {
    values_[d.size] = size;
  } else {
    open_ = true;
  }
  return true;
}

// Holds reports whether a relation of sizes holds, as far as they are known.
bool CallBase::Holds(const RelationDef& r) const {
  if (r.kind == 'i' || r.kind == 'n') return true;
  if (r.selector != -1 && (Choice(r.selector) == r.value) == r.unless) return true;
  const int64_t a = Value(r.left), b = Value(r.right);
  if (a == kOpen || b == kOpen) return true;
  if (r.kind == 'd') return b == 0 || (a != 0 && b % a == 0);
  return r.kind == '<' ? a <= b : a == b;
}

OrtStatus* CallBase::Make(size_t output, void** to) {
  const ShapeDef& want = def_.output_shapes[output];
  const auto& list = want.list[want.count == 1 ? 0 : Choice(want.selector)];
  Shape shape;
  shape.dims = shape.own;
  for (size_t i = 0; i < list.rank; ++i) {
    const DimDef& d = list.dims[i];
    const auto& from = spreads_[d.spread ? d.size : 0];
    const size_t count = d.spread ? from.count : 1;
    if (shape.rank + count > kMaxRank) {
      return Errorf(api_, "mojo.%s: %s would have more than the %zu dimensions that are supported", def_.name,
                    def_.output_names[output], kMaxRank);
    }
    for (size_t k = 0; k < count; ++k) {
      shape.own[shape.rank++] = d.spread ? shapes[from.input].dims[from.first + k] : Value(d.size);
    }
  }
  if (OrtStatus* s = MakeOutput(api_, context_, def_, output, shape, to)) return s;
  empty_ = empty_ && (*to == nullptr || shape.Count() == 0);
  return nullptr;
}

// Uses adds the inputs and attributes that a size follows from, a bit for each.
void CallBase::Uses(int size, uint64_t* inputs, uint64_t* attributes) const {
  if (size < 0) return;
  const SizeDef& s = def_.sizes[size];
  switch (s.kind) {
    case 'n':
    case '?': return;
    case 'a': *attributes |= uint64_t{1} << s.left; return;
    case '=': return Uses(s.left, inputs, attributes);
    case 'l':
      if (s.left >= 0) *attributes |= uint64_t{1} << s.left;
      return Uses(s.right + (s.number == 1 ? 0 : Choice(s.left)), inputs, attributes);
    case 's':
    case 'p':
      for (size_t i = 0; i < def_.input_count; ++i) {
        if ((s.number >> i & 1) == 0 || data[i] == nullptr) continue;
        *inputs |= uint64_t{1} << i;
        return;
      }
      return;
    default: Uses(s.left, inputs, attributes); Uses(s.right, inputs, attributes);
  }
}

// With names the shapes of inputs, and attributes with their values.
void CallBase::With(uint64_t inputs, uint64_t attributes, Words* words) const {
  const char* before = " with";
  for (size_t i = 0; i < def_.input_count; ++i) {
    if ((inputs >> i & 1) == 0) continue;
    words->Add("%s %s %s", before, def_.input_names[i], ShapeText(shapes[i]).text);
    before = ",";
  }
  for (size_t i = 0; i < def_.attribute_count; ++i) {
    if ((attributes >> i & 1) == 0) continue;
    const AttributeDef& a = def_.attributes[i];
    if (a.type == AttributeType::kString) {
      words->Add("%s %s %s", before, a.name, a.values[Choice(static_cast<int>(i))]);
    } else {
      words->Add("%s %s %lld", before, a.name, static_cast<long long>(Field<int64_t>(attributes_, a)));
    }
    before = ",";
  }
}

// Write writes a word of a shape as the catalogue has it.
void CallBase::Write(const DimDef& d, Words* words) const {
  if (!d.spread) return words->Add("%s%s", d.least ? ">=" : "", def_.sizes[d.size].text);
  words->Add("%s...", def_.sizes[d.size].text + 1);
  if (d.from >= 0) words->Add("[%s]", def_.sizes[d.from].text);
}

// Expected writes a shape as far as its sizes are known, and then as the catalogue has it.
void CallBase::Expected(const ShapeDef& shape, Words* words) const {
  size_t begin, end;
  Alternatives(shape, &begin, &end);
  for (size_t n = begin; n < end; ++n) {
    words->Add(n == begin ? "[" : " or [");
    const char* before = "";
    for (size_t i = 0; i < shape.list[n].rank; ++i) {
      const DimDef& d = shape.list[n].dims[i];
      const auto& part = spreads_[d.spread ? d.size : 0];
      const int64_t size = d.spread ? kOpen : Value(d.size);
      int64_t first = d.from < 0 ? 0 : static_cast<int64_t>(part.count) + Value(d.from);
      if (size != kOpen) {
        words->Add("%s%s%lld", before, d.least ? ">=" : "", static_cast<long long>(size));
      } else if (!d.spread || values_[d.size] == kOpen || first < 0) {
        words->Add("%s", before);
        Write(d, words);
      } else {
        for (; static_cast<size_t>(first) < part.count; ++first, before = ",") {
          words->Add("%s%lld", before, static_cast<long long>(shapes[part.input].dims[part.first + first]));
        }
        if (part.count == 0) continue;
      }
      before = ",";
    }
    words->Add("]");
  }
  for (size_t n = begin; n < end; ++n) {
    words->Add(n == begin ? " (" : " or ");
    for (size_t i = 0; i < shape.list[n].rank; ++i) {
      words->Add("%s", i == 0 ? "" : " ");
      Write(shape.list[n].dims[i], words);
    }
  }
  words->Add(")");
}

OrtStatus* CallBase::Mismatch(size_t input) const {
  const ShapeDef& shape = def_.input_shapes[input];
  uint64_t inputs = 0, attributes = shape.selector < 0 ? 0 : uint64_t{1} << shape.selector;
  bool wide = false;
  size_t begin, end;
  for (Alternatives(shape, &begin, &end); begin < end; ++begin) {
    for (size_t i = 0; i < shape.list[begin].rank; ++i) {
      const DimDef& d = shape.list[begin].dims[i];
      wide = wide || d.wide;
      for (const int size : {d.size, d.from}) Uses(size, &inputs, &attributes);
    }
  }
  Words words;
  words.Add("mojo.%s: %s has shape %s; it must %s ", def_.name, def_.input_names[input], ShapeText(shapes[input]).text,
            wide ? "broadcast to" : "be");
  Expected(shape, &words);
  With(inputs & ~(uint64_t{1} << input), attributes, &words);
  return Errorf(api_, "%s", words.text);
}

OrtStatus* CallBase::Unrelated(const RelationDef& r) const {
  uint64_t inputs = 0, attributes = r.selector < 0 ? 0 : uint64_t{1} << r.selector;
  Uses(r.left, &inputs, &attributes);
  Uses(r.right, &inputs, &attributes);
  Words words;
  words.Add("mojo.%s takes %s: %s, here %lld and %lld,", def_.name, r.doc, r.text,
            static_cast<long long>(Value(r.left)), static_cast<long long>(Value(r.right)));
  With(inputs, attributes, &words);
  return Errorf(api_, "%s", words.text);
}

}  // namespace mojo
