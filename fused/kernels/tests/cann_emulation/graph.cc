// The C++ interface of the graph engine that the provider links: it makes only strings and empty graphs.
#include <map>
#include <memory>

#include "core.h"

namespace ge {

using graphStatus = uint32_t;
constexpr graphStatus kFailed = 0xFFFFFFFF;

class AscendString {
 public:
  AscendString(const char* name);
  bool operator<(const AscendString& other) const;

 private:
  std::shared_ptr<std::string> name_;
};

class Graph {
 public:
  explicit Graph(const char* name);

 private:
  std::shared_ptr<void> impl_;
};

struct ModelBufferData;

AscendString::AscendString(const char* name) : name_(std::make_shared<std::string>(name ? name : "")) {}
bool AscendString::operator<(const AscendString& other) const {
  return (name_ ? *name_ : "") < (other.name_ ? *other.name_ : "");
}
Graph::Graph(const char*) {}

namespace {
graphStatus Refused(const char* name) {
  cann_emulation::Called(name);
  cann_emulation::Refuse(ACL_ERROR_API_NOT_SUPPORT,
                         std::string(name) + ": the emulation runs no whole graphs: enable_cann_graph=0");
  return kFailed;
}
}  // namespace

graphStatus aclgrphBuildInitialize(std::map<AscendString, AscendString>&) { return Refused("aclgrphBuildInitialize"); }
void aclgrphBuildFinalize() {}
graphStatus aclgrphBuildModel(const Graph&, const std::map<AscendString, AscendString>&, ModelBufferData&) {
  return Refused("aclgrphBuildModel");
}
graphStatus aclgrphSaveModel(const char*, const ModelBufferData&) { return Refused("aclgrphSaveModel"); }
graphStatus aclgrphParseONNXFromMem(const char*, unsigned long, const std::map<AscendString, AscendString>&, Graph&) {
  return Refused("aclgrphParseONNXFromMem");
}

}  // namespace ge
