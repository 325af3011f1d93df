package router_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/models"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// describe describes a routing by the ops that compute its values.
func describe(r *router.Routing) string {
	op := func(v *onnx.Value) string {
		if v == nil {
			return "-"
		}
		return v.Producer.OpType
	}
	return fmt.Sprintf("%d of %d: logits %s, ids %s, weights %s, gates %s", r.K, r.Experts, op(r.Logits), op(r.IDs),
		op(r.Weights), op(r.Dense))
}

// TestRoutingsOfExports finds one routing for each block of experts in real exports, and no routing in other models.
func TestRoutingsOfExports(t *testing.T) {
	want := map[string]string{
		"deepseek3-batched_mm-ts-fp32":  "2 of 4: logits MatMul, ids TopK, weights Mul, gates -",
		"gptoss-batched_mm-dynamo-fp32": "2 of 4: logits Gemm, ids TopK, weights Softmax, gates -",
		"mixtral-batched_mm-ts-fp16":    "2 of 4: logits MatMul, ids TopK, weights Div, gates -",
		"moe-masks-dynamo-fp32":         "2 of 6: logits Gemm, ids TopK, weights Div, gates -",
		"moe-switch-ts-fp32":            "1 of 6: logits MatMul, ids ArgMax, weights ReduceMax, gates -",
	}
	truths, err := models.ReadTruth("../../models")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("../../models/*.onnx")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".onnx")
		m, err := onnx.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		facts := infer.Analyze(m)
		var got []*router.Routing
		for _, g := range m.Graphs() {
			got = append(got, router.All(match.New(g, facts, nil))...)
		}
		if truth, ok := truths[name]; ok && truth.Router != len(got) {
			t.Errorf("%s: %d routings, want %d", name, len(got), truth.Router)
		}
		for _, r := range got {
			if w := want[name]; w != "" && describe(r) != w {
				t.Errorf("%s: %s, want %s", name, describe(r), w)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// choices is a graph with choices of experts.
type choices struct{ *onnxtest.Builder }

// choose adds a router to the graph: the softmax of the product of x [tokens, 8] with a weight, and its k best of 8.
func (g *choices) choose(k int64) (scores, values, ids *onnx.Value) {
	w := g.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{8, 8}, make([]float32, 64)))
	scores = g.Op("Softmax", g.Op("MatMul", g.Input("x", onnx.Float, "tokens", 8), w))
	values, ids = g.topK(scores, k)
	return scores, values, ids
}

func (g *choices) topK(v *onnx.Value, k int64) (values, ids *onnx.Value) {
	values, ids = g.Graph.NewValue("values"), g.Graph.NewValue("ids")
	n := g.Graph.AddInitializer(onnx.NewInt64s("k", []int64{k}))
	g.Graph.AddNode("TopK", []*onnx.Value{v, n}, []*onnx.Value{values, ids})
	return values, ids
}

// routings returns the routings found if the values are outputs.
func (g *choices) routings(outputs ...*onnx.Value) string {
	for _, v := range outputs {
		g.Graph.AddOutput(v)
	}
	var list []string
	for _, r := range router.All(match.New(g.Graph, infer.Analyze(g.Model), nil)) {
		list = append(list, describe(r))
	}
	return strings.Join(list, "; ")
}

// expert returns an expert's result for x, one number for each token.
func (g *choices) expert(x *onnx.Value) *onnx.Value {
	return g.Op("MatMul", x, g.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{8, 1}, make([]float32, 8))))
}

