#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include "tests/forms.h"

namespace mojo_test {
namespace {

std::vector<std::string> Words(const char* text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// Attributes maps the names of NAME=VALUE to the values, parsed by read.
template <typename T, typename Read>
std::map<std::string, T> Attributes(const char* text, const Read& read) {
  std::map<std::string, T> made;
  for (const std::string& word : Words(text)) {
    const size_t equals = word.find('=');
    made[word.substr(0, equals)] = read(word.substr(equals + 1));
  }
  return made;
}

std::vector<Dims> Shapes(const char* text) {
  std::vector<Dims> made;
  for (const std::string& word : Words(text)) {
    made.push_back(word == "-" ? kLeftOut : Dims());
    std::istringstream in(word);
    char separator;
    for (int64_t dim; in >> separator >> dim;) made.back().push_back(dim);
  }
  return made;
}

}  // namespace

const std::vector<Form>& Forms() {
  static const std::vector<Form> forms = [] {
    std::vector<Form> made;
    FormText text{};
    for (const FormText& next : FormTexts()) {
      text.op = next.op;
      for (const auto field : {&FormText::ints, &FormText::floats, &FormText::strings, &FormText::inputs,
                               &FormText::outputs, &FormText::types}) {
        if (next.*field != nullptr) text.*field = next.*field;
      }
      const OrtKernelInfo attributes{Attributes<int64_t>(text.ints, [](const std::string& s) { return std::stoll(s); }),
                                     Attributes<float>(text.floats, [](const std::string& s) { return std::stof(s); }),
                                     Attributes<std::string>(text.strings, [](const std::string& s) { return s; }),
                                     {}};
      std::vector<size_t> types;
      for (const std::string& word : Words(text.types)) types.push_back(std::stoul(word));
      made.push_back({*text.op, attributes, Shapes(text.inputs), Shapes(text.outputs), types});
    }
    return made;
  }();
  return forms;
}

int32_t PagedNumber(const std::vector<Dims>& inputs, size_t input, int64_t at) {
  const int64_t tokens = inputs[mojo::kPagedAttentionQ][0], pool = inputs[mojo::kPagedAttentionKeyCache][0];
  const int64_t block = inputs[mojo::kPagedAttentionKeyCache][1];
  const int64_t batch = inputs[mojo::kPagedAttentionBlockTable][0], most = inputs[mojo::kPagedAttentionBlockTable][1];
  const auto cum = [&](int64_t b) { return tokens * b * b / (batch * batch); };
  const auto past = [&](int64_t b) { return std::max<int64_t>(0, most * block + cum(b) - cum(b + 1) - 3 * b); };
  const auto table = [&](int64_t b, int64_t i) { return pool - 1 - (b * most + i) % pool; };
  if (input == mojo::kPagedAttentionCumulativeSequenceLength) return static_cast<int32_t>(cum(at));
  if (input == mojo::kPagedAttentionPastSeqlens) return static_cast<int32_t>(past(at));
  if (input == mojo::kPagedAttentionBlockTable) return static_cast<int32_t>(table(at / most, at % most));
  int64_t b = 0;
  while (b + 1 < batch && cum(b + 1) <= at) ++b;
  const int64_t place = past(b) + at - cum(b);
  return at % 3 == 1 ? -1 : static_cast<int32_t>(table(b, place / block % most) * block + place % block);
}

}  // namespace mojo_test
