package router_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

const (
	experts = 8
	hidden  = 5
)

// routerGraph builds routers: x [tokens, 5], logits of 8 experts, and experts that are one number each.
type routerGraph struct {
	*onnxtest.Builder
	typ    onnx.DataType
	random *rand.Rand
	x      *onnx.Value
	logits *onnx.Value
}

func newRouterGraph(typ onnx.DataType, dims ...string) *routerGraph {
	b := &routerGraph{Builder: onnxtest.New(20), typ: typ, random: rand.New(rand.NewPCG(1, 2))}
	t := onnx.Type{DataType: typ, HasShape: true}
	for _, d := range append(dims, "") {
		t.Dims = append(t.Dims, onnx.Dim{Value: map[bool]int64{true: hidden, false: -1}[d == ""], Param: d})
	}
	b.x = b.Model.Graph.AddInput("x", t)
	b.logits = b.Op("MatMul", b.x, b.weight(hidden, experts))
	return b
}

func (b *routerGraph) weight(dims ...int64) *onnx.Value { return b.weightOf(b.typ, dims...) }

func (b *routerGraph) weightOf(typ onnx.DataType, dims ...int64) *onnx.Value {
	shape, n := []int{}, 1
	for _, d := range dims {
		shape, n = append(shape, int(d)), n*int(d)
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = b.random.NormFloat64()
	}
	return b.tensor(reference.NewFloats(typ, shape, v))
}

func (b *routerGraph) bytes(n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = b.random.Int64N(256)
	}
	return v
}

func (b *routerGraph) tensor(t *reference.Tensor) *onnx.Value {
	c, err := t.ToONNX("c")
	if err != nil {
		panic(err)
	}
	return b.Constant(c)
}

func (b *routerGraph) scalar(x int64) *onnx.Value {
	return b.tensor(reference.NewInts(onnx.Int64, []int{}, []int64{x}))
}

func (b *routerGraph) topK(v *onnx.Value, k int64, attrs ...any) (values, ids *onnx.Value) {
	out := b.Ops(2, "TopK", append([]any{v, []int64{k}}, attrs...)...)
	return out[0], out[1]
}

func (b *routerGraph) cast(v *onnx.Value, to onnx.DataType) *onnx.Value {
	return b.Op("Cast", v, onnx.IntAttr("to", int64(to)))
}

func (b *routerGraph) softmax(v *onnx.Value) *onnx.Value {
	return b.Op("Softmax", v, onnx.IntAttr("axis", -1))
}

func (b *routerGraph) sum(v *onnx.Value) *onnx.Value { return b.Op("ReduceSum", v, []int64{-1}) }

func (b *routerGraph) gather(v, ids *onnx.Value) *onnx.Value {
	return b.Op("GatherElements", v, ids, onnx.IntAttr("axis", -1))
}

// divided returns weights divided by their sum.
func (b *routerGraph) divided(w *onnx.Value) *onnx.Value { return b.Op("Div", w, b.sum(w)) }

// out applies experts to weights [..., k] for the ids, or to gates [..., experts].
func (b *routerGraph) out(weights, ids *onnx.Value) {
	picked := b.Op("Gather", b.weightOf(onnx.Float, experts, 3, 2), ids)
	y := b.Op("Mul", b.cast(weights, onnx.Float),
		b.Op("ReduceSum", picked, []int64{-1, -2}, onnx.IntAttr("keepdims", 0)))
	b.Model.Graph.AddOutput(y)
}

func (b *routerGraph) outGates(gates *onnx.Value) {
	b.Model.Graph.AddOutput(b.Op("Mul", gates, b.Op("MatMul", b.x, b.weight(hidden, experts))))
}

// spread returns a tensor like the logits, filled with x.
func (b *routerGraph) spread(x float64) *onnx.Value {
	return b.Op("Expand", x, b.Op("Shape", b.logits))
}

// grouped returns scores [tokens, groups, experts of a group].
func (b *routerGraph) grouped(scores *onnx.Value, groups int64) *onnx.Value {
	return b.Op("Reshape", scores, []int64{-1, groups, experts / groups})
}

