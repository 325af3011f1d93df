package probe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

type (
	builder = *onnxtest.Builder
	value   = *onnx.Value
	// weights adds a weight of ones.
	weights = func(dims ...int64) value
	writer  = func(b builder, x value, w weights) value
)

// TestRunner reads products with weights. Channel c of token t and matrix e of a result becomes t*e*c, all counted from
// 1: the result of a region shows which of them it contains.
func TestRunner(t *testing.T) {
	for name, c := range map[string]struct {
		write writer
		want  string
	}{
		"a matrix": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, w(4, 5))
		}, "0: w+0 4x5 by 5,1; 15"},
		"turned": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, b.Op("Transpose", w(5, 4), onnx.IntsAttr("perm", []int64{1, 0})))
		}, "0: w+0 4x5 by 1,4; 15"},
		"on the left": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", w(5, 4), b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{1, 0})))
		}, "0: w+0 4x5 by 1,4; 15"},
		"experts": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, w(2, 4, 5))
		}, "0: w+20 4x5 by 5,1; 30"},
		"experts, and a bias": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("MatMul", x, w(2, 4, 5)), w(2, 1, 5))
		}, "0: w+20 4x5 by 5,1 bias w_1+5 1x5 by 0,1; 30"},
		"a bias of tokens": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("MatMul", x, w(4, 5)), w(3, 1))
		}, "0: w+0 4x5 by 5,1; 16"},
		"Gemm": {func(b builder, x value, w weights) value {
			return b.Op("Gemm", x, w(5, 4), w(5), onnx.IntAttr("transB", 1))
		}, "0: w+0 4x5 by 1,4 bias w_1+0 1x5 by 0,1; 15"},
		"Einsum": {func(b builder, x value, w weights) value {
			return b.Op("Einsum", x, w(2, 5, 4), onnx.StringAttr("equation", "tk, eck -> tec"))
		}, "0: w+20 4x5 by 1,4; 30"},
		"a sum of experts": {func(b builder, x value, w weights) value {
			ones := b.Op("Gather", b.Op("Div", x, x), []int64{0, 1}, onnx.IntAttr("axis", 1))
			return b.Op("Einsum", x, w(2, 5, 4), ones, onnx.StringAttr("equation", "tk,eck,te->tc"))
		}, "0: w+20 4x5 by 1,4; 45"},
		"tokens last": {func(b builder, x value, w weights) value {
			return b.Op("Einsum", x, w(2, 4, 5), onnx.StringAttr("equation", "tk,ekc->ect"))
		}, "0: w+20 4x5 by 5,1; 30"},
		"a vector": {func(b builder, x value, w weights) value {
			row := b.Op("Squeeze", b.Op("Slice", x, b.Ints(2), b.Ints(3), b.Ints(0)), b.Ints(0))
			return b.Op("MatMul", row, w(4, 5))
		}, "0: w+0 4x5 by 5,1; 15"},
		"one matrix for a batch": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", b.Op("Unsqueeze", x, b.Ints(1)), w(1, 4, 5))
		}, "0: w+0 4x5 by 5,1; 15"},
		"Gemm without its bias": {func(b builder, x value, w weights) value {
			return b.Op("Gemm", x, w(4, 5), w(5), onnx.FloatAttr("beta", 0))
		}, "0: w+0 4x5 by 5,1; 15"},
		"Gemm with another factor": {func(b builder, x value, w weights) value {
			return b.Op("Gemm", x, w(4, 5), w(5), onnx.FloatAttr("alpha", 2))
		}, "; 25"},
		"Gemm with a part of a bias": {func(b builder, x value, w weights) value {
			return b.Op("Gemm", x, w(4, 5), w(5), onnx.FloatAttr("beta", 0.5))
		}, "; 12.5"},
		"Gemm of turned data": {func(b builder, x value, w weights) value {
			turned := b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{1, 0}))
			return b.Op("Gemm", turned, w(4, 5), onnx.IntAttr("transA", 1))
		}, "0: w+0 4x5 by 5,1; 15"},
		"a bias after a transposition": {func(b builder, x value, w weights) value {
			turned := b.Op("Transpose", b.Op("MatMul", x, w(4, 5)), onnx.IntsAttr("perm", []int64{1, 0}))
			return b.Op("Add", turned, w(5, 1))
		}, "0: w+0 4x5 by 5,1 bias w_1+0 1x5 by 0,1; 15"},
		"no bias after an activation": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("Relu", b.Op("MatMul", x, w(4, 5))), w(5))
		}, "0: w+0 4x5 by 5,1; 16"},
		"no bias of more axes": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("MatMul", x, w(4, 5)), w(2, 1, 5))
		}, "0: w+0 4x5 by 5,1; 16"},
		"a second bias": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("Add", b.Op("MatMul", x, w(4, 5)), w(5)), w(5))
		}, "0: w+0 4x5 by 5,1 bias w_1+0 1x5 by 0,1; 16"},
		"a bias of two products": {func(b builder, x value, w weights) value {
			two := b.Op("Concat", b.Op("MatMul", x, w(4, 5)), b.Op("MatMul", x, w(4, 5)), onnx.IntAttr("axis", 0))
			return b.Op("Add", two, w(5))
		}, "0: w+0 4x5 by 5,1 bias w_2+0 1x5 by 0,1 1: w_1+0 4x5 by 5,1 bias w_2+0 1x5 by 0,1; 15"},
		"a bias of each of two products": {func(b builder, x value, w weights) value {
			two := b.Op("Concat", b.Op("MatMul", x, w(4, 5)), b.Op("MatMul", x, w(4, 5)), onnx.IntAttr("axis", 0))
			both := b.Op("Add", b.Op("Reshape", two, b.Ints(2, 3, 5)), w(2, 1, 5))
			return both
		}, "bias w_2+0 1x5 by 0,1 1: w_1+0 4x5 by 5,1 bias w_2+5 1x5 by 0,1; 15"},
		"a bias of two turned products": {func(b builder, x value, w weights) value {
			turned := func() value {
				return b.Op("Transpose", b.Op("MatMul", x, w(4, 3)), onnx.IntsAttr("perm", []int64{1, 0}))
			}
			return b.Op("Add", b.Op("Concat", turned(), turned(), onnx.IntAttr("axis", 0)), w(3))
		}, "0: w+0 4x3 by 3,1 1: w_1+0 4x3 by 3,1; 10"},
		"a weight that is multiplied with the data first": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", b.Op("Add", x, b.Op("Mul", x, w(4))), w(4, 5))
		}, "0: w_1+0 4x5 by 5,1; 30"}, // of x + 1*x
		"channels with other weights": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", b.Op("Mul", x, b.Floats([]int64{4}, 1, 1, 1, 2)), w(4, 5))
		}, "the channels of a token or of an expert are weighted one by one"},
		"a stacked weight that is stored twice": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("MatMul", x, w(2, 4, 5)), b.Op("MatMul", x, w(2, 4, 5)))
		}, "0: w+20 4x5 by 5,1 1: w+20 4x5 by 5,1; 60"},
		"two weights with equal numbers": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("MatMul", x, w(4, 5)), b.Op("MatMul", x, w(4, 5)))
		}, "0: w+0 4x5 by 5,1 1: w_1+0 4x5 by 5,1; 30"},
		"a diagonal": {func(b builder, x value, w weights) value {
			return b.Op("Einsum", x, w(4, 4), onnx.StringAttr("equation", "tk,kk->tk"))
		}, "; 3"},
		"two in a row": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", b.Op("Relu", b.Op("MatMul", x, w(4, 5))), w(5, 2))
		}, "0: w+0 4x5 by 5,1 1: w_1+0 5x2 by 2,1 of [1 2 3 4 5]; 0"},
		"two in a row, weighted": {func(b builder, x value, w weights) value {
			ones := b.Op("Gather", b.Op("Div", x, x), []int64{0, 1}, onnx.IntAttr("axis", 1))
			h := b.Op("Relu", b.Op("MatMul", x, w(4, 5)))
			return b.Op("Einsum", h, w(2, 5, 3), ones, onnx.StringAttr("equation", "tc,ecd,te->td"))
		}, "1: w_1+15 5x3 by 3,1 of [1 2 3 4 5]; 0"},
		"sizes of a product": {func(b builder, x value, w weights) value {
			y := b.Op("MatMul", x, w(4, 5))
			rows := b.Op("Min", b.Op("Slice", b.Op("Shape", y), b.Ints(0), b.Ints(1)), b.Op("Size", y))
			z := b.Op("Reshape", x, b.Op("Concat", rows, b.Ints(4), onnx.IntAttr("axis", 0)))
			return b.Op("MatMul", z, w(4, 2))
		}, "1: w_1+0 4x2 by 2,1; 6"},
		"three in a row": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", b.Op("MatMul", b.Op("MatMul", x, w(4, 5)), w(5, 2)), w(2, 2))
		}, "an expert has more than two products in a row"},
	} {
		if got := products(nil, c.write); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestFormsOfProducts reads products in less usual forms. Products that are not understood are computed.
func TestFormsOfProducts(t *testing.T) {
	einsum := func(equation string, b builder, in ...any) value {
		return b.Op("Einsum", append(in, onnx.StringAttr("equation", equation))...)
	}
	ones := func(b builder, x value) value {
		return b.Op("Gather", b.Op("Div", x, x), []int64{0, 1}, onnx.IntAttr("axis", 1))
	}
	at := func(b builder, x value, axes ...int64) value { return b.Op("Unsqueeze", x, b.Ints(axes...)) }
	for name, c := range map[string]struct {
		write writer
		want  string
	}{
		"experts of one row of tokens": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", at(b, x, 0), w(2, 4, 5))
		}, "0: w+20 4x5 by 5,1; 30"},
		"experts below a batch": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", at(b, x, 1, 2), w(1, 2, 4, 5))
		}, "0: w+20 4x5 by 5,1; 30"},
		"one matrix without a batch": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, w(1, 4, 5))
		}, "0: w+0 4x5 by 5,1; 15"},
		"an expanded matrix": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, b.Op("Expand", w(4, 5), b.Ints(2, 1, 1)))
		}, "0: w+0 4x5 by 5,1; 30"},
		"two weights side by side": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, b.Op("Concat", w(4, 2), w(4, 3), onnx.IntAttr("axis", 1)))
		}, "0: in several places; 15"},
		"a weight beside data": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, b.Op("Concat", b.Op("Transpose", x), w(4, 3), onnx.IntAttr("axis", 1)))
		}, "; 12"},
		"a sum over data of experts": {func(b builder, x value, w weights) value {
			two := b.Op("Concat", at(b, x, 0), at(b, b.Op("Add", x, x), 0), onnx.IntAttr("axis", 0))
			return einsum("etk,ekc->tc", b, two, w(2, 4, 5))
		}, "0: w+20 4x5 by 5,1; 75"}, // 3*5 + 6*2*5
		"a vector as the weight": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, w(4))
		}, "; 12"},
		"no common axis": {func(b builder, x value, w weights) value {
			return einsum("tk,ec->tkec", b, x, w(4, 5))
		}, "; 3"},
		"a sum of the weight": {func(b builder, x value, w weights) value {
			return einsum("tk,kce->tc", b, x, w(4, 5, 2))
		}, "; 24"},
		"one weight": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, einsum("ck->kc", b, w(5, 4)))
		}, "; 12"},
		"a product of weights": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, b.Op("MatMul", w(4, 3), w(3, 5)))
		}, "; 36"},
		"a product with a number": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, b.Op("MatMul", w(4, 1), b.Floats([]int64{1, 1}, 2)))
		}, "; 24"},
		"two weights": {func(b builder, x value, w weights) value {
			return einsum("tk,kc,cd->td", b, x, w(4, 5), w(5, 2))
		}, "; 60"},
		"a factor": {func(b builder, x value, w weights) value {
			return einsum("tk,kc,s->tc", b, x, w(4, 5), b.Floats([]int64{1}, 2))
		}, "; 24"},
		"an implicit result": {func(b builder, x value, w weights) value {
			return einsum("tk,kc", b, x, w(4, 5))
		}, "; 12"},
		"an implicit result of three": {func(b builder, x value, w weights) value {
			return einsum("tk,ekc,te", b, x, w(2, 4, 5), ones(b, x))
		}, "; 48"}, // (1 + 2 + 3) * 4 * (1 + 1)
		"a weight of other axes": {func(b builder, x value, w weights) value {
			return einsum("tk,ekc->tec", b, x, w(4, 5))
		}, "Einsum"},
		"data of other axes": {func(b builder, x value, w weights) value {
			return einsum("bk,kc->bc", b, at(b, x, 0), w(4, 5))
		}, "Einsum"},
		"another height": {func(b builder, x value, w weights) value {
			return einsum("tk,kc->tc", b, x, w(3, 5))
		}, "Einsum"},
		"another height of turned data": {func(b builder, x value, w weights) value {
			return einsum("kt,kc->tc", b, x, w(4, 5))
		}, "Einsum"},
		"in a branch": {func(b builder, x value, w weights) value {
			matrix, other := w(4, 5), b.Input("other", onnx.Float, 3, 5)
			branch := func(op string, in ...any) *onnx.Attribute {
				g := b.Graph.NewSubgraph(op)
				g.AddOutput((&onnxtest.Builder{Model: b.Model, Graph: g}).Op(op, in...))
				return onnx.GraphAttr(map[string]string{"MatMul": "then_branch", "Abs": "else_branch"}[op], g)
			}
			n := b.Op("ReduceSum", x, onnx.IntAttr("keepdims", 0))
			return b.Op("If", b.Op("Greater", n, b.Floats(nil, 1)), branch("MatMul", x, matrix), branch("Abs", other))
		}, "0: w+0 4x5 by 5,1; 15"},
		"in a function": {func(b builder, x value, w weights) value {
			f := onnx.NewFunction("local", "product", "", 20)
			body := &onnxtest.Builder{Model: b.Model, Graph: f.Body}
			f.Body.AddOutput(body.Op("MatMul", f.Body.AddInput("a", onnx.Type{}), f.Body.AddInput("b", onnx.Type{})))
			b.Model.Functions = append(b.Model.Functions, f)
			b.Model.ImportOpset("local", 1)
			return b.Op("local:product", x, w(4, 5))
		}, "0: w+0 4x5 by 5,1; 15"},
		"Gemm with a bias of zero": {func(b builder, x value, w weights) value {
			return b.Op("Gemm", x, w(4, 5), b.Floats([]int64{1}, 0))
		}, "0: w+0 4x5 by 5,1; 15"},
		"Gemm with one number as its bias": {func(b builder, x value, w weights) value {
			return b.Op("Gemm", x, w(4, 5), b.Floats([]int64{1}, 2))
		}, "; 14"},
		"Gemm with a bias that does not fit": {func(b builder, x value, w weights) value {
			return b.Op("Gemm", x, w(4, 5), w(4))
		}, "Gemm"},
		"a bias of two numbers": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("MatMul", x, w(4, 2)), w(2))
		}, "bias w_1+0 1x2 by 0,1; 6"},
		"one number as a bias": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("MatMul", x, w(4, 5)), w(1))
		}, "0: w+0 4x5 by 5,1; 16"},
		"one bias as a number": {func(b builder, x value, w weights) value {
			one := b.Op("MatMul", b.Op("Slice", x, b.Ints(2), b.Ints(3)), w(4, 2))
			return b.Op("Add", b.Op("Slice", one, b.Ints(0), b.Ints(1), b.Ints(1)), w(2))
		}, "0: w+0 4x2 by 2,1; 4"},
		"a bias of a picked row": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("Gather", b.Op("MatMul", x, w(4, 5)), b.Ints(2, 2, 0)), w(5))
		}, "0: w+0 4x5 by 5,1; 6"},
		"a bias of a part": {func(b builder, x value, w weights) value {
			n := b.Op("Split", b.Op("MatMul", x, w(4, 6)), b.Ints(3, 3), onnx.IntAttr("axis", 1)).Producer
			n.Outputs = append(n.Outputs, b.Graph.NewValue("part"))
			return b.Op("Add", n.Outputs[0], w(3))
		}, "0: w+0 4x6 by 6,1; 10"},
		"a bias of expanded rows": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("Expand", b.Op("MatMul", x, w(4, 5)), b.Ints(2, 1, 1)), w(5))
		}, "0: w+0 4x5 by 5,1; 16"},
		"a bias of wider rows": {func(b builder, x value, w weights) value {
			return b.Op("Add", b.Op("Concat", x, b.Op("MatMul", x, w(4, 5)), onnx.IntAttr("axis", 1)), w(9))
		}, "0: w+0 4x5 by 5,1; 16"},
		"a bias of a product and other rows": {func(b builder, x value, w weights) value {
			two := b.Op("Concat", b.Op("MatMul", x, w(4, 4)), x, onnx.IntAttr("axis", 0))
			return b.Op("Add", two, w(4))
		}, "0: w+0 4x4 by 4,1; 4"},
		"a great weight that is added": {func(b builder, x value, w weights) value {
			return b.Op("Relu", w(maxRead+1))
		}, "a weight is repeated to [1048577]"},
		"the size of a great weight": {func(b builder, x value, w weights) value {
			n := b.Op("Gather", b.Op("Shape", b.Op("Identity", w(2, maxRead))), b.Ints(0))
			return b.Op("Mul", x, b.Op("Cast", n, onnx.IntAttr("to", int64(onnx.Float))))
		}, "; 6"},
	} {
		if got := products(nil, c.write); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestRunnerWithoutSteps: a run ends when the budget is spent.
func TestRunnerWithoutSteps(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, 3, 4)
	y := b.Op("MatMul", x, b.Floats([]int64{4, 5}, make([]float32, 20)...))
	g := match.New(b.Graph, infer.Analyze(b.Model), nil)
	for _, steps := range []int{nodeSteps + 12, nodeSteps + 13} { // more than the elements that the node reads
		budget := g.Budget(fmt.Sprint(steps), match.Limits{Each: steps, Shares: 1})
		budget.Begin(y.Producer)
		r := NewRunner(g, budget)
		r.Fill = func(*Product, *reference.Tensor) error { return nil }
		_, err := r.Run(y, nil, Values{x: reference.NewFloats(onnx.Float, []int{3, 4}, make([]float64, 12))})
		if (err != nil) != (steps == nodeSteps+12) {
			t.Errorf("%d steps: %v", steps, err)
		}
	}
}

