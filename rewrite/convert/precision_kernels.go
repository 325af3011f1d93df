package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Half-type kernels in onnxruntime 1.31.1. For the CPU provider, each op was tried as a model with one node, in
// float32, float16 and bfloat16: every op that the standard has in float16 loads, most of them with Casts that
// onnxruntime adds. docs/kernels.md lists the bfloat16 trials with the CUDA provider. Ops that no language model there
// had are assumed to have no kernel.

// alwaysFloat32 are ops with inputs that the standard has only in float32, ops that create numbers, and ops that were
// not tried with any provider in half types.
var alwaysFloat32 = onnx.Words(`
	AffineGrid Bernoulli BitCast BlackmanWindow CausalConvWithState Celu CenterCropPad Col2Im CumProd DFT DeformConv
	DequantizeLinear Det DynamicQuantizeLinear EyeLike GridSample HammingWindow HannWindow ImageDecoder LRN
	LinearAttention MatMulInteger MaxRoiPool MaxUnpool MeanVarianceNormalization MelWeightMatrix Multinomial
	NonMaxSuppression OneHot QLinearConv QLinearMatMul QuantizeLinear RandomNormal RandomNormalLike RandomUniform
	RandomUniformLike Range Resize RoiAlign STFT Unique Upsample
`)

// cpuBFloat16 are the ops for which the CPU provider has bfloat16 kernels.
var cpuBFloat16 = onnx.Words(`
	Cast Concat Constant ConstantOfShape Flatten Gather GatherElements GatherND Identity If IsInf IsNaN
	LayerNormalization Loop Reshape Scan ScatterElements ScatterND Shape Sign Slice Split Squeeze Transpose
	Unsqueeze
`)

// noCUDABFloat16 are the ops for which the CUDA provider has no bfloat16 kernels.
var noCUDABFloat16 = onnx.Words(`
	ArgMax ArgMin AveragePool BatchNormalization Ceil Clip CumSum DepthToSpace Elu Equal Floor GRU GlobalAveragePool
	GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Hardmax
	InstanceNormalization IsInf LSTM Less LessOrEqual Log LogSoftmax LpNormalization LpPool Max MaxPool Mean Min
	Mish Mod NonZero PRelu Pad RNN Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMin
	ReduceProd ReduceSumSquare Selu Sign Size Softplus Softsign SpaceToDepth Sum SwiGLU Swish TensorScatter
	ThresholdedRelu
`)

// computes reports whether the op may compute in the half type: the standard allows the type, and every provider has a
// kernel.
func (p *precision) computes(n *onnx.Node) bool {
	if fusedOp(n) != nil {
		return p.combination(n) != nil
	}
	if !onnx.IsStandardDomain(n.Domain) || alwaysFloat32[n.OpType] {
		return false
	}
	if p.to == onnx.Float16 {
		return n.OpType != "CumSum" || p.opset >= 14
	}
	if since, ok := known().bfloat16[n.OpType]; ok && (since == 0 || p.opset < since) {
		return false
	}
	for _, provider := range p.providers {
		switch {
		case provider == "cpu" && !cpuBFloat16[n.OpType], provider == "cuda" && noCUDABFloat16[n.OpType]:
			return false
		}
	}
	return true
}

// fromCastLike is the first opset in which the definition of a fused op does not depend on its types.
const fromCastLike = 15

// fusedOp returns the op of a node of the domain mojo, or nil.
func fusedOp(n *onnx.Node) *fused.Op {
	if n == nil || n.Domain != fused.Domain {
		return nil
	}
	return fused.Lookup(n.OpType)
}

// takesTypes reports whether a fused op of a model can compute in other types: it has a definition, which casts.
func takesTypes(m *onnx.Model, n *onnx.Node) bool {
	return fusedOp(n) != nil && m.Opset("") >= fromCastLike && m.Function(n.Domain, n.OpType, n.Overload) != nil
}

// onlyFused reports whether only fused ops read a value. They take the half types of their constants as they are.
func onlyFused(v *onnx.Value) bool {
	return len(v.Uses()) > 0 && !slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return fusedOp(u.Node) == nil })
}

// combination returns the types in which a fused op computes in the half type, or nil if it computes in float32. The
// scales of quantized weights, the weights of experts and the correction of a router stay in float32.
func (p *precision) combination(n *onnx.Node) (best *fused.Combination) {
	o := fusedOp(n)
	if o == nil || p.wide[n] || p.to == onnx.BFloat16 && slices.Contains(p.providers, "cpu") {
		return nil
	}
	if c, ok := p.combinations[n]; ok {
		return c
	}
	least := 0
	for i := range o.Types {
		c := &o.Types[i]
		if c.Types["T"] != p.to || c.Attribute != "" && n.AttrInt(c.Attribute, 0) != c.Value {
			continue
		}
		cost, fits := 0, true
		for j, v := range n.Inputs {
			if v == nil {
				continue
			}
			is, t := p.dataType(v), o.TypeOf(o.Inputs[j], *c)
			fits = fits && (is == t || is == onnx.Float && t == p.to)
			name := o.Inputs[j].Type
			stays := name != "T" && (o.Family.Stored || name == "W" || name == "B")
			if is == onnx.Float && stays == (t == p.to) {
				cost++
			}
		}
		if fits && (best == nil || cost < least) {
			best, least = c, cost
		}
	}
	p.combinations[n] = best
	return best
}