// keptGroups returns a mask [tokens, experts] of ones for the experts of the chosen groups, zeros for others.
func (b *routerGraph) keptGroups(groupScores *onnx.Value, groups, k int64) *onnx.Value {
	_, ids := b.topK(groupScores, k, onnx.IntAttr("sorted", 0))
	zeros := b.Op("Expand", 0.0, b.Op("Shape", groupScores))
	mask := b.Op("ScatterElements", zeros, ids, b.Op("Expand", 1.0, b.Op("Shape", ids)), onnx.IntAttr("axis", 1))
	return b.Op("Reshape", b.Op("Expand", b.Op("Unsqueeze", mask, []int64{-1}), []int64{1, groups, experts / groups}),
		[]int64{-1, experts})
}

func (b *routerGraph) bools(v *onnx.Value) *onnx.Value { return b.cast(v, onnx.Bool) }

// maxGroups and top2Groups return scores of groups.
func (b *routerGraph) maxGroups(scores *onnx.Value, groups int64) *onnx.Value {
	return b.Op("ReduceMax", b.grouped(scores, groups), []int64{-1}, onnx.IntAttr("keepdims", 0))
}

func (b *routerGraph) top2Groups(scores *onnx.Value, groups int64) *onnx.Value {
	best, _ := b.topK(b.grouped(scores, groups), 2)
	return b.Op("ReduceSum", best, []int64{-1}, onnx.IntAttr("keepdims", 0))
}

// oneHot returns 1 at the chosen expert of tokens that go to one.
func (b *routerGraph) oneHot(id *onnx.Value) *onnx.Value {
	depth := b.Model.Graph.AddInitializer(onnx.NewInt64s("depth", []int64{experts}))
	return b.Op("OneHot", id, depth,
		b.Model.Graph.AddInitializer(onnx.NewFloat32s("values", []int64{2}, []float32{0, 1})))
}

// describe describes the result: the attributes of the op, or the status and the reason.
func describeRouter(m *onnx.Model, r *rewrite.Report) string {
	for _, n := range m.Graph.Nodes {
		if n.OpType != "TopKRouter" {
			continue
		}
		s := fmt.Sprintf("%s %s top %d", n.AttrString("order", ""), n.AttrString("score", ""), n.AttrInt("top_k", 0))
		if n.AttrInt("groups", 0) > 1 {
			s += fmt.Sprintf(", %d of %d groups by %s else %v", n.AttrInt("group_top_k", 0), n.AttrInt("groups", 0),
				n.AttrString("group_score", ""), n.AttrFloat("excluded_score", 1))
		}
		if len(n.Inputs) > 1 {
			s += ", bias"
		}
		if n.AttrInt("renormalize", 0) == 1 {
			s += fmt.Sprintf(", over sum + %g", n.AttrFloat("epsilon", -1))
		}
		return s + fmt.Sprintf(", times %g", n.AttrFloat("scale", 0))
	}
	for _, s := range r.Sites {
		if s.Pattern == "TopKRouter" {
			return s.Status + ": " + s.Reason
		}
	}
	return "none"
}

// checkRouter patches the model and, if it changed, compares it with the original.
func checkRouter(t *testing.T, b *routerGraph, want string) {
	t.Helper()
	inputs := map[string]*reference.Tensor{}
	shape, n := []int{4}, 4*hidden
	if rank := len(b.mustType(t).Dims); rank == 3 {
		shape, n = []int{2, 4}, 8*hidden
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = b.random.NormFloat64()
	}
	inputs["x"] = reference.NewFloats(b.typ, append(shape, hidden), v)
	before := b.run(t, inputs)
	report, err := rewrite.Apply(b.Model, rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyAll})
	if err != nil {
		t.Fatal(err)
	}
	if got := describeRouter(b.Model, report); got != want &&
		!(strings.HasSuffix(want, "…") && strings.HasPrefix(got, strings.TrimSuffix(want, "…"))) {
		t.Fatalf("the router is %q, want %q", got, want)
	}
	after := b.run(t, inputs)
	for name, x := range before {
		for i := range x.F {
			if y := after[name].F[i]; math.Abs(x.F[i]-y) > 1e-3*math.Max(1, math.Abs(x.F[i])) {
				t.Fatalf("%s[%d] is %v after patching, was %v", name, i, y, x.F[i])
			}
		}
	}
}

func (b *routerGraph) mustType(t *testing.T) onnx.Type {
	typ, ok := b.x.Type()
	if !ok {
		t.Fatal("x has no type")
	}
	return typ
}

func (b *routerGraph) run(t *testing.T, inputs map[string]*reference.Tensor) map[string]*reference.Tensor {
	t.Helper()
	e, err := reference.New(b.Model, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Run(inputs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
