package router_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/router"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// deepSeek builds routers like DeepSeek-V3's: a corrected choice of 8 of 256 experts, from 4 of 8 groups, for a fixed
// or open number of tokens.
func deepSeek(tokens int64, layers int) *match.View {
	const experts, groups, hidden = 256, 8, 4
	b := onnxtest.New(20)
	rows := onnx.Dim{Value: tokens}
	if tokens < 0 {
		rows.Param = "tokens"
	}
	x := b.Model.Graph.AddInput("x", onnx.Type{DataType: onnx.Float, HasShape: true,
		Dims: []onnx.Dim{rows, {Value: hidden}}})
	weight := func(dims ...int64) *onnx.Value {
		v := make([]float32, match.Elements(dims))
		for i := range v {
			v[i] = float32(i%7) - 3
		}
		return b.Model.Graph.AddInitializer(onnx.NewFloat32s("w", dims, v))
	}
	last, no := onnx.IntAttr("axis", -1), onnx.IntAttr("keepdims", 0)
	for range layers {
		s := b.Op("Sigmoid", b.Op("MatMul", x, weight(hidden, experts)))
		c := b.Op("Add", s, weight(experts))
		grouped := b.Op("Reshape", c, []int64{-1, groups, experts / groups})
		best := b.Op("ReduceSum", b.Ops(2, "TopK", grouped, []int64{2})[0], []int64{-1}, no)
		group := b.Ops(2, "TopK", best, []int64{4})[1]
		mask := b.Op("ScatterElements", b.Op("Expand", 0.0, b.Op("Shape", best)), group,
			b.Op("Expand", 1.0, b.Op("Shape", group)), last)
		mask = b.Op("Reshape", b.Op("Expand", b.Op("Unsqueeze", mask, []int64{-1}),
			[]int64{1, groups, experts / groups}), []int64{-1, experts})
		kept := b.Op("Where", b.Op("Cast", mask, onnx.IntAttr("to", int64(onnx.Bool))), c, math.Inf(-1))
		ids := b.Ops(2, "TopK", kept, []int64{8})[1]
		w := b.Op("GatherElements", s, ids, last)
		w = b.Op("Mul", b.Op("Div", w, b.Op("Add", b.Op("ReduceSum", w, []int64{-1}), 1e-20)), 2.5)
		one := b.Op("ReduceSum", b.Op("Gather", weight(experts, 2, 2), ids), []int64{-1, -2}, no)
		b.Model.Graph.AddOutput(b.Op("Mul", w, one))
	}
	return match.New(b.Model.Graph, infer.Analyze(b.Model), nil)
}

// Many experts are read as fast as few, layers as one, for any number of tokens.
func TestManyExperts(t *testing.T) {
	for _, tokens := range []int64{-1, 1, 512} {
		g := deepSeek(tokens, 4)
		start := time.Now()
		for _, r := range router.All(g) {
			found, why := router.Read(g, r)
			if found == nil {
				t.Fatalf("%d tokens: %v", tokens, why)
			}
			var got []string
			for _, a := range found.Op().Attributes() {
				got = append(got, fmt.Sprint(a.Name, "=", a.Int, a.Float, a.String))
			}
			if want := "top_k=8 0 score=0 0sigmoid order=0 0score_first groups=8 0 group_top_k=4 0 " +
				"group_score=0 0top2_sum excluded_score=0 -Inf renormalize=1 0 epsilon=0 1e-20 scale=0 2.5"; strings.
				Join(got, " ") != want {
				t.Errorf("%d tokens: %s", tokens, strings.Join(got, " "))
			}
			if found.Gives != r.Weights || found.Bias == nil || found.Routing != r || found.Logits != r.Logits {
				t.Errorf("%d tokens: the op has other inputs or outputs than the router", tokens)
			}
		}
		t.Logf("%d tokens: %v", tokens, time.Since(start))
	}
}

// A routing that is too large to run is refused before the run.
func TestTooManyTokens(t *testing.T) {
	g := deepSeek(1<<20, 1)
	for _, r := range router.All(g) {
		found, why := router.Read(g, r)
		if found != nil || !strings.Contains(why.Error(), "elements") {
			t.Errorf("%v", why)
		}
	}
}

// Steps after the weights that show only with many tokens, or with one expert, stay after the op.
func TestWhatStaysBehind(t *testing.T) {
	const experts = 64
	factors := map[string]func(b *onnxtest.Builder, ids *onnx.Value) *onnx.Value{
		"a capacity": func(b *onnxtest.Builder, ids *onnx.Value) *onnx.Value {
			numbers := make([]int64, experts)
			for e := range numbers {
				numbers[e] = int64(e)
			}
			hot := b.Op("Cast", b.Op("Equal", ids, numbers), onnx.IntAttr("to", int64(onnx.Float)))
			axis := b.Model.Graph.AddInitializer(onnx.NewInt64s("axis", []int64{0}))
			place := b.Op("ReduceMax", b.Op("Mul", b.Op("CumSum", hot, axis), hot), []int64{-1})
			return b.Op("Where", b.Op("Greater", place, 5000.0), 0.0, 1.0)
		},
		"a factor of one expert": func(b *onnxtest.Builder, ids *onnx.Value) *onnx.Value {
			return b.Op("Where", b.Op("Equal", ids, []int64{41}), 2.0, 1.0)
		},
		"a factor of late tokens": func(b *onnxtest.Builder, ids *onnx.Value) *onnx.Value {
			first := func(x int64) *onnx.Value {
				return b.Op("Squeeze", b.Op("Add", []int64{x}, []int64{0}))
			}
			rows := b.Op("Squeeze", b.Op("Slice", b.Op("Shape", ids), []int64{0}, []int64{1}))
			late := b.Op("Greater", b.Op("Range", first(0), rows, first(1)), []int64{5000})
			return b.Op("Unsqueeze", b.Op("Where", late, 2.0, 1.0), []int64{1})
		},
	}
	for name, factor := range factors {
		b := onnxtest.New(20)
		x := b.Model.Graph.AddInput("x", onnx.Type{DataType: onnx.Float, HasShape: true,
			Dims: []onnx.Dim{{Value: -1, Param: "tokens"}, {Value: 4}}})
		weight := b.Model.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{4, experts}, make([]float32, 4*experts)))
		out := b.Ops(2, "TopK", b.Op("Softmax", b.Op("MatMul", x, weight), onnx.IntAttr("axis", -1)), []int64{1})
		last := b.Op("Mul", out[0], factor(b, out[1]))
		e := b.Model.Graph.AddInitializer(onnx.NewFloat32s("e", []int64{experts, 2, 2}, make([]float32, 4*experts)))
		b.Model.Graph.AddOutput(b.Op("Mul", b.Op("Unsqueeze", last, []int64{-1}), b.Op("Gather", e, out[1])))
		g := match.New(b.Model.Graph, infer.Analyze(b.Model), nil)
		list := router.All(g)
		if len(list) != 1 || list[0].Weights != last {
			t.Fatalf("%s: %d routings", name, len(list))
		}
		if found, why := router.Read(g, list[0]); found == nil || found.Gives != out[0] {
			t.Errorf("%s: the op computes other weights than those before: %v", name, why)
		}
	}
}