// The sources of the experts' weights.
func TestRoutingWeights(t *testing.T) {
	tests := map[string]struct {
		build func(g *choices) []*onnx.Value
		want  string
	}{
		"one mask for each expert": {func(g *choices) []*onnx.Value {
			_, w, ids := g.choose(2)
			w = g.Op("Div", w, g.Op("ReduceSum", w, []int64{-1}))
			var sum []*onnx.Value
			for e := range int64(3) {
				mask := g.Op("Cast", g.Op("Equal", ids, []int64{e}), onnx.IntAttr("to", int64(onnx.Float)))
				one := g.Op("ReduceSum", g.Op("Mul", w, mask), []int64{-1})
				sum = append(sum, g.Op("Mul", g.expert(g.Graph.Inputs[0]), one))
			}
			return sum
		}, "2 of 8: logits MatMul, ids TopK, weights Div, gates -"},
		"a mask of them all": {func(g *choices) []*onnx.Value {
			_, w, ids := g.choose(2)
			w = g.Op("Where", g.Op("Less", w, 0.1), 0.0, w)
			hot := g.Op("OneHot", ids, []int64{8},
				g.Graph.AddInitializer(onnx.NewFloat32s("v", []int64{2}, []float32{0, 1})))
			return []*onnx.Value{g.Op("MatMul", g.Op("Unsqueeze", w, []int64{1}), hot)}
		}, "2 of 8: logits MatMul, ids TopK, weights Where, gates -"},
		"a loss of the weights": {func(g *choices) []*onnx.Value {
			_, w, ids := g.choose(2)
			loss := g.Op("ReduceSum", g.Op("Log", w), []int64{0, 1})
			gates := g.Op("ScatterElements", g.Op("Expand", 0.0, g.Op("Shape", g.expertsOf(8))), ids,
				g.Op("Mul", w, 2.0), onnx.IntAttr("axis", 1))
			return []*onnx.Value{loss, g.Op("Mul", gates, g.expertsOf(8))}
		}, "2 of 8: logits MatMul, ids TopK, weights Mul, gates -"},
		"gates that are activated": {func(g *choices) []*onnx.Value {
			_, w, ids := g.choose(2)
			gates := g.Op("Sigmoid", g.Op("ScatterElements", g.Op("Expand", -1e9, g.Op("Shape", g.expertsOf(8))), ids,
				w, onnx.IntAttr("axis", 1)))
			return []*onnx.Value{g.Op("Mul", gates, g.expertsOf(8))}
		}, "2 of 8: logits MatMul, ids TopK, weights -, gates Sigmoid"},
		"gates that are cast": {func(g *choices) []*onnx.Value {
			_, w, ids := g.choose(2)
			half := onnx.IntAttr("to", int64(onnx.Float16))
			gates := g.Op("Sigmoid", g.Op("ScatterElements", g.Op("Expand", -1e9, g.Op("Shape", g.expertsOf(8))), ids,
				w, onnx.IntAttr("axis", 1)))
			return []*onnx.Value{g.Op("Mul", g.Op("Cast", gates, half), g.Op("Cast", g.expertsOf(8), half))}
		}, "2 of 8: logits MatMul, ids TopK, weights -, gates Cast"},
		"one after the other": {func(g *choices) []*onnx.Value {
			scores, w, ids := g.choose(1)
			rest := g.Op("ScatterElements", scores, ids, g.Op("Expand", 0.0, g.Op("Shape", ids)),
				onnx.IntAttr("axis", 1))
			w2, ids2 := g.topK(rest, 1)
			both := g.Op("Concat", ids, ids2, onnx.IntAttr("axis", 1))
			blocks := g.Op("Gather",
				g.Graph.AddInitializer(onnx.NewFloat32s("b", []int64{8, 8, 1}, make([]float32, 64))), both)
			out := g.Op("MatMul", g.Op("Unsqueeze", g.Op("Unsqueeze", g.Graph.Inputs[0], []int64{1}), []int64{1}),
				blocks)
			weights := g.Op("Concat", w, w2, onnx.IntAttr("axis", -1))
			return []*onnx.Value{g.Op("Mul", g.Op("Squeeze", out, []int64{2, 3}), weights)}
		}, "2 of 8: logits MatMul, ids Concat, weights Concat, gates -"},
		"words": {func(g *choices) []*onnx.Value {
			_, w, ids := g.choose(2)
			return []*onnx.Value{
				w, g.Op("Gather", g.Graph.AddInitializer(onnx.NewFloat32s("table", []int64{8, 8}, make([]float32, 64))),
					ids)}
		}, ""},
		"an end of the sequence": {func(g *choices) []*onnx.Value {
			_, _, ids := g.choose(1)
			return []*onnx.Value{g.Op("Equal", ids, []int64{3})}
		}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := &choices{onnxtest.New(20)}
			if got := g.routings(tt.build(g)...); got != tt.want {
				t.Errorf("routings %q, want %q", got, tt.want)
			}
		})
	}
}

// expertsOf returns the outputs of n experts for each token, one number each.
func (g *choices) expertsOf(n int64) *onnx.Value {
	return g.Op("MatMul", g.Graph.Inputs[0],
		g.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{8, n}, make([]float32, 8*n))))
}