// TestParts reads matrices that consist of several ones, as further matrices.
func TestParts(t *testing.T) {
	for name, c := range map[string]struct {
		parts Parts
		write writer
		want  string
	}{
		"side by side": {Parts{Out: 2}, func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, w(4, 6))
		}, "0: w+3 4x3 by 6,1; 18"}, // 3 * 2 * 3
		"side by side with a bias": {Parts{Out: 2}, func(b builder, x value, w weights) value {
			return b.Op("Gemm", x, w(6, 4), w(6), onnx.IntAttr("transB", 1))
		}, "0: w+12 4x3 by 1,4 bias w_1+3 1x3 by 0,1; 18"},
		"below each other": {Parts{In: 2}, func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, w(4, 6))
		}, "0: w+12 2x6 by 6,1; 54"}, // 3 * (1 + 2) * 6
		"both": {Parts{Out: 3, In: 2}, func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, w(4, 6))
		}, "0: w+16 2x2 by 6,1; 66"}, // 3 * (5 + 6) * 2: of each three, one is below the other
		"experts of two": {Parts{Out: 2}, func(b builder, x value, w weights) value {
			return b.Op("Einsum", x, w(2, 4, 6), onnx.StringAttr("equation", "tk,ekc->tec"))
		}, "0: w+27 4x3 by 6,1; 36"}, // 3 * 4 * 3
		"experts of two, tokens last": {Parts{Out: 2}, func(b builder, x value, w weights) value {
			return b.Op("Einsum", x, w(2, 4, 6), onnx.StringAttr("equation", "tk,ekc->ect"))
		}, "0: w+27 4x3 by 6,1; 36"},
		"below each other, experts of data last": {Parts{In: 2}, func(b builder, x value, w weights) value {
			column := b.Op("Unsqueeze", x, b.Ints(2))
			data := b.Op("Concat", column, column, onnx.IntAttr("axis", 2))
			return b.Op("Einsum", data, w(2, 4, 6), onnx.StringAttr("equation", "tke,ekc->tec"))
		}, "0: w+36 2x6 by 6,1; 126"},
		"added experts below each other": {Parts{In: 2}, func(b builder, x value, w weights) value {
			return b.Op("Einsum", x, w(2, 4, 6), onnx.StringAttr("equation", "tk,ekc->tec"))
		}, "0: w+36 2x6 by 6,1; 126"}, // 3 * (3 + 4) * 6
		"not equal": {Parts{Out: 4}, func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, w(4, 6))
		}, "a matrix that is not made of 4 equal ones"},
		"not equal below each other": {Parts{In: 3}, func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, w(4, 6))
		}, "a matrix that is not made of 3 equal ones"},
	} {
		if got := products(map[int]Parts{0: c.parts}, c.write); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// products runs a region on three tokens of ones, twos and threes, and describes its products by their last matrices,
// and the last element of the result.
func products(parts map[int]Parts, write writer) string {
	describe := func(m *Matrix) string {
		if m.Source == nil {
			return "in several places"
		}
		return fmt.Sprintf("%s+%d %dx%d by %d,%d", m.Source.Name, m.Offset, m.In, m.Out, m.ByIn, m.ByOut)
	}

	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, 3, 4)
	y := write(b, x, func(dims ...int64) *onnx.Value {
		ones := slices.Repeat([]float32{1}, int(match.Elements(dims)))
		return b.Graph.AddInitializer(onnx.NewFloat32s("w", dims, ones))
	})
	b.Output(y)
	g := match.New(b.Graph, infer.Analyze(b.Model), nil)
	r := NewRunner(g, g.Budget("test", match.Limits{Each: 1 << 20, Reserve: 1 << 20, Shares: 1}))
	r.Parts = parts
	var list []*Product
	r.Fill = func(p *Product, out *reference.Tensor) error {
		list = append(list, p)
		return p.EachSum(func(row Row, place int, x float64) error {
			row.Add(out, func(channel int) float64 { return x * float64((place+1)*(channel+1)) })
			return nil
		})
	}
	r.Answer = func(p *Product, _ *reference.Tensor) error { list = append(list, p); return nil }
	tokens := reference.NewFloats(onnx.Float, []int{3, 4}, []float64{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3})
	out, err := r.Run(y, nil, Values{x: tokens})
	var got []string
	for _, p := range list {
		text := fmt.Sprintf("%d: %s", p.Number, describe(p.Matrix(p.Places()-1)))
		if m := p.BiasAt(p.Places() - 1); m != nil {
			text += " bias " + describe(m)
		}
		for _, f := range p.First {
			text += fmt.Sprintf(" of %g", f.Row)
		}
		got = append(got, text)
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s; %g", strings.Join(got, " "), out.F[len(out.F)-1])
}
