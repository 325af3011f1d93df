// AllReduce, AllGather, ReduceScatter and AllToAll on the CPU.
#include <string.h>

#include "common/attributes.h"
#include "cpu/backends.h"

namespace mojo {
namespace {

// Collective is the state of one node.
template <class Call>
struct Collective {
  typename Call::Attributes attributes{};
  size_t element = 4;

  OrtStatus* Init(const KernelInit& init);
  OrtStatus* Compute(const Api& api, OrtKernelContext* context) const;
};

template <class Call>
OrtStatus* Collective<Call>::Init(const KernelInit& init) {
  if (OrtStatus* s = ReadAttributes(init, &attributes)) return s;
  element = ToElementType(init.types.inputs[0]) == kFloat32 ? 4 : 2;
  if (attributes.ranks > 1) {
    return Errorf(init.api, "mojo.%s: %lld ranks: this library connects no ranks", init.def.name,
                  static_cast<long long>(attributes.ranks));
  }
  return nullptr;
}

template <class Call>
OrtStatus* Collective<Call>::Compute(const Api& api, OrtKernelContext* context) const {
  Call call(api, context, attributes);
  void* y;
  if (OrtStatus* s = call.Read()) return s;
  if (OrtStatus* s = call.Make(0, &y)) return s;
  if (!call.Empty() && y != call.data[0]) memcpy(y, call.data[0], call.shapes[0].Count() * element);
  return nullptr;
}

}  // namespace

// With one rank, Y is X.
const Backend kCPUAllReduce = MakeBackend<Collective<AllReduceCall>>(nullptr, MayInPlace<0, 0>);
const Backend kCPUAllGather = MakeBackend<Collective<AllGatherCall>>(nullptr);
const Backend kCPUReduceScatter = MakeBackend<Collective<ReduceScatterCall>>(nullptr);
const Backend kCPUAllToAll = MakeBackend<Collective<AllToAllCall>>(nullptr);

}  // namespace mojo
