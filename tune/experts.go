package tune

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Experts are the experts of a node, which a table is measured with.
type Experts struct {
	Shape Shape
	// Node is the name of the node, or empty for experts without a model.
	Node string

	op         *fused.Op
	attributes []*onnx.Attribute
	biased     bool
}

// Find returns the distinct experts of a model's fused nodes that tables support, and describes the unsupported ones.
func Find(m *onnx.Model) (list []*Experts, others []string) {
	facts := infer.Analyze(m)
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			if n.Domain != fused.Domain || (n.OpType != fused.MoEName && n.OpType != fused.QMoEName) {
				continue
			}
			e, err := ofNode(n, facts)
			if err != nil {
				others = append(others, fmt.Sprintf("%s: %v", n.Name, err))
			} else if !slices.ContainsFunc(list, func(x *Experts) bool { return x.Shape == e.Shape }) {
				list = append(list, e)
			}
		}
	})
	return list, others
}

// ofNode reads a node's shape.
func ofNode(n *onnx.Node, facts *infer.Facts) (*Experts, error) {
	e := &Experts{Node: n.Name, op: fused.Lookup(n.OpType), attributes: n.Attributes}
	if e.op == nil || len(n.Inputs) < fused.QMoEDownCodes {
		return nil, fmt.Errorf("it lacks inputs")
	}
	dims := func(i int) []int64 {
		t, ok := facts.Type(n.Inputs[i])
		if !ok {
			return nil
		}
		var list []int64
		for _, d := range t.Dims {
			list = append(list, d.Value)
		}
		return list
	}
	ids, matrix := dims(fused.MoEIDs), dims(fused.MoEGateUp) // first dimension of codes, too
	if len(ids) == 0 || ids[len(ids)-1] < 1 || len(matrix) < 3 || matrix[0] < 1 {
		return nil, fmt.Errorf("its sizes are not known")
	}
	e.Shape.Experts, e.Shape.TopK = matrix[0], ids[len(ids)-1]
	x := facts.DataType(n.Inputs[fused.MoEX])
	if n.OpType == fused.QMoEName {
		a := fused.Read[fused.QMoE](n.Attributes)
		e.Shape.Hidden, e.Shape.Inner = a.Hidden, a.Inner
		e.biased = len(n.Inputs) > fused.QMoEGateUpBias && n.Inputs[fused.QMoEGateUpBias] != nil
		codes := [3]string{a.GateUpCode, a.DownCode, a.Activations}
		switch {
		case x != onnx.BFloat16:
			return nil, fmt.Errorf("its activations are %s: tables support only bfloat16", x)
		case codes == [3]string{"e2m1", "e2m1", "float"}:
			e.Shape.Format = MXFP4
		case codes == [3]string{"e4m3", "e4m3", "fp8"}:
			e.Shape.Format = FP8
		default:
			return nil, fmt.Errorf("its codes are %s and %s with activations=%s: tables support only e2m1 with float "+
				"and e4m3 with fp8", codes[0], codes[1], codes[2])
		}
		return e, nil
	}
	down := dims(fused.MoEDown)
	a := fused.Read[fused.MoE](n.Attributes)
	if len(down) != 3 || a.GateUpLayout != a.DownLayout {
		return nil, fmt.Errorf("its two layouts differ")
	}
	e.biased = len(n.Inputs) > fused.MoEGateUpBias && n.Inputs[fused.MoEGateUpBias] != nil
	e.Shape.Hidden, e.Shape.Inner = down[1], down[2]
	if a.DownLayout == "in_out" {
		e.Shape.Layout, e.Shape.Hidden, e.Shape.Inner = "in_out", down[2], down[1]
	}
	switch t := facts.DataType(n.Inputs[fused.MoEGateUp]); {
	case t == x && t == onnx.BFloat16:
		e.Shape.Format = BFloat16
	case t == x && t == onnx.Float16:
		e.Shape.Format = Float16
	default:
		return nil, fmt.Errorf("its types are %s and %s: tables support only two of float16 or of bfloat16", x, t)
	}
	return e, nil
}

