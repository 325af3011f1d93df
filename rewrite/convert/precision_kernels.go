package convert

import (
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Half-type kernels in onnxruntime 1.31.1. For the CPU provider, each op was tried as a model with one node, in
// float32, float16 and bfloat16: every op that the standard has in float16 loads, most of them with Casts that
// onnxruntime adds. docs/kernels.md lists the bfloat16 trials with the CUDA provider. Ops that no language model there
// had are assumed to have no kernel.

// bfloat16Since is the first opset in which the standard has an op in bfloat16, if it is later than opset 13; 0 means
// never.
var bfloat16Since = map[string]int64{
	"Acos": 22, "Acosh": 22, "Asin": 22, "Asinh": 22, "Atan": 22, "Atanh": 22, "Attention": 23, "AveragePool": 22,
	"BatchNormalization": 14, "CastLike": 15, "Celu": 28, "Compress": 28, "ConstantOfShape": 20, "Conv": 22,
	"ConvTranspose": 22, "Cos": 22, "Cosh": 22, "CumSum": 14, "Dropout": 22, "Einsum": 28, "Elu": 22,
	"EyeLike": 22, "GRU": 22, "Gelu": 20, "GlobalAveragePool": 22, "GlobalMaxPool": 22, "GreaterOrEqual": 16,
	"GroupNormalization": 18, "HardSigmoid": 22, "HardSwish": 22, "If": 16, "InstanceNormalization": 22,
	"IsInf": 20, "LSTM": 22, "LayerNormalization": 17, "LeakyRelu": 16, "LessOrEqual": 16, "Loop": 16,
	"LpNormalization": 22, "MaxPool": 22, "Mish": 22, "OneHot": 0, "PRelu": 16, "Pow": 15, "RMSNormalization": 23,
	"RNN": 22, "Range": 27, "ReverseSequence": 28, "RotaryEmbedding": 23, "Round": 22, "Scan": 16, "Selu": 22,
	"Shrink": 0, "Sin": 22, "Sinh": 22, "Softplus": 22, "Softsign": 22, "SwiGLU": 28, "Swish": 24, "Tan": 22,
	"TensorScatter": 24, "ThresholdedRelu": 22, "TopK": 24, "Trilu": 14, "Unique": 28, "Where": 16,
}

// alwaysFloat32 are ops with inputs that the standard has only in float32, ops that create numbers, and ops that were
// not tried with any provider in half types.
var alwaysFloat32 = words(`
	AffineGrid Bernoulli BitCast BlackmanWindow CausalConvWithState Celu CenterCropPad Col2Im CumProd DFT DeformConv
	DequantizeLinear Det DynamicQuantizeLinear EyeLike GridSample HammingWindow HannWindow ImageDecoder LRN
	LinearAttention MatMulInteger MaxRoiPool MaxUnpool MeanVarianceNormalization MelWeightMatrix Multinomial
	NonMaxSuppression OneHot QLinearConv QLinearMatMul QuantizeLinear RandomNormal RandomNormalLike RandomUniform
	RandomUniformLike Range Resize RoiAlign STFT Unique Upsample
`)

// cpuBFloat16 are the ops for which the CPU provider has bfloat16 kernels.
var cpuBFloat16 = words(`
	Cast Concat Constant ConstantOfShape Flatten Gather GatherElements GatherND Identity If IsInf IsNaN
	LayerNormalization Loop Reshape Scan ScatterElements ScatterND Shape Sign Slice Split Squeeze Transpose
	Unsqueeze
`)

// noCUDABFloat16 are the ops for which the CUDA provider has no bfloat16 kernels.
var noCUDABFloat16 = words(`
	ArgMax ArgMin AveragePool BatchNormalization Ceil Clip CumSum DepthToSpace Elu Equal Floor GRU GlobalAveragePool
	GlobalMaxPool Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Hardmax InstanceNormalization
	IsInf LSTM Less LessOrEqual Log LogSoftmax LpNormalization Max MaxPool Mean Min Mish Mod NonZero PRelu Pad RNN
	Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMin ReduceProd ReduceSumSquare Selu
	Sign Size Softplus Softsign SpaceToDepth Sum SwiGLU Swish TensorScatter ThresholdedRelu
`)

// computes reports whether the op may compute in the half type: the standard allows the type, and every provider has a
// kernel.
func (p *precision) computes(n *onnx.Node) bool {
	if !onnx.IsStandardDomain(n.Domain) || alwaysFloat32[n.OpType] {
		return false
	}
	if p.to == onnx.Float16 {
		return n.OpType != "CumSum" || p.opset >= 14
	}
	if since, ok := bfloat16Since[n.OpType]; ok && (since == 0 || p.opset < since) {
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

func set(names ...string) map[string]bool {
	s := make(map[string]bool, len(names))
	for _, n := range names {
		s[n] = true
	}
	return s
}

// words returns the set of names in a text.
func words(text string) map[string]bool { return set(strings.Fields(text)...) }
