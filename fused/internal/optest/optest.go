// Package optest helps to test ops.
package optest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/moe"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/fused/router"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// RandomInputs returns inputs of the site's shapes. Integers are experts, or none; one of the four is never chosen.
func RandomInputs(r *rand.Rand, s op.Site) []*reference.Tensor {
	in := make([]*reference.Tensor, len(s.Types))
	for i, typ := range s.Types {
		if !s.Has(i) {
			continue
		}
		shape, n := []int{}, 1
		for _, d := range s.Dims[i] {
			shape, n = append(shape, int(d)), n*int(d)
		}
		if typ == onnx.Int64 {
			ids, of := make([]int64, n), []int64{0, 1, 3}
			if i == moe.MoEIDs {
				of = append(of, -1)
			}
			for j := range ids {
				ids[j] = of[r.IntN(len(of))]
			}
			in[i] = reference.NewInts(typ, shape, ids)
			continue
		}
		if typ == onnx.Uint8 || typ == onnx.Int8 {
			codes := make([]int64, n) // scales are exponents near 127
			for j := range codes {
				codes[j] = int64(r.IntN(19) - 9)
				if typ == onnx.Uint8 && s.Dims[i][len(s.Dims[i])-1] == 16 {
					codes[j] += 120
				} else if typ == onnx.Uint8 {
					codes[j] = int64(r.IntN(256))
					if kind := s.Attr("code").String + s.Attr("down_code").String; kind == "e4m3" &&
						codes[j]&127 == 127 {
						codes[j]-- // no NaN
					}
				}
			}
			in[i] = reference.NewInts(typ, shape, codes)
			continue
		}
		values := make([]float64, n)
		for j := range values {
			values[j] = float64(float32(r.NormFloat64()))
		}
		in[i] = reference.NewFloats(typ, shape, values)
	}
	return in
}

// Evaluate runs the definition of a site.
func Evaluate(o *op.Op, s op.Site, in []*reference.Tensor) ([]*reference.Tensor, error) {
	f, err := o.Function(s)
	if err != nil {
		return nil, err
	}
	m := onnx.New(10, s.Opset)
	var inputs, outputs []*onnx.Value
	for i := range in {
		inputs = append(inputs, m.Graph.NewValue(o.Inputs[i].Name))
	}
	for _, p := range o.Outputs {
		outputs = append(outputs, m.Graph.NewValue(p.Name))
	}
	n := m.Graph.AddNode(o.Name, inputs, outputs, s.Attributes...)
	n.Domain, n.Overload = op.Domain, f.Overload
	return reference.NewForOpset(s.Opset, []*onnx.Function{f}, reference.Options{Exact: true}).Op(n, in)
}

// RunBodies evaluates the definitions of an op with the built-in evaluator, without roundings, and compares them with
// the formulas written out.
func RunBodies(t *testing.T, bodies func(AddCase, int64), naive func(op.Site, []*reference.Tensor) [][]float64) {
	for _, opset := range []int64{13, 15, 18, 24} {
		r := rand.New(rand.NewPCG(3, 5))
		bodies(func(o *op.Op, attrs []*onnx.Attribute, types []onnx.DataType, dims ...[]int64) {
			s := op.Site{Attributes: attrs, Types: types, Dims: dims, Opset: opset}
			name := fmt.Sprintf("%s.%s at opset %d on %v", o.Name, o.Overload(s), opset, dims)
			in := RandomInputs(r, s)
			got, err := Evaluate(o, s, in)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for i, w := range naive(s, in) {
				if len(got[i].F)+len(got[i].I) != len(w) {
					t.Fatalf("%s: output %s has %v, want %d elements", name, o.Outputs[i].Name, got[i], len(w))
				}
				for j, x := range w {
					// attributes are float32
					if y := got[i].Floats()[j]; !(math.Abs(x-y) <= 1e-6*(1+math.Abs(x))) {
						t.Fatalf("%s: output %s, element %d is %v, want %v", name, o.Outputs[i].Name, j, y, x)
					}
				}
			}
		}, opset)
	}
}

// AddCase adds a node to a model.
type AddCase func(op *op.Op, attrs []*onnx.Attribute, types []onnx.DataType, dims ...[]int64)