// New returns experts with SwiGLU, gates before ups and no biases. It returns an error for a shape that tables do not
// support.
func New(s Shape) (*Experts, error) {
	quantized := s.Format == MXFP4 || s.Format == FP8
	multiple := map[string]int64{MXFP4: 32, FP8: 128}[s.Format]
	switch {
	case !slices.Contains(Formats(), s.Format):
		return nil, fmt.Errorf("tables do not support the format %q", s.Format)
	case min(s.Experts, s.TopK, s.Hidden, s.Inner) < 1 || max(s.Experts, s.TopK, s.Hidden, s.Inner) > 1e6:
		return nil, fmt.Errorf("%s: sizes must be from 1 to a million", s)
	case s.TopK > s.Experts:
		return nil, fmt.Errorf("%s: a token cannot choose more experts than exist", s)
	case quantized && (s.Hidden%multiple != 0 || s.Inner%multiple != 0):
		return nil, fmt.Errorf("%s: widths must be multiples of %d", s, multiple)
	case quantized && s.Layout != "":
		return nil, fmt.Errorf("%s: quantized experts have only one layout", s)
	}
	gate := fused.GLU{Activation: "silu", Alpha: 1}
	if quantized {
		code, activations := "e2m1", "float"
		if s.Format == FP8 {
			code, activations = "e4m3", "fp8"
		}
		return &Experts{Shape: s, op: fused.Lookup(fused.QMoEName), attributes: fused.QMoE{GLU: gate, Packing: "halves",
			GateUpCode: code, GateUpBlock: multiple, DownCode: code, DownBlock: multiple, Hidden: s.Hidden,
			Inner: s.Inner, Activations: activations}.Attributes()}, nil
	}
	layout := cmp.Or(s.Layout, "out_in")
	return &Experts{Shape: s, op: fused.Lookup(fused.MoEName), attributes: fused.MoE{GLU: gate, Packing: "halves",
		GateUpLayout: layout, DownLayout: layout}.Attributes()}, nil
}

// site describes the node with this many tokens: types and shapes of all inputs.
func (e *Experts) site(tokens int64) fused.Site {
	s := fused.Site{Attributes: e.attributes, Types: make([]onnx.DataType, len(e.op.Inputs)),
		Dims: make([][]int64, len(e.op.Inputs))}
	set := func(i int, t onnx.DataType, dims ...int64) { s.Types[i], s.Dims[i] = t, dims }
	shape := e.Shape
	x := onnx.BFloat16
	if shape.Format == Float16 {
		x = onnx.Float16
	}
	packed := 2 * shape.Inner
	if s.Attr(fused.AttrPacking).String == "none" {
		packed = shape.Inner
	}
	set(fused.MoEX, x, tokens, shape.Hidden)
	set(fused.MoEWeights, onnx.Float, tokens, shape.TopK)
	set(fused.MoEIDs, onnx.Int64, tokens, shape.TopK)
	biases, of := [2]int{fused.MoEGateUpBias, fused.MoEDownBias}, x
	if e.op.Name == fused.QMoEName {
		biases, of = [2]int{fused.QMoEGateUpBias, fused.QMoEDownBias}, onnx.Float
		p := &blocks.Panels{Code: "e2m1", Block: 32, Scale: onnx.Uint8}
		if shape.Format == FP8 {
			p = &blocks.Panels{Code: "e4m3", Block: 128, Scale: onnx.Float, Shared: true}
		}
		for _, m := range []struct {
			inputs [6]int
			n, k   int64
		}{{fused.QMoEGateUp, packed, shape.Hidden}, {fused.QMoEDown, shape.Hidden, shape.Inner}} {
			dims := p.Dims((m.n+blocks.PanelRows-1)/blocks.PanelRows, m.k)
			set(m.inputs[0], onnx.Uint8, append([]int64{shape.Experts}, dims[0]...)...)
			set(m.inputs[1], p.Scale, append([]int64{shape.Experts}, dims[1]...)...)
		}
	} else {
		matrix := func(i int, out, in int64) {
			if shape.Layout == "in_out" {
				out, in = in, out
			}
			set(i, x, shape.Experts, out, in)
		}
		matrix(fused.MoEGateUp, packed, shape.Hidden)
		matrix(fused.MoEDown, shape.Hidden, shape.Inner)
	}
	if e.biased {
		set(biases[0], of, shape.Experts, packed)
		set(biases[1], of, shape.Experts, shape.Hidden)
	}
	return s
}
