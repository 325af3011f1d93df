package rewritetest

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
)

// MoE holds the values of a mixture of E experts, k of which each token uses.
type MoE struct {
	*Builder
	Experts, Chosen, Hidden, Inner int
	X, Weights, IDs                *onnx.Value // [tokens, ...]
	GateUp, Down                   *onnx.Value // out_in
	Clamped                        bool
}

// NewMoE adds the inputs and the weights of the experts.
func NewMoE(t *testing.T, typ onnx.DataType, experts, chosen, hidden, inner int) *MoE {
	b := New(t, 20, typ)
	m := &MoE{Builder: b, Experts: experts, Chosen: chosen, Hidden: hidden, Inner: inner}
	m.X = b.In("x", "tokens", hidden)
	m.Weights = b.In("weights", "tokens", chosen)
	m.IDs = b.Input("ids", onnx.Int64, "tokens", chosen)
	m.GateUp = b.Weight("gate_up", experts, 2*inner, hidden)
	m.Down = b.Weight("down", experts, hidden, inner)
	return m
}

// Unit writes silu(gate)*up, or the clamped form of gpt-oss.
func (m *MoE) Unit(b *Builder, gate, up *onnx.Value) *onnx.Value {
	if !m.Clamped {
		return b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", gate)), up)
	}
	number := func(x float64) *onnx.Value { return m.Scalar(m.Type, x) }
	gate, up = b.Op("Min", gate, number(7)), b.Op("Clip", up, number(-7), number(7))
	return b.Op("Mul", b.Op("Add", up, number(1)), b.Op("Mul", gate, b.Op("Sigmoid", b.Op("Mul", gate, number(1.702)))))
}

// Attributes returns those of the op that computes the experts.
func (m *MoE) Attributes(activation string) []*onnx.Attribute {
	glu := fused.GLU{Activation: activation, Alpha: 1}
	if m.Clamped {
		glu.Alpha, glu.Limit, glu.UpOffset = 1.702, 7, 1
	}
	return fused.MoE{GLU: glu, Packing: "halves", GateUpLayout: "out_in", DownLayout: "out_in"}.Attributes()
}

// Gathered writes the experts in the exported form that gathers weights for each token.
func (m *MoE) Gathered(spoil string) *onnx.Value {
	k, h := int64(m.Chosen), int64(m.Hidden)
	flat := m.Op("Reshape", m.IDs, m.Ints(-1))
	rows := m.Op("Reshape", m.Op("Expand", m.Op("Unsqueeze", m.X, m.Ints(1)), m.Ints(1, k, 1)), m.Ints(-1, h, 1))
	first := flat
	if spoil == "first expert" {
		first = m.Op("Mul", flat, m.Ints(0))
	}
	y := m.Op("Squeeze", m.Op("MatMul", m.Op("Gather", m.GateUp, first, onnx.IntAttr("axis", 0)), rows), m.Ints(-1))
	gate := m.Op("Slice", y, m.Ints(0), m.Ints(int64(m.Inner)), m.Ints(1))
	up := m.Op("Slice", y, m.Ints(int64(m.Inner)), m.Ints(1<<40), m.Ints(1))
	if spoil == "swapped" {
		gate, up = up, gate
	}
	act := m.Unit(m.Builder, gate, up)
	out := m.Op("Squeeze", m.Op("MatMul", m.Op("Gather", m.Down, flat, onnx.IntAttr("axis", 0)),
		m.Op("Unsqueeze", act, m.Ints(-1))), m.Ints(-1))
	w := m.Op("Reshape", m.Weights, m.Ints(-1, 1))
	if spoil == "squared weights" {
		w = m.Op("Mul", w, w)
	}
	if spoil == "times the tokens" { // a run on tokens of ones does not show it
		out = m.Op("Mul", out, m.Op("Squeeze", rows, m.Ints(-1)))
	}
	return m.Op("ReduceSum", m.Op("Reshape", m.Op("Mul", out, w), m.Ints(-1, k, h)), m.Ints(1),
		onnx.IntAttr("keepdims", 0))
}

// Match returns a match of the experts whose sum is y.
func (m *MoE) Match(y *onnx.Value, activation string) *patterns.Match {
	return &patterns.Match{Pattern: "MoE", Op: "MoE", Inputs: []*onnx.Value{m.X, m.Weights, m.IDs, m.GateUp, m.Down},
		Roles: map[*onnx.Value]fused.Role{m.X: fused.RoleTokens, m.Weights: fused.RoleWeights, m.IDs: fused.RoleIDs,
			m.GateUp: fused.RoleMatrix, m.Down: fused.RoleMatrix},
		Outputs: []*onnx.Value{y}, Attributes: m.Attributes(activation)}
}