// RouterForm has the attributes of TopKRouter; 0 means 1 for a number that cannot be 0.
type RouterForm struct {
	K             int64
	score, Order  string
	Groups, Kept  int64
	GroupScore    string
	Excluded      float32
	renormalize   int64
	Epsilon, scal float32
}

// Attrs returns the attributes.
func (f RouterForm) Attrs() []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("top_k", max(f.K, 1)), onnx.StringAttr("score", cmp.Or(f.score, "softmax")),
		onnx.StringAttr("order", cmp.Or(f.Order, "score_first")), onnx.IntAttr("groups",
			max(f.Groups, 1)), onnx.IntAttr("group_top_k", max(f.Kept, 1)),
		onnx.StringAttr("group_score", cmp.Or(f.GroupScore, "max")), onnx.FloatAttr("excluded_score", f.Excluded),
		onnx.IntAttr("renormalize", f.renormalize), onnx.FloatAttr("epsilon", f.Epsilon),
		onnx.FloatAttr("scale", cmp.Or(f.scal, 1))}
}

// MoeForm is the attributes of MoE, with the same zero values.
type MoeForm struct {
	Activation           string
	Alpha, Limit, offset float32
	Packing, Up, Down    string
}

// Attrs returns the attributes.
func (f MoeForm) Attrs() []*onnx.Attribute {
	return append(GluAttrs(cmp.Or(f.Activation, "silu"), cmp.Or(f.Alpha, 1), f.Limit, f.offset),
		onnx.StringAttr("packing", cmp.Or(f.Packing, "halves")),
		onnx.StringAttr("gate_up_layout", cmp.Or(f.Up, "out_in")),
		onnx.StringAttr("down_layout", cmp.Or(f.Down, "out_in")))
}

var negativeInfinity = float32(math.Inf(-1))

// AddRouterBodies adds nodes of TopKRouter that cover its attributes.
func AddRouterBodies(add AddCase, opset int64) {
	types := []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16}
	for i, f := range []RouterForm{
		{K: 2},
		{K: 2, renormalize: 1, scal: 2.5},
		{K: 4, Order: "top_k_first"},
		{K: 1, Order: "top_k_first", score: "sigmoid"},
		{K: 3, score: "sigmoid", renormalize: 1, Epsilon: 0.125}, {K: 3, score: "sqrtsoftplus", renormalize: 1,
			Epsilon: 1e-20, scal: 1.5},
		{K: 6, Groups: 4, Kept: 2, scal: 16},
		{K: 4, score: "sigmoid", Groups: 4, Kept: 2, GroupScore: "top2_sum", Excluded: negativeInfinity, renormalize: 1,
			Epsilon: 1e-20, scal: 2.5},
	} {
		t := types[(int64(i)+opset)%3] // each with every type, over the opsets in turn
		add(router.Op, f.Attrs(), []onnx.DataType{t}, []int64{2, 3, 16})
		add(router.Op, f.Attrs(), []onnx.DataType{t, onnx.Float}, []int64{5, 16}, []int64{16})
		add(router.Op, f.Attrs(), []onnx.DataType{t, t}, []int64{0, 16}, []int64{16})
	}
	add(router.Op, RouterForm{K: 2}.Attrs(), []onnx.DataType{onnx.Float}, []int64{8})
}

