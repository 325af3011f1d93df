package fused

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// The values of RotaryEmbedding's attributes rotated_side and output_layout.
const (
	sideFirst         = "first"
	sideLast          = "last"
	layoutHalves      = "halves"
	layoutInterleaved = "interleaved"
)

// rotaryAttributes are the attributes of a rotation.
var rotaryAttributes = []AttributeSpec{
	{Name: "interleaved", Type: onnx.AttrInt, Bounds: flag, Grid: []any{0, 1},
		Doc: "which channels form a pair: 0: (i, i + r/2), as in rotate_half; 1: (2i, 2i + 1)"},
	{Name: "rotary_dim", Type: onnx.AttrInt, Bounds: Bounds{Least: 2, Most: math.MaxInt64, Multiple: 2},
		Grid: []any{22, 10},
		Doc:  "number of rotated channels (r): even, from 2 to D"},
	{Name: "rotated_side", Type: onnx.AttrString, Values: []string{sideFirst, sideLast}, Field: "last",
		Doc: "which r of the D channels are rotated; first if all are"},
	{Name: "output_layout", Type: onnx.AttrString, Values: []string{layoutHalves, layoutInterleaved},
		Field: "output_interleaved",
		Doc: "where a pair is written; usually halves for interleaved=0 and interleaved for 1, but halves for 1 " +
			"in DeepSeek"},
}

// rotaryTable is the shape of cos and sin.
const rotaryTable Shape = "~A... rotary_dim | ~A... rotary_dim/2"

var rotaryWhere = []Relation{{"rotary_dim <= D", "a rotary_dim of at most the last dimension of X"}}

var rotaryFamily = &Family{Name: "rope",
	Summary: "rotary position embedding, also with the RMSNorm of each head before it"}

// rotaryEmbedding rotates pairs of channels by angles given as cosines and sines.
var rotaryEmbedding = &Op{
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
	Inputs: []Param{
		{Name: "X", Type: "T", Dims: "A... D"},
		{Name: "cos", Type: "T", Dims: rotaryTable,
			Doc: "r wide: indexed by the written channel; r/2 wide: by pair"},
		{Name: "sin", Type: "T", Dims: rotaryTable, Doc: "as wide as cos"},
	},
	Outputs:    []Param{{Name: "Y", Type: "T", Dims: "A... D"}},
	Attributes: rotaryAttributes,
	Family:     rotaryFamily,
	Devices:    Devices(),
	Types:      independent("T"),
	Source: "Su et al., RoFormer (2021): its pairs are interleaved=1, rotate_half in PyTorch transformers is " +
		"interleaved=0; partial rotation is from GPT-J and GPT-NeoX",
	Where:    rotaryWhere,
	check:    func(s Site) error { return rotarySupports("RotaryEmbedding", s, 1) },
	examples: rotaryExamples,
	overload: func(s Site) string { return rotaryOverload(s, 1) },
	define:   func(b *body, s Site) []*onnx.Value { return []*onnx.Value{rotaryBody(b, s, b.in[0], 0, 1)} },
}

// rotaryExamples covers tables of both widths.
func rotaryExamples(s Site) [][][]int64 {
	attrs := Read[RotaryEmbedding](s.Attributes)
	r := attrs.RotaryDim
	if r == exampleX[2] && attrs.RotatedSide == sideLast {
		return nil // all channels are rotated, so the side does not matter
	}
	return [][][]int64{{exampleX, {3, r}, {2, 1, r}}, {exampleX, {3, r / 2}, {2, 1, r / 2}}}
}

// rotaryOverload names the body's variant: the width of the tables (cos is the index of the first), the two layouts,
// and the rotated side.
func rotaryOverload(s Site, cos int) string {
	name := "half_tables"
	if cosWide(s, cos) {
		name = "wide_tables"
	}
	switch from, to := rotaryLayouts(s); {
	case from != to:
		name += "_" + from + "_to_" + to
	case from == layoutInterleaved:
		name += "_" + from
	}
	if rotaryPartial(s) {
		name += "_" + Read[RotaryEmbedding](s.Attributes).RotatedSide
	}
	return name
}

