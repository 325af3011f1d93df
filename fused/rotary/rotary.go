// Package rotary has rotary embeddings.
package rotary

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{Op, normRotary}

// The values of RotaryEmbedding's attribute rotated_side.
const (
	sideFirst = "first"
	sideLast  = "last"
)

// rotaryAttributes are the attributes of a rotation.
var rotaryAttributes = []op.AttributeSpec{
	{Name: "interleaved", Type: onnx.AttrInt, Bounds: op.Flag, Grid: []any{0, 1},
		Doc: "which channels form a pair: 0: (i, i + r/2), as in rotate_half; 1: (2i, 2i + 1)"},
	{Name: "rotary_dim", Type: onnx.AttrInt, Bounds: op.Bounds{Least: 2, Most: math.MaxInt64, Multiple: 2},
		Grid: []any{22, 10},
		Doc:  "number of rotated channels (r): even, from 2 to D"},
	{Name: "rotated_side", Type: onnx.AttrString, Values: []string{sideFirst, sideLast}, Field: "last",
		Doc: "which r of the D channels are rotated; first if all are"},
	{Name: "output_layout", Type: onnx.AttrString, Values: []string{op.LayoutHalves, op.LayoutInterleaved},
		Field: "output_interleaved",
		Doc: "the place of a pair in Y; usually halves for interleaved=0 and interleaved for 1, but halves for 1 " +
			"in DeepSeek"},
}

// rotaryTable is the shape of cos and sin.
const rotaryTable op.Shape = "~A... rotary_dim | ~A... rotary_dim/2"

var rotaryWhere = []op.Relation{{Text: "rotary_dim <= D", Doc: "a rotary_dim of at most the last dimension of X"}}

var rotaryFamily = &op.Family{Name: "rope",
	Summary: "rotary position embedding, also with the RMSNorm of each head before it"}

// Op rotates pairs of channels by angles given as cosines and sines.
var Op = &op.Op{
	Name:    "RotaryEmbedding",
	Summary: "Rotary position embedding of all or some channels, with given cosines and sines.",
	Formula: []string{
		"D = X.shape[-1], r = rotary_dim; x = X[..., :r] with rotated_side=first, X[..., D-r:] with last; y likewise " +
			"in Y; the other channels of Y are X's",
		"pairs, for i in 0..r/2-1: (a, b) = interleaved=0: (x[i], x[i+r/2]); 1: (x[2i], x[2i+1])",
		"places, for i in 0..r/2-1: (j, k) = output_layout=halves: (i, i+r/2); interleaved: (2i, 2i+1)",
		"y[j] = round_T(round_T(a * cos[j]) - round_T(b * sin[j]))",
		"y[k] = round_T(round_T(b * cos[k]) + round_T(a * sin[k]))",
		"if cos and sin are r/2 wide, cos[i] and sin[i] are used at j and at k",
	},
	Inputs: []op.Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "cos", Type: "T", Dims: rotaryTable,
			Doc: "r wide: indexed by the written channel; r/2 wide: by pair"},
		{Name: "sin", Type: "T", Dims: rotaryTable, Doc: "as wide as cos"},
	},
	Outputs:    []op.Param{{Name: "Y", Type: "T", Dims: "A... D"}},
	Attributes: rotaryAttributes,
	Family:     rotaryFamily,
	Devices:    op.Devices(),
	Types:      op.Independent("T"),
	Source: "Su et al., RoFormer (2021): its pairs are interleaved=1, rotate_half in PyTorch transformers is " +
		"interleaved=0; partial rotation is from GPT-J and GPT-NeoX",
	Where:   rotaryWhere,
	Check:   func(s op.Site) error { return rotarySupports("RotaryEmbedding", s, 1) },
	Shapes:  rotaryExamples,
	Variant: func(s op.Site) string { return rotaryOverload(s, 1) },
	Wide: func(form op.FormMaker) []op.Form {
		return []op.Form{form([][]int64{{1, op.WideHeads, 3, 128}, {3, 64}, {3, 64}}, onnx.IntAttr("rotary_dim", 128))}
	},
	Body: func(b *op.Body, s op.Site) []*onnx.Value { return []*onnx.Value{rotaryBody(b, s, b.In[0], 0, 1)} },
}

// rotaryExamples covers tables of both widths.
func rotaryExamples(s op.Site) [][][]int64 {
	attrs := op.Read[RotaryEmbedding](s.Attributes)
	r := attrs.RotaryDim
	if r == op.ExampleX[2] && attrs.RotatedSide == sideLast {
		return nil // all channels are rotated, so the side does not matter
	}
	return [][][]int64{{op.ExampleX, {3, r}, {2, 1, r}}, {op.ExampleX, {3, r / 2}, {2, 1, r / 2}}}
}