// AddMoEBodies has hidden rows of 6, experts of 10 channels, four of them.
func AddMoEBodies(add AddCase, opset int64) {
	const f32, f16, bf16, i64 = onnx.Float, onnx.Float16, onnx.BFloat16, onnx.Int64
	weights := func(f MoeForm) (gateUp, down, gateUpBias, downBias []int64) {
		packed := int64(20)
		if f.Packing == "none" {
			packed = 10
		}
		gateUp, down = []int64{4, packed, 6}, []int64{4, 6, 10}
		if f.Up == "in_out" {
			gateUp = []int64{4, 6, packed}
		}
		if f.Down == "in_out" {
			down = []int64{4, 10, 6}
		}
		return gateUp, down, []int64{4, packed}, []int64{4, 6}
	}
	forms := []MoeForm{{}, {Activation: "gelu", Packing: "interleaved", Up: "in_out"},
		{Activation: "gelu_tanh", Down: "in_out"},
		{Activation: "relu", Packing: "none", Up: "in_out", Down: "in_out"}, {Activation: "gelu", Packing: "none"},
		{Activation: "relu2", Packing: "none"}, {Activation: "relu2", Up: "in_out"},
		{Alpha: 1.702, Limit: 1.5, offset: 1, Packing: "interleaved", Up: "in_out", Down: "in_out"}}
	for i, f := range forms {
		gateUp, down, gateUpBias, downBias := weights(f)
		// Every form with every type of weights, over the opsets in turn.
		t, v := []onnx.DataType{f32, f16, bf16}[i%3], []onnx.DataType{f32, bf16, f16}[(int64(i)+opset)%3]
		add(moe.Op, f.Attrs(), []onnx.DataType{t, f32, i64, v, v}, []int64{2, 5, 6}, []int64{10, 3}, []int64{10, 3},
			gateUp,
			down)
		add(moe.Op, f.Attrs(), []onnx.DataType{t, t, i64, v, v, v, v}, []int64{7, 6}, []int64{7, 2}, []int64{7, 2},
			gateUp,
			down, gateUpBias, downBias)
	}
	gateUp, down, gateUpBias, downBias := weights(MoeForm{})
	for _, t := range []onnx.DataType{f32, f16, bf16} {
		add(moe.Op, MoeForm{}.Attrs(), []onnx.DataType{f32, f32, i64, t, t, onnx.Undefined, t}, []int64{1, 6},
			[]int64{1, 1},
			[]int64{1, 1, 1}, gateUp, down, nil, downBias)
		add(moe.Op, MoeForm{}.Attrs(), []onnx.DataType{t, f32, i64, t, t, t}, []int64{0, 6}, []int64{0, 2},
			[]int64{0, 2},
			gateUp, down, gateUpBias)
	}
	if opset > 13 { // no token of two batches: opset 13 cannot make this shape
		add(moe.Op, MoeForm{}.Attrs(), []onnx.DataType{f32, f32, i64, f32, f32}, []int64{2, 0, 6}, []int64{2, 0, 2},
			[]int64{2, 0, 2}, gateUp, down)
	}
}

// gelu is the standard's Gelu, as the evaluator has it.
func gelu(g float64, approximate string) float64 {
	n := onnx.NewFunction("", "", "", 20).Body.NewNode("Gelu", nil, onnx.StringAttr("approximate", approximate))
	x := reference.NewFloats(onnx.Double, nil, []float64{g})
	y, err := reference.NewForOpset(20, nil, reference.Options{}).Op(n, []*reference.Tensor{x})
	if err != nil {
		panic(err)
	}
	return y[0].F[0]
}

// NaiveMoE returns the result of MoE, token by token.
func NaiveMoE(s op.Site, in []*reference.Tensor) [][]float64 {
	hidden, k := in[moe.MoEX].Shape[in[moe.MoEX].Rank()-1], in[moe.MoEIDs].Shape[in[moe.MoEIDs].Rank()-1]
	packed := in[moe.MoEGateUp].Len() / in[moe.MoEGateUp].Shape[0] / hidden
	inner := in[moe.MoEDown].Len() / in[moe.MoEDown].Shape[0] / hidden
	// product is an expert's matrix times x.
	product := func(w, bias int, layout string, e int, x []float64, out int) []float64 {
		y := make([]float64, out)
		at := e * out * len(x)
		for i := range y {
			for j, v := range x {
				if s.Attr(layout).String == op.LayoutOutIn {
					y[i] += in[w].F[at+i*len(x)+j] * v
				} else {
					y[i] += in[w].F[at+j*out+i] * v
				}
			}
			if s.Has(bias) {
				y[i] += in[bias].F[e*out+i]
			}
		}
		return y
	}
	activation := func(g float64) float64 {
		switch s.Attr("activation").String {
		case "silu":
			return g / (1 + math.Exp(-float64(s.Attr("alpha").Float)*g))
		case "gelu":
			return gelu(g, "none")
		case "gelu_tanh":
			return gelu(g, "tanh")
		case "relu2":
			return max(g, 0) * max(g, 0)
		}
		return max(g, 0)
	}
	limit := float64(s.Attr("limit").Float)
	y := make([]float64, in[moe.MoEX].Len())
	for choice, id := range in[moe.MoEIDs].I {
		if id < 0 {
			continue
		}
		token := choice / k * hidden
		h := product(moe.MoEGateUp, moe.MoEGateUpBias, "gate_up_layout", int(id), in[moe.MoEX].F[token:token+hidden],
			packed)
		a := make([]float64, inner)
		for i := range a {
			g, u := h[i], 1.0
			switch s.Attr("packing").String {
			case moe.PackHalves:
				u = h[inner+i]
			case moe.PackInterleaved:
				g, u = h[2*i], h[2*i+1]
			}
			if limit > 0 {
				g, u = min(g, limit), max(min(u, limit), -limit)
			}
			a[i] = activation(g) * (u + float64(s.Attr("up_offset").Float))
		}
		for i, v := range product(moe.MoEDown, moe.MoEDownBias, "down_layout", int(id), a, hidden) {
			y[token+i] += in[moe.MoEWeights].F[choice] * v
		}
	}
	return [][]float64{y}
}

