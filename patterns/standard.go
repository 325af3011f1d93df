package patterns

import "fmt"

// Differences between the versions of the standard that matter for new nodes. (Versions before 6 are not considered.)

// introduced holds the version that introduced an op of the standard, if it is later than 13.
var introduced = map[string]int64{
	"HardSwish": 14, "Trilu": 14, "Bernoulli": 15, "CastLike": 15, "Optional": 15, "OptionalGetElement": 15,
	"OptionalHasElement": 15, "GridSample": 16, "BlackmanWindow": 17, "DFT": 17, "HammingWindow": 17,
	"HannWindow": 17, "LayerNormalization": 17, "MelWeightMatrix": 17, "STFT": 17, "SequenceMap": 17,
	"BitwiseAnd": 18, "BitwiseNot": 18, "BitwiseOr": 18, "BitwiseXor": 18, "CenterCropPad": 18, "Col2Im": 18,
	"GroupNormalization": 18, "Mish": 18, "DeformConv": 19, "AffineGrid": 20, "Gelu": 20, "ImageDecoder": 20,
	"RegexFullMatch": 20, "StringConcat": 20, "StringSplit": 20, "Attention": 23, "RMSNormalization": 23,
	"RotaryEmbedding": 23, "Swish": 24, "TensorScatter": 24, "BitCast": 26, "CumProd": 26, "CausalConvWithState": 27,
	"LinearAttention": 27, "SwiGLU": 28,
}

// OpsetError is the error for a replacement with an op that is newer than the model's opset.
type OpsetError struct {
	Op    string
	Since int64 // the opset with the op
	Opset int64 // the model's
}

func (e *OpsetError) Error() string {
	return fmt.Sprintf("%s is a standard op since opset %d, but the model imports %d", e.Op, e.Since, e.Opset)
}

// inOpset returns an OpsetError for an op of the standard that the opset lacks.
func inOpset(op string, opset int64) error {
	if since := introduced[op]; since > opset {
		return &OpsetError{op, since, opset}
	}
	return nil
}

// asInputSince holds the version from which match.AttributeInputs of an op are inputs.
var asInputSince = map[string]int64{
	"Squeeze": 13, "Unsqueeze": 13, "ReduceSum": 13, "Split": 13, "Slice": 10, "Clip": 11, "TopK": 10, "Pad": 11,
	"Tile": 6, "Dropout": 12,
}

// asInputSinceReduce is asInputSince for the reductions not listed there.
const asInputSinceReduce = 18

func inputsSince(op string) int64 {
	if v, ok := asInputSince[op]; ok {
		return v
	}
	return asInputSinceReduce
}

const (
	castLikeSince   = 15 // CastLike casts to the type of another value
	splitPartsSince = 18 // Split without sizes requires num_outputs from this version on
)

// integerInputs are inputs that always hold integers, besides match.AttributeInputs.
var integerInputs = map[string]int{
	"Gather": 1, "GatherElements": 1, "GatherND": 1, "Reshape": 1, "Expand": 1, "CumSum": 1, "ConstantOfShape": 0,
	"Trilu": 1, "OneHot": 1,
}
