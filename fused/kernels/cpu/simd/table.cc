// The inner loops of one instruction set. CMake compiles this file once per set, with the set's
// compiler flags and two definitions: MOJO_ISA (the namespace) and MOJO_TABLE (the table's name).
#include "cpu/simd/attention.h"
#include "cpu/simd/codes.h"
#include "cpu/simd/conv.h"
#include "cpu/simd/gate.h"
#include "cpu/simd/kernels.h"
#include "cpu/simd/layer.h"
#include "cpu/simd/linear_scan.h"
#include "cpu/simd/norm.h"
#include "cpu/simd/norm_quantize.h"
#include "cpu/simd/norm_rotary.h"
#include "cpu/simd/panel.h"
#include "cpu/simd/product.h"
#include "cpu/simd/rotary.h"
#include "cpu/simd/router.h"
#include "cpu/simd/stream.h"
#include "cpu/simd/widen.h"

namespace mojo {

#define MOJO_TEXT2(x) #x
#define MOJO_TEXT(x) MOJO_TEXT2(x)

const KernelTable MOJO_TABLE = {MOJO_TEXT(MOJO_ISA),
                                MOJO_ISA::kLanes,
                                MOJO_ISA::PickNorm,
                                MOJO_ISA::PickLayer,
                                MOJO_ISA::PickNormQuantize,
                                MOJO_ISA::PickGate,
                                MOJO_ISA::PickBiasGate,
                                MOJO_ISA::PickRotary,
                                MOJO_ISA::PickNormRotary,
                                MOJO_ISA::PickProduct,
                                MOJO_ISA::PickStream,
                                MOJO_ISA::PickPanels,
                                MOJO_ISA::ToPanel,
                                MOJO_ISA::PickFromPanel,
                                MOJO_ISA::PickWeightedSum,
                                MOJO_ISA::RouteRows,
                                MOJO_ISA::ToFloat32,
                                MOJO_ISA::PickAttention,
                                MOJO_ISA::PickPool,
                                MOJO_ISA::Stream,
                                MOJO_ISA::LinearScan,
                                MOJO_ISA::kScanColumns,
                                MOJO_ISA::Unit,
                                MOJO_ISA::Powers,
                                MOJO_ISA::PickConv,
                                MOJO_ISA::ChannelScan};

}  // namespace mojo