// WeightAt returns one element of a Linear's W.
func WeightAt(s op.Site, in []*reference.Tensor, row, column int) float64 {
	const scales, minuses, superScale, superMinus = 2, 3, 4, 5 // inputs
	panel, r, place, k := row/16, row%16, column%32, int(s.Attr("k").Int)
	block := (panel*(k/32) + column/32)
	of := func(input, width int) float64 {
		at := (panel*(k/width)+column/width)*16 + r
		if s.Attr("code").String == "e4m3" {
			at /= 16
		}
		if in[input].F != nil {
			return in[input].F[at]
		}
		return float64(in[input].I[at])
	}
	width := int(s.Attr("block").Int)
	scale, minus := of(scales, width), 0.0
	if s.Has(minuses) {
		minus = of(minuses, width)
	}
	if s.Has(superScale) {
		scale *= of(superScale, 256)
	}
	if s.Has(superMinus) {
		minus *= of(superMinus, 256)
	}
	codes := in[1].I
	if s.Attr("code").String == "e4m3" {
		code := codes[(block*8+place/4)*64+4*r+place%4]
		value := math.Ldexp(float64(code&7+8), int(code>>3&15)-10)
		if code>>3&15 == 0 {
			value = math.Ldexp(float64(code&7), -9)
		}
		return scale * math.Copysign(value, 127.5-float64(code))
	}
	if s.Attr("code").String == "int8" {
		code := codes[(block*8+place/4)*64+4*r+place%4]
		return scale*float64(code-s.Attr("zero").Int) + minus
	}
	code := codes[(block*4+place%16/4)*64+4*r+place%4]
	if place >= 16 {
		code >>= 4
	}
	if code &= 15; s.Attr("code").String == "int4" {
		return scale*float64(code-s.Attr("zero").Int) + minus
	}
	value := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code%8]
	return math.Ldexp(math.Copysign(value, 7.5-float64(code)), int(scale)-127)
}

// GluAttrs returns the attributes of GLU.
func GluAttrs(activation string, alpha, limit, offset float32) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.StringAttr("activation", activation), onnx.FloatAttr("alpha", alpha),
		onnx.FloatAttr("limit", limit), onnx.FloatAttr("up_offset", offset)}
}

// SupportsCase is a site that the kernels take, or do not.
type SupportsCase = struct {
	Name  string
	Op    *op.Op
	Attrs []*onnx.Attribute
	Types []onnx.DataType
	Dims  [][]int64
	Err   string // empty: supported
}

// RunSupports checks that Supports returns the errors of the cases.
func RunSupports(t *testing.T, cases []SupportsCase) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			err := c.Op.Supports(op.Site{Attributes: c.Attrs, Types: c.Types, Dims: c.Dims, Opset: 20})
			if (err == nil) != (c.Err == "") || err != nil && !strings.Contains(err.Error(), c.Err) {
				t.Errorf("got %v, want an error with %q", err, c.Err)
			}
		})
	}
}