// rotaryBody rotates v, which has the type of input like, by the tables in inputs cosIn and cosIn+1.
func rotaryBody(b *body, s Site, v *onnx.Value, like, cosIn int) *onnx.Value {
	attrs := Read[RotaryEmbedding](s.Attributes)
	from, to := rotaryLayouts(s)
	x := b.float32("x", v)
	var rest *onnx.Value
	if rotaryPartial(s) {
		x, rest = b.rotated(x, attrs.RotatedSide)
	}
	x1, x2 := b.pairs("x1", "x2", x, from)
	cos, sin := b.float32("cos_32", b.in[cosIn]), b.float32("sin_32", b.in[cosIn+1])
	c1, c2, s1, s2 := cos, cos, sin, sin
	if cosWide(s, cosIn) {
		c1, c2 = b.pairs("c1", "c2", cos, to)
		s1, s2 = b.pairs("s1", "s2", sin, to)
	}
	product := func(name string, p, q *onnx.Value) *onnx.Value {
		return b.rounded(name+"_rounded", b.call(name, "Mul", p, q), like)
	}
	first := b.call("first", "Sub", product("x1_c1", x1, c1), product("x2_s1", x2, s1))
	second := b.call("second", "Add", product("x2_c2", x2, c2), product("x1_s2", x1, s2))
	var y *onnx.Value
	if to == layoutInterleaved {
		y = b.interleave("rotated", first, second, x)
	} else {
		y = b.concat("rotated", first, second)
	}
	switch {
	case rest == nil:
	case attrs.RotatedSide == sideFirst:
		y = b.concat("channels", y, rest)
	default:
		y = b.concat("channels", rest, y)
	}
	return b.round("Y", y, like)
}

// rotated splits the channels of x into the rotated ones and the rest. It reads their number from the node.
func (b *body) rotated(x *onnx.Value, side string) (rotated, rest *onnx.Value) {
	dim := b.constant("dim", onnx.RefAttr("value_int", onnx.AttrInt, "rotary_dim"))
	at := b.call("at", "Unsqueeze", dim, b.integers("front", 0))
	if side == sideLast {
		at = b.call("at_back", "Neg", at)
	}
	first, last := b.slice("channels_before", x, nil, at, 1), b.slice("channels_after", x, at, nil, 1)
	if side == sideLast {
		return last, first
	}
	return first, last
}

// pairs returns the first and the second channels of the pairs in v.
func (b *body) pairs(first, second string, v *onnx.Value, layout string) (*onnx.Value, *onnx.Value) {
	if layout == layoutHalves {
		return b.halves(first, second, v)
	}
	return b.slice(first, v, nil, nil, 2), b.slice(second, v, b.integers("one", 1), nil, 2)
}

// interleave alternates first and second along the last axis. The result has the shape of like.
func (b *body) interleave(name string, first, second, like *onnx.Value) *onnx.Value {
	axis := b.integers("new_axis", -1)
	both := b.concat("stacked", b.call("first_column", "Unsqueeze", first, axis),
		b.call("second_column", "Unsqueeze", second, axis))
	return b.call(name, "Reshape", both, b.call("shape", "Shape", like))
}

// rotaryLayouts returns the layouts of the pairs in X and in Y.
func rotaryLayouts(s Site) (from, to string) {
	attrs := Read[RotaryEmbedding](s.Attributes)
	from = layoutHalves
	if attrs.Interleaved {
		from = layoutInterleaved
	}
	return from, attrs.OutputLayout
}

// cosWide reports whether the tables (input cos is one) are rotary_dim wide instead of half as wide.
func cosWide(s Site, cos int) bool {
	return s.lastDim(cos) == Read[RotaryEmbedding](s.Attributes).RotaryDim
}

// rotaryPartial reports whether some channels may stay unrotated.
func rotaryPartial(s Site) bool { return s.lastDim(0) != Read[RotaryEmbedding](s.Attributes).RotaryDim }

// rotarySupports errs unless the tables, inputs cos and cos+1, have one width.
func rotarySupports(op string, s Site, cos int) error {
	c, sin := s.lastDim(cos), s.lastDim(cos+1)
	if c < 0 {
		return reason.New(reason.Unknown, nil,
			"mojo.%s needs the width of cos, but its last dimension is unknown", op)
	}
	if sin >= 0 && sin != c {
		return fmt.Errorf("mojo.%s takes cos and sin of one width, not %d and %d", op, c, sin)
	}
	return nil
}