// rotaryOverload names the body's variant: the width of the tables (cos is the index of the first), the two layouts,
// and the rotated side.
func rotaryOverload(s op.Site, cos int) string {
	name := "half_tables"
	if cosWide(s, cos) {
		name = "wide_tables"
	}
	switch from, to := rotaryLayouts(s); {
	case from != to:
		name += "_" + from + "_to_" + to
	case from == op.LayoutInterleaved:
		name += "_" + from
	}
	if rotaryPartial(s) {
		name += "_" + op.Read[RotaryEmbedding](s.Attributes).RotatedSide
	}
	return name
}

// rotaryBody rotates v, which has the type of input like, by the tables in inputs cosIn and cosIn+1.
func rotaryBody(b *op.Body, s op.Site, v *onnx.Value, like, cosIn int) *onnx.Value {
	attrs := op.Read[RotaryEmbedding](s.Attributes)
	from, to := rotaryLayouts(s)
	x := b.Float32("x", v)
	var rest *onnx.Value
	if rotaryPartial(s) {
		x, rest = rotated(b, x, attrs.RotatedSide)
	}
	x1, x2 := b.Pairs("x1", "x2", x, from)
	cos, sin := b.Float32("cos_32", b.In[cosIn]), b.Float32("sin_32", b.In[cosIn+1])
	c1, c2, s1, s2 := cos, cos, sin, sin
	if cosWide(s, cosIn) {
		c1, c2 = b.Pairs("c1", "c2", cos, to)
		s1, s2 = b.Pairs("s1", "s2", sin, to)
	}
	product := func(name string, p, q *onnx.Value) *onnx.Value {
		return b.Rounded(name+"_rounded", b.Call(name, "Mul", p, q), like)
	}
	first := b.Call("first", "Sub", product("x1_c1", x1, c1), product("x2_s1", x2, s1))
	second := b.Call("second", "Add", product("x2_c2", x2, c2), product("x1_s2", x1, s2))
	var y *onnx.Value
	if to == op.LayoutInterleaved {
		y = interleave(b, "rotated", first, second, x)
	} else {
		y = b.Concat("rotated", first, second)
	}
	switch {
	case rest == nil:
	case attrs.RotatedSide == sideFirst:
		y = b.Concat("channels", y, rest)
	default:
		y = b.Concat("channels", rest, y)
	}
	return b.Round("Y", y, like)
}

// rotated splits the channels of x into the rotated ones and the rest. It reads their number from the node.
func rotated(b *op.Body, x *onnx.Value, side string) (rotated, rest *onnx.Value) {
	dim := b.Constant("dim", onnx.RefAttr("value_int", onnx.AttrInt, "rotary_dim"))
	at := b.Call("at", "Unsqueeze", dim, b.Integers("front", 0))
	if side == sideLast {
		at = b.Call("at_back", "Neg", at)
	}
	first, last := b.Slice("channels_before", x, nil, at, 1), b.Slice("channels_after", x, at, nil, 1)
	if side == sideLast {
		return last, first
	}
	return first, last
}

// interleave alternates first and second along the last axis. The result has the shape of like.
func interleave(b *op.Body, name string, first, second, like *onnx.Value) *onnx.Value {
	axis := b.Integers("new_axis", -1)
	both := b.Concat("stacked", b.Call("first_column", "Unsqueeze", first, axis),
		b.Call("second_column", "Unsqueeze", second, axis))
	return b.Call(name, "Reshape", both, b.Call("shape", "Shape", like))
}

// rotaryLayouts returns the layouts of the pairs in X and in Y.
func rotaryLayouts(s op.Site) (from, to string) {
	attrs := op.Read[RotaryEmbedding](s.Attributes)
	from = op.LayoutHalves
	if attrs.Interleaved {
		from = op.LayoutInterleaved
	}
	return from, attrs.OutputLayout
}

// cosWide reports whether the tables (input cos is one) are rotary_dim wide instead of half as wide.
func cosWide(s op.Site, cos int) bool {
	return s.LastDim(cos) == op.Read[RotaryEmbedding](s.Attributes).RotaryDim
}

// rotaryPartial reports whether some channels may stay unrotated.
func rotaryPartial(s op.Site) bool {
	return s.LastDim(0) != op.Read[RotaryEmbedding](s.Attributes).RotaryDim
}

// rotarySupports errs unless the tables, inputs cos and cos+1, have one width.
func rotarySupports(op string, s op.Site, cos int) error {
	c, sin := s.LastDim(cos), s.LastDim(cos+1)
	if c < 0 {
		return reason.New(reason.Unknown, nil,
			"mojo.%s needs the width of cos, but its last dimension is unknown", op)
	}
	if sin >= 0 && sin != c {
		return fmt.Errorf("mojo.%s takes cos and sin of one width, not %d and %d", op, c, sin)
	}
	return nil
}
