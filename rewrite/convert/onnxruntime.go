package convert

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// onnxruntimes are the ops that onnxruntime puts in the standard's domain at any opset. Its optimizer, genai's builder
// and this toolkit write norms this way. A step checks for a conflict with the standard's op of that name.
var onnxruntimes = map[string]step{
	"DisentangledAttention_TRT":    nothing,
	"EfficientNMS_TRT":             nothing,
	"LayerNormalization":           oneType,
	"MemcpyFromHost":               nothing,
	"MemcpyToHost":                 nothing,
	"MultilevelCropAndResize_TRT":  nothing,
	"PyramidROIAlign_TRT":          nothing,
	"SimplifiedLayerNormalization": nothing,
}

// oneType refuses a LayerNormalization from before opset 17 whose result has the type of its scale: the standard's op
// returns the type of the input.
func oneType(s *scope, n *onnx.Node) (func(), error) {
	const since = 17
	x, scale := n.Input(0), n.Input(1)
	if s.to < since || x == nil || scale == nil {
		return nil, nil
	}
	if t, of := s.dataType(x), s.dataType(scale); t != of || t == onnx.Undefined {
		return nil, fmt.Errorf("its input %q is of type %s and its scale of type %s: onnxruntime's op of this name "+
			"returns the type of the scale, the op of opset %d the type of the input", x.Name, t, of, since)
	}
	return nil, nil
}