// Expert writes one expert applied to rows of tokens, in the graph of b.
func (m *MoE) Expert(b *Builder, rows, e *onnx.Value) *onnx.Value {
	pick := func(w *onnx.Value) *onnx.Value {
		return b.Op("Transpose", b.Op("Gather", w, e, onnx.IntAttr("axis", 0)), onnx.IntsAttr("perm", []int64{1, 0}))
	}
	y := b.Op("MatMul", rows, pick(m.GateUp))
	gate := b.Op("Slice", y, m.Ints(0), m.Ints(int64(m.Inner)), m.Ints(-1))
	up := b.Op("Slice", y, m.Ints(int64(m.Inner)), m.Ints(1<<40), m.Ints(-1))
	return b.Op("MatMul", m.Unit(b, gate, up), pick(m.Down))
}

// Looped writes the experts as a Loop over all of them: each adds its result for all tokens, times their weights for
// it.
func (m *MoE) Looped() *onnx.Value {
	body := m.Graph.NewSubgraph("body")
	b := &Builder{T: m.T, Builder: &onnxtest.Builder{Model: m.Model, Graph: body}, Type: m.Type}
	e := body.AddInput("e", onnxtest.Type(onnx.Int64))
	cond := body.AddInput("cond", onnxtest.Type(onnx.Bool))
	sum := body.AddInput("sum", onnxtest.Type(m.Type, "tokens", m.Hidden))
	mine := b.Op("Where", b.Op("Equal", m.IDs, e), m.Weights, m.Scalar(m.Type, 0))
	share := b.Op("ReduceSum", mine, m.Ints(1), onnx.IntAttr("keepdims", 1))
	body.AddOutput(b.Op("Identity", cond))
	body.AddOutput(b.Op("Add", sum, b.Op("Mul", m.Expert(b, m.X, e), share)))
	zero := m.Op("Mul", m.X, m.Scalar(m.Type, 0))
	y := m.Graph.NewValue("y")
	trips := m.Graph.AddInitializer(onnx.NewInt64s("trips", []int64{int64(m.Experts)}))
	m.Graph.AddNode("Loop", []*onnx.Value{m.Op("Squeeze", trips), nil, zero}, []*onnx.Value{y},
		onnx.GraphAttr("body", body)).Name = "loop"
	return m.Op("Identity", y)
}

// Unrolled writes the experts as a traced loop over the experts that tokens use; hit is their number.
func (m *MoE) Unrolled(hit int) *onnx.Value {
	depth := m.Ints(int64(m.Experts))
	values := m.Ints(0, 1)
	// [E, k, T]
	mask := m.Op("Transpose", m.Op("OneHot", m.IDs, depth, values, onnx.IntAttr("axis", -1)),
		onnx.IntsAttr("perm", []int64{2, 1, 0}))
	picked := m.Op("Greater", m.Op("ReduceSum", mask, m.Ints(1, 2), onnx.IntAttr("keepdims", 0)), m.Ints(0))
	found := m.Op("Transpose", m.Op("NonZero", picked), onnx.IntsAttr("perm", []int64{1, 0})) // [hits, 1]
	parts := make([]*onnx.Value, hit)
	sizes := make([]int64, hit)
	for i := range parts {
		parts[i], sizes[i] = m.Graph.NewValue("expert"), 1
	}
	m.Graph.AddNode("Split", []*onnx.Value{found, m.Ints(sizes...)}, parts, onnx.IntAttr("axis", 0)).Name = "split"
	y := m.Op("Mul", m.X, m.Scalar(m.Type, 0))
	for _, p := range parts {
		e := m.Op("Squeeze", p, m.Ints(0, 1))
		at := m.Op("NonZero", m.Op("Gather", mask, e, onnx.IntAttr("axis", 0))) // places among the chosen, tokens
		token := m.Op("Gather", at, m.Ints(1), onnx.IntAttr("axis", 0))
		token = m.Op("Squeeze", token, m.Ints(0))
		out := m.Expert(m.Builder, m.Op("Gather", m.X, token, onnx.IntAttr("axis", 0)), e)
		pairs := m.Op("Transpose", m.Op("Gather", at, m.Ints(1, 0), onnx.IntAttr("axis", 0)),
			onnx.IntsAttr("perm", []int64{1, 0}))
		w := m.Op("Unsqueeze", m.Op("GatherND", m.Weights, pairs), m.Ints(-1))
		y = m.Op("ScatterND", y, m.Op("Unsqueeze", token, m.Ints(-1)), m.Op("Mul", out, w),
			onnx.StringAttr("reduction", "add"))
	}
	return y
}

// OneNode sets a match's replacement to one node whose inputs are the match's, in order.
func OneNode(match *patterns.Match, opset int64) {
	g := onnx.NewFunction("", "", "", opset).Body
	var reads, in, out []*onnx.Value
	stands := map[*onnx.Value]*onnx.Value{}
	for _, v := range match.Inputs {
		if stands[v] == nil {
			stands[v] = g.AddInput("x", onnx.Type{})
			reads = append(reads, v)
		}
		in = append(in, stands[v])
	}
	for range match.Outputs {
		v := g.NewValue("y")
		out = append(out, v)
		g.AddOutput(v)
	}
	g.AddNode(match.Op, in, out, match.Attributes...).Domain = match.Domain
	match.Inputs, match.Replacement = reads, g
}
