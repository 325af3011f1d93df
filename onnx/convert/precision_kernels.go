package convert

import "github.com/mojo-patch/mojo-patch/onnx"

// What is known of kernels in half types, in onnxruntime 1.31.1: each op was tried as a model of one node, for float32, float16
// and bfloat16. On the CPU all ops that the standard defines in float16 load, most behind Casts that onnxruntime puts in.

// bfloat16Since says from which opset on the standard has an op in bfloat16, where that is later than opset 13; 0 never.
var bfloat16Since = map[string]int64{
	"CastLike": 15, "ConstantOfShape": 20, "CumSum": 14, "Gelu": 20, "GreaterOrEqual": 16, "GroupNormalization": 18, "If": 16,
	"BatchNormalization": 14, "IsInf": 20, "LayerNormalization": 17, "LeakyRelu": 16, "LessOrEqual": 16, "Loop": 16, "PRelu": 16,
	"Pow": 15, "RMSNormalization": 23, "RotaryEmbedding": 23, "Attention": 23, "Scan": 16, "Swish": 24, "SwiGLU": 28, "TensorScatter": 24,
	"TopK": 24, "Trilu": 14, "Where": 16,
	"Acos": 22, "Acosh": 22, "Asin": 22, "Asinh": 22, "Atan": 22, "Atanh": 22, "Cos": 22, "Cosh": 22, "Sin": 22, "Sinh": 22, "Tan": 22,
	"Elu": 22, "HardSigmoid": 22, "HardSwish": 22, "Mish": 22, "Round": 22, "Selu": 22, "Softplus": 22, "Softsign": 22,
	"ThresholdedRelu": 22, "LpNormalization": 22, "Dropout": 22, "EyeLike": 22, "InstanceNormalization": 22,
	"AveragePool": 22, "Conv": 22, "ConvTranspose": 22, "GlobalAveragePool": 22, "GlobalMaxPool": 22, "MaxPool": 22, "GRU": 22, "LSTM": 22, "RNN": 22,
	"Celu": 28, "Compress": 28, "Einsum": 28, "ReverseSequence": 28, "Unique": 28, "OneHot": 0, "Range": 27, "Shrink": 0,
}

// alwaysFloat32 are ops with inputs that the standard has in float32 alone, that make numbers by themselves, or that no
// provider was tried with in half types.
var alwaysFloat32 = set("Bernoulli", "BitCast", "BlackmanWindow", "Col2Im", "CumProd", "DFT", "DequantizeLinear", "Det", "DynamicQuantizeLinear", "EyeLike", "GridSample",
	"HammingWindow", "HannWindow", "ImageDecoder", "LRN", "LinearAttention", "CausalConvWithState", "MatMulInteger", "MeanVarianceNormalization", "MelWeightMatrix", "Multinomial", "NonMaxSuppression",
	"QLinearConv", "QLinearMatMul", "QuantizeLinear", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Range",
	"Resize", "RoiAlign", "STFT", "Upsample", "Unique", "AffineGrid", "CenterCropPad", "DeformConv", "MaxRoiPool", "MaxUnpool", "Celu", "OneHot")

// cpuBFloat16 are the ops that the CPU provider has in bfloat16.
var cpuBFloat16 = set("Cast", "Concat", "Constant", "ConstantOfShape", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
	"If", "IsInf", "IsNaN", "LayerNormalization", "Loop", "Reshape", "Scan", "ScatterElements", "ScatterND", "Shape", "Sign", "Slice", "Split",
	"Squeeze", "Transpose", "Unsqueeze")

// noCUDABFloat16 are the ops that the CUDA provider lacks in bfloat16.
var noCUDABFloat16 = set("ArgMax", "ArgMin", "Clip", "CumSum", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log",
	"LogSoftmax", "Max", "Mean", "Min", "Mod", "Pad", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMin",
	"ReduceProd", "ReduceSumSquare", "Sum", "Ceil", "Sign", "Size", "NonZero", "Hardmax", "PRelu", "IsInf", "BatchNormalization", "Attention",
	"GroupNormalization", "Swish", "SwiGLU", "TensorScatter", "DepthToSpace", "SpaceToDepth",
	"GRU", "LSTM", "RNN", "InstanceNormalization", "LpNormalization", "Softplus", "Softsign", "Elu", "Selu", "HardSigmoid", "HardSwish", "Mish", "ThresholdedRelu",
	"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")

// computes says whether the op may compute in the half type: the standard has it in the type, and every provider a kernel.
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
