package target

import (
	"cmp"
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// mixture is a router with its experts.
type mixture struct {
	typ                 onnx.DataType
	score, order        string
	bias                bool
	groups, renormalize int64
	epsilon, scale      float32

	activation           string
	alpha, limit, offset float32
	packing, layout      string
	biases               bool

	logits onnx.DataType // if they have another type
	rank   int           // of the logits and the tokens, if not 2
	dense  bool          // the weights are scattered among all experts and gathered again
	apart  bool          // the router is elsewhere
	fixed  bool          // the weights are constants
	inner  int64         // width of the experts, if not 16
}

const (
	mixtureTokens, mixtureExperts, mixtureHidden, mixtureChosen = 6, 5, 8, 2
)

func (m mixture) sites() (router, experts site) {
	i, f, s := onnx.IntAttr, onnx.FloatAttr, onnx.StringAttr
	lead := []int64{mixtureTokens}
	for len(lead) < m.rank-1 {
		lead = append([]int64{1}, lead...)
	}
	rows := func(n int64) []int64 { return append(append([]int64{}, lead...), n) }
	router = site{op: "TopKRouter", types: []onnx.DataType{m.logits}, dims: [][]int64{rows(mixtureExperts)},
		attrs: []*onnx.Attribute{
			i("top_k", mixtureChosen), s("score", m.score), s("order", m.order), i("groups", m.groups),
			i("group_top_k", 1),
			s("group_score", "max"),
			f("excluded_score", 0), i("renormalize", m.renormalize), f("epsilon", m.epsilon), f("scale", m.scale)}}
	if m.bias {
		router.types, router.dims = append(router.types, f32), append(router.dims, []int64{mixtureExperts})
	}
	inner := cmp.Or(m.inner, 16)
	first := inner
	if m.packing != "none" {
		first *= 2
	}
	matrix := func(out, in int64) []int64 {
		if m.layout == "in_out" {
			out, in = in, out
		}
		return []int64{mixtureExperts, out, in}
	}
	t := m.typ
	experts = site{op: "MoE", types: []onnx.DataType{t, f32, onnx.Int64, t, t},
		dims: [][]int64{rows(mixtureHidden), rows(mixtureChosen), rows(mixtureChosen), matrix(first, mixtureHidden),
			matrix(mixtureHidden, inner)},
		attrs: []*onnx.Attribute{s("activation", m.activation), f("alpha", m.alpha), f("limit", m.limit),
			f("up_offset", m.offset),
			s("packing", m.packing), s("gate_up_layout", m.layout), s("down_layout", m.layout)}}
	if m.biases {
		experts.types = append(experts.types, t, t)
		experts.dims = append(experts.dims, []int64{mixtureExperts, first}, []int64{mixtureExperts, mixtureHidden})
	}
	return router, experts
}

// graph returns a body with both ops. It has the inputs of the router and of the experts, except the choice.
func (m mixture) graph(t *testing.T, opset int64) (g *onnx.Graph, calls []*Call, functions []*onnx.Function,
	inputs []*reference.Tensor) {
	t.Helper()
	router, experts := m.sites()
	g = onnx.NewFunction("", "", "", opset).Body
	values := map[string]*onnx.Value{}
	add := func(s site, outputs ...string) *onnx.Node {
		op := fused.Lookup(s.op)
		where := fused.Site{Attributes: s.attrs, Types: s.types, Dims: s.dims, Opset: opset}
		f, err := op.Function(where)
		if err != nil {
			t.Fatal(err)
		}
		functions = append(functions, f)
		numbers := s.inputs(t)
		in := make([]*onnx.Value, len(s.types))
		for i := range in {
			name := op.Inputs[i].Name
			if in[i] = values[name]; in[i] == nil {
				in[i] = g.AddInput(name, onnx.Type{})
				values[name] = in[i]
				inputs = append(inputs, numbers[i])
			}
		}
		out := make([]*onnx.Value, len(outputs))
		for i, name := range outputs {
			out[i] = g.NewValue(name)
			values[name] = out[i]
		}
		n := g.AddNode(s.op, in, out, s.attrs...)
		n.Domain, n.Overload = fused.Domain, f.Overload
		calls = append(calls, NewCall(n, where))
		return n
	}
	add(router, "weights", "ids")
	if m.dense {
		node := func(op string, in []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
			v := g.NewValue(op)
			g.AddNode(op, in, []*onnx.Value{v}, attrs...)
			return v
		}
		last := onnx.IntAttr("axis", -1)
		shape := node("Shape", []*onnx.Value{values["logits"]})
		put := node("ScatterElements", []*onnx.Value{node("ConstantOfShape", []*onnx.Value{shape}), values["ids"],
			values["weights"]}, last)
		values["weights"] = node("GatherElements", []*onnx.Value{put, values["ids"]}, last)
	}
	g.AddOutput(add(experts, "Y").Outputs[0])
	if !m.apart {
		calls[1].Others = calls[:1]
	}
	calls[1].Fixed = func(*onnx.Value) bool { return m.fixed }
	return g, calls, functions, inputs
}

// usual returns the mixture of Mixtral, changed by f.
func usual(f func(m *mixture)) mixture {
	m := mixture{typ: f32, fixed: true, score: "softmax", order: "score_first", groups: 1, renormalize: 1, scale: 1,
		activation: "silu", alpha: 1,
		packing: "halves", layout: "out_in"}
	if f != nil {
		f(&m)
	}
	if m.logits == onnx.Undefined {
		m.logits = m.typ
	}
	return m
}

func TestORTMoE(t *testing.T) {
	const moe = "com.microsoft.MoE Cast Where"
	for _, c := range []struct {
		name string
		m    mixture
		ops  string // after the router, which stays until nothing reads it
	}{
		{"halves", usual(nil), "Reshape Transpose Reshape " + moe},
		{"as they are", usual(func(m *mixture) { m.renormalize = 0; m.packing = "interleaved" }), moe},
		{"softmax of the chosen",
			usual(func(m *mixture) { m.renormalize, m.order, m.packing = 0, "top_k_first", "interleaved" }), moe},
		{"in_out", usual(func(m *mixture) { m.layout = "in_out" }), "Transpose Reshape Transpose Reshape Transpose " +
			moe},
		{"clamped, with biases",
			usual(func(m *mixture) {
				m.alpha, m.limit, m.offset, m.biases, m.packing = 1.702, 1.5, 1, true, "interleaved"
			}), moe},
		{"biases in halves", usual(func(m *mixture) { m.biases = true }),
			"Reshape Transpose Reshape Reshape Transpose Reshape " + moe},
		{"relu, no gate", usual(func(m *mixture) { m.activation, m.packing = "relu", "none" }), moe},
		{"gelu, no gate", usual(func(m *mixture) { m.activation, m.packing, m.biases = "gelu_tanh", "none", true }),
			moe},
		{"a factor", usual(func(m *mixture) { m.scale, m.packing = 2.5, "interleaved" }), moe + " Mul"},
		{"float16", usual(func(m *mixture) { m.typ, m.packing = f16, "interleaved" }), moe},
		{"rank 3", usual(func(m *mixture) { m.rank, m.packing = 3, "interleaved" }), "Reshape " + moe},
		{"computed, as they are", usual(func(m *mixture) { m.fixed, m.packing = false, "interleaved" }), moe},
		{"weights of all experts", usual(func(m *mixture) { m.dense, m.packing = true, "interleaved" }), moe},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, calls, functions, inputs := c.m.graph(t, 17)
			want := evaluate(t, g, 17, functions, inputs)[0]
			if _, err := ort.Write(calls[1]); err != nil {
				t.Fatal(err)
			}
			if got := written(g); got != c.ops {
				t.Errorf("wrote %s, want %s", got, c.ops)
			}
			got := evaluate(t, g, 17, functions, inputs)[0]
			greatest, worst := 0.0, 0.0
			for k, x := range want.F {
				greatest, worst = max(greatest, math.Abs(x)), max(worst, math.Abs(got.F[k]-x))
			}
			if !(worst <= precision[c.m.typ]*greatest) {
				t.Errorf("differs from the definitions by %.2g, the greatest magnitude is %.2g", worst, greatest)
			}
		})
	}
	for _, c := range []struct {
		reason string
		m      mixture
	}{
		{"MoE scores by softmax, not by sigmoid", usual(func(m *mixture) { m.score = "sigmoid" })},
		{"MoE adds no bias for the choice", usual(func(m *mixture) { m.bias = true })},
		{"MoE adds no epsilon to the sum of the weights, but the router adds 1e-06",
			usual(func(m *mixture) { m.epsilon = 1e-6 })},
		{"MoE has only silu gates, not gelu", usual(func(m *mixture) { m.activation = "gelu" })},
		{"MoE does not have the activation gelu", usual(func(m *mixture) { m.activation, m.packing = "gelu", "none" })},
		{"not have the activation relu2", usual(func(m *mixture) { m.activation, m.packing = "relu2", "none" })},
		{"MoE takes float32 and float16 on the CPU, not bfloat16", usual(func(m *mixture) { m.typ = bf16 })},
		{"experts that are at least 16 wide on CUDA, not 6", usual(func(m *mixture) { m.typ, m.inner = f16, 6 })},
		{"experts that are at least 16 wide on CUDA, not 6",
			usual(func(m *mixture) { m.typ, m.inner, m.layout = f16, 6, "in_out" })},
		{"MoE takes logits of the type of the tokens, float16, not float32",
			usual(func(m *mixture) { m.typ, m.logits = f16, f32 })},
		{"MoE takes tokens of rank 2 or 3", usual(func(m *mixture) { m.rank = 4 })},
		{"be moved at each run", usual(func(m *mixture) { m.fixed = false })},
		{"be moved at each run",
			usual(func(m *mixture) { m.fixed, m.packing, m.layout = false, "interleaved", "in_out" })},
		{"the router is not known", usual(func(m *mixture) { m.apart = true })},
	} {
		t.Run("open: "+c.reason, func(t *testing.T) {
			g, calls, _, _ := c.m.graph(t, 17)
			before := g.Text()
			if _, err := ort.Write(calls[1]); err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("got %v", err)
			}
			if g.Text() != before {
				t.Errorf("the graph was changed:\n%s", g.Text())
			}
		})
	}
}
