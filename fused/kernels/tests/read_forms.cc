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
    for (const FormText& text : FormTexts()) {
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

}  // namespace mojo_test
