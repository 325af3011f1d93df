package runson

import (
	"errors"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/kernels"
)

// A way turns a node into a form that the provider supports.
type way struct {
	widening widening // of its inputs and outputs, between Casts; may be nil
	body     body     // replaces the node, unless nil
}

// rounded are float widenings: the wide type holds every number of the narrow type, and the result is rounded to it.
var rounded = []widening{{onnx.BFloat16: onnx.Float}, {onnx.Float16: onnx.Float},
	{onnx.BFloat16: onnx.Float, onnx.Float16: onnx.Float}}

// moved are integer widenings for nodes that compute no new integers.
var moved = []widening{
	{onnx.Bool: onnx.Uint8}, {onnx.Bool: onnx.Int32},
	{onnx.Int8: onnx.Int32, onnx.Uint8: onnx.Int32, onnx.Int16: onnx.Int32, onnx.Uint16: onnx.Int32},
	{onnx.Int8: onnx.Int64, onnx.Uint8: onnx.Int64, onnx.Int16: onnx.Int64, onnx.Uint16: onnx.Int64,
		onnx.Int32: onnx.Int64, onnx.Uint32: onnx.Int64},
}

// moves are the ops whose results are elements of their inputs, or positions of elements, for any type (see also
// fixed).
var moves = onnx.Words(`
	ArgMax ArgMin Clip Compress Concat DepthToSpace Equal Expand Flatten Gather GatherElements GatherND Greater
	GreaterOrEqual Identity Less LessOrEqual Max Min Pad ReduceMax ReduceMin Reshape ReverseSequence ScatterElements
	ScatterND Slice SpaceToDepth Split Squeeze Tile TopK Transpose Trilu Unsqueeze Where
`)

// fixed reports whether input i keeps its type: an index, size or condition.
func fixed(n *onnx.Node, i int) bool {
	switch n.OpType {
	case "Where":
		return i == 0
	case "Clip", "Concat", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min":
		return false
	case "Pad":
		return i != 0 && i != 2
	case "ScatterElements", "ScatterND":
		return i == 1
	}
	return i > 0 && moves[n.OpType]
}

// wide returns the types of a node's inputs after a widening.
func wide(n *onnx.Node, types []onnx.DataType, w widening) []onnx.DataType {
	list := with(types, w)
	for i := range list {
		if fixed(n, i) {
			list[i] = types[i]
		}
	}
	return list
}

// errTyped reports that the types of a node are part of its meaning.
var errTyped = errors.New("its result depends on its types")

// find returns how to change a node that the provider refuses, or an error that says why that is impossible.
func (p *Place) find(n *onnx.Node, opset int64, types []onnx.DataType) (*way, error) {
	refused := p.refused(n, opset, types)
	if refused == nil {
		return nil, nil
	}
	if !onnx.IsStandardDomain(n.Domain) {
		return nil, refused
	}
	if w := p.body(n, opset, types); w != nil {
		return w, nil
	}
	list := rounded
	if moves[n.OpType] {
		list = slices.Concat(rounded, moved)
	}
	for _, w := range list {
		under := wide(n, types, w)
		if slices.Equal(under, types) || p.refused(n, opset, under) != nil {
			continue
		}
		if typed(n) {
			return nil, errors.Join(refused, errTyped)
		}
		return &way{widening: w}, nil
	}
	if p.Device == kernels.CUDA && (&Place{kernels.CPU, p.Version}).refused(n, opset, types) == nil {
		return nil, nil // onnxruntime runs it on the CPU
	}
	return nil, refused
}

// body returns the body of a node, computed in float32 if its type is narrower. It returns nil if there is no body, or
// if the provider lacks the body's ops.
func (p *Place) body(n *onnx.Node, opset int64, types []onnx.DataType) *way {
	b := bodies[n.OpType]
	if b == nil || len(types) == 0 || !types[0].IsFloat() {
		return nil
	}
	w := &way{body: b}
	floats := types[0]
	if floats.IsHalf() {
		w.widening, floats = widening{floats: onnx.Float}, onnx.Float
	}
	if !p.runsBodies(opset, floats) {
		return nil
	}
	return w
}

// typed reports whether a node names types, holds graphs, or reads values other than tensors. Its inputs cannot be
// widened.
func typed(n *onnx.Node) bool {
	switch n.OpType {
	case "BitCast", "Cast", "CastLike", "Bernoulli", "QuantizeLinear", "Optional", "OptionalGetElement",
		"OptionalHasElement", "SequenceAt", "SequenceConstruct", "SequenceErase", "SequenceInsert",
		"ConcatFromSequence", "SplitToSequence":
		return true
	}
	return len(n.Subgraphs()) > 0 || n.IsRandom() || n.Attr("dtype") != nil || n.Attr("output_dtype") != nil
}
