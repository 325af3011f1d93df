package probe

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
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
		"a product with a number": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", x, b.Op("MatMul", w(4, 1), b.Floats([]int64{1, 1}, 2)))
		}, "; 24"},
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
		"a bias of a part": {func(b builder, x value, w weights) value {
			n := b.Op("Split", b.Op("MatMul", x, w(4, 6)), b.Ints(3, 3), onnx.IntAttr("axis", 1)).Producer
			n.Outputs = append(n.Outputs, b.Graph.NewValue("part"))
			return b.Op("Add", n.Outputs[0], w(3))
		}, "0: w+0 4x6 by 6,1; 10"},
	} {
		if got := products(nil, c.write); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestProducts reads products in graphs of one expression. A product that is not understood is computed.
func TestProducts(t *testing.T) {
	for _, c := range [][2]string{
		{`MatMul(x, w(4, 5))`, "0: w+0 4x5 by 5,1; 15"},
		{`Add(Concat(Transpose(MatMul(x, w(4, 3)), perm(1, 0)), Transpose(MatMul(x, w(4, 3)), perm(1, 0)), axis(0)),
			w(3))`,
			"0: w+0 4x3 by 3,1 1: w_1+0 4x3 by 3,1; 10"},
		{`MatMul(Mul(x, f(1.0, 1.0, 1.0, 2.0)), w(4, 5))`,
			"the channels of a token or of an expert are weighted one by one"},
		{`Concat(Gemm(Slice(x, i(0), i(0)), w(4, 4), w(4)), x, axis(0))`, "0: w+0 4x4 by 4,1; 3"},
		{`Einsum(Expand(Unsqueeze(x, i(0, 1)), i(2, 3, 1, 1)), w(2, 3, 4, 5), equation("abtk,abkc->tc"))`,
			"0: w+100 4x5 by 5,1; 315"}, // 3 * (1 + … + 6) * 5
		{`Clip(MatMul(x, w(4, 5)), none, Squeeze(f(9.0)))`, "0: w+0 4x5 by 5,1; 9"},
		{`Add(Gather(MatMul(x, w(4, 5)), i(2, 1, 0)), w(5))`, "0: w+0 4x5 by 5,1; 6"},
		{`Mul(x, Cast(Gather(Shape(Identity(w(2, 1048576))), i(0)), to(1)))`, "; 6"},
		{`MatMul(x, Transpose(w(5, 4), perm(1, 0)))`, "0: w+0 4x5 by 1,4; 15"},
		{`MatMul(w(5, 4), Transpose(x, perm(1, 0)))`, "0: w+0 4x5 by 1,4; 15"},
		{`MatMul(x, w(2, 4, 5))`, "0: w+20 4x5 by 5,1; 30"},
		{`Add(MatMul(x, w(2, 4, 5)), w(2, 1, 5))`, "0: w+20 4x5 by 5,1 bias w_1+5 1x5 by 0,1; 30"},
		{`Add(MatMul(x, w(4, 5)), w(3, 1))`, "0: w+0 4x5 by 5,1; 16"},
		{`Gemm(x, w(5, 4), w(5), transB(1))`, "0: w+0 4x5 by 1,4 bias w_1+0 1x5 by 0,1; 15"},
		{`Einsum(x, w(2, 5, 4), equation("tk,eck->tec"))`, "0: w+20 4x5 by 1,4; 30"},
		{`Einsum(x, w(2, 5, 4), Gather(Div(x, x), i(0, 1), axis(1)), equation("tk,eck,te->tc"))`,
			"0: w+20 4x5 by 1,4; 45"},
		{`Einsum(x, w(2, 4, 5), equation("tk,ekc->ect"))`, "0: w+20 4x5 by 5,1; 30"},
		{`MatMul(Squeeze(Slice(x, i(2), i(3), i(0)), i(0)), w(4, 5))`, "0: w+0 4x5 by 5,1; 15"},
		{`MatMul(Unsqueeze(x, i(1)), w(1, 4, 5))`, "0: w+0 4x5 by 5,1; 15"},
		{`Gemm(x, w(4, 5), w(5), beta(0.0))`, "0: w+0 4x5 by 5,1; 15"},
		{`Gemm(x, w(4, 5), w(5), alpha(2.0))`, "; 25"},
		{`Gemm(x, w(4, 5), w(5), beta(0.5))`, "; 12.5"},
		{`Gemm(Transpose(x, perm(1, 0)), w(4, 5), transA(1))`, "0: w+0 4x5 by 5,1; 15"},
		{`Add(Transpose(MatMul(x, w(4, 5)), perm(1, 0)), w(5, 1))`, "0: w+0 4x5 by 5,1 bias w_1+0 1x5 by 0,1; 15"},
		{`Add(Relu(MatMul(x, w(4, 5))), w(5))`, "0: w+0 4x5 by 5,1; 16"},
		{`Add(MatMul(x, w(4, 5)), w(2, 1, 5))`, "0: w+0 4x5 by 5,1; 16"},
		{`Add(Add(MatMul(x, w(4, 5)), w(5)), w(5))`, "0: w+0 4x5 by 5,1 bias w_1+0 1x5 by 0,1; 16"},
		{`Add(Concat(MatMul(x, w(4, 5)), MatMul(x, w(4, 5)), axis(0)), w(5))`,
			"0: w+0 4x5 by 5,1 bias w_2+0 1x5 by 0,1 1: w_1+0 4x5 by 5,1 bias w_2+0 1x5 by 0,1; 15"},
		{`Add(Reshape(Concat(MatMul(x, w(4, 5)), MatMul(x, w(4, 5)), axis(0)), i(2, 3, 5)), w(2, 1, 5))`,
			"bias w_2+0 1x5 by 0,1 1: w_1+0 4x5 by 5,1 bias w_2+5 1x5 by 0,1; 15"},
		{`MatMul(Add(x, Mul(x, w(4))), w(4, 5))`, "0: w_1+0 4x5 by 5,1; 30"}, // of x + 1*x
		{`Add(MatMul(x, w(2, 4, 5)), MatMul(x, w(2, 4, 5)))`, "0: w+20 4x5 by 5,1 1: w+20 4x5 by 5,1; 60"},
		{`Add(MatMul(x, w(4, 5)), MatMul(x, w(4, 5)))`, "0: w+0 4x5 by 5,1 1: w_1+0 4x5 by 5,1; 30"},
		{`Einsum(x, w(4, 4), equation("tk,kk->tk"))`, "; 3"},
		{`MatMul(Relu(MatMul(x, w(4, 5))), w(5, 2))`, "0: w+0 4x5 by 5,1 1: w_1+0 5x2 by 2,1 of [1 2 3 4 5]; 0"},
		{`Einsum(Relu(MatMul(x, w(4, 5))), w(2, 5, 3), Gather(Div(x, x), i(0, 1), axis(1)), equation("tc,ecd,te->td"))`,
			"1: w_1+15 5x3 by 3,1 of [1 2 3 4 5]; 0"},
		{`MatMul(Reshape(x, Concat(Min(Slice(Shape(MatMul(x, w(4, 5))), i(0), i(1)), Size(MatMul(x, w(4,` +
			` 5)))), i(4), axis(0))), w(4, 2))`,
			"2: w_2+0 4x2 by 2,1; 6"},
		{`MatMul(MatMul(MatMul(x, w(4, 5)), w(5, 2)), w(2, 2))`, "an expert has more than two products in a row"},
		{`MatMul(Unsqueeze(x, i(0)), w(2, 4, 5))`, "0: w+20 4x5 by 5,1; 30"},
		{`MatMul(Unsqueeze(x, i(1, 2)), w(1, 2, 4, 5))`, "0: w+20 4x5 by 5,1; 30"},
		{`MatMul(x, w(1, 4, 5))`, "0: w+0 4x5 by 5,1; 15"},
		{`MatMul(x, Expand(w(4, 5), i(2, 1, 1)))`, "0: w+0 4x5 by 5,1; 30"},
		{`MatMul(x, Concat(w(4, 2), w(4, 3), axis(1)))`, "0: in several places; 15"},
		{`MatMul(x, Concat(Transpose(x), w(4, 3), axis(1)))`, "; 12"},
		{`Einsum(Concat(Unsqueeze(x, i(0)), Unsqueeze(Add(x, x), i(0)), axis(0)), w(2, 4, 5), equation("etk,ekc->tc"))`,
			"0: w+20 4x5 by 5,1; 75"}, // 3*5 + 6*2*5
		{`MatMul(x, w(4))`, "; 12"},
		{`Einsum(x, w(4, 5), equation("tk,ec->tkec"))`, "; 3"},
		{`Einsum(x, w(4, 5, 2), equation("tk,kce->tc"))`, "; 24"},
		{`MatMul(x, Einsum(equation("ck->kc"), w(5, 4)))`, "; 12"},
		{`MatMul(x, MatMul(w(4, 3), w(3, 5)))`, "; 36"},
		{`Einsum(x, w(4, 5), w(5, 2), equation("tk,kc,cd->td"))`, "; 60"},
		{`Einsum(x, w(4, 5), f(2.0), equation("tk,kc,s->tc"))`, "; 24"},
		{`Einsum(x, w(4, 5), equation("tk,kc"))`, "; 12"},
		{`Einsum(x, w(2, 4, 5), Gather(Div(x, x), i(0, 1), axis(1)), equation("tk,ekc,te"))`,
			"; 48"}, // (1 + 2 + 3) * 4 * (1 + 1)
		{`Einsum(x, w(4, 5), equation("tk,ekc->tec"))`, "Einsum"},
		{`Einsum(Unsqueeze(x, i(0)), w(4, 5), equation("bk,kc->bc"))`, "Einsum"},
		{`Einsum(x, w(3, 5), equation("tk,kc->tc"))`, "Einsum"},
		{`Einsum(x, w(4, 5), equation("kt,kc->tc"))`, "Einsum"},
		{`Gemm(x, w(4, 5), f(0.0))`, "0: w+0 4x5 by 5,1; 15"},
		{`Gemm(x, w(4, 5), f(2.0))`, "; 14"},
		{`Gemm(x, w(4, 5), w(4))`, "Gemm"},
		{`Add(MatMul(x, w(4, 2)), w(2))`, "bias w_1+0 1x2 by 0,1; 6"},
		{`Add(MatMul(x, w(4, 5)), w(1))`, "0: w+0 4x5 by 5,1; 16"},
		{`Add(Slice(MatMul(Slice(x, i(2), i(3)), w(4, 2)), i(0), i(1), i(1)), w(2))`, "0: w+0 4x2 by 2,1; 4"},
		{`Add(Gather(MatMul(x, w(4, 5)), i(2, 2, 0)), w(5))`, "0: w+0 4x5 by 5,1; 6"},
		{`Add(Expand(MatMul(x, w(4, 5)), i(2, 1, 1)), w(5))`, "0: w+0 4x5 by 5,1; 16"},
		{`Add(Concat(x, MatMul(x, w(4, 5)), axis(1)), w(9))`, "0: w+0 4x5 by 5,1; 16"},
		{`Add(Concat(MatMul(x, w(4, 4)), x, axis(0)), w(4))`, "0: w+0 4x4 by 4,1; 4"},
		{`Relu(w(1048577))`, "a weight is repeated to [1048577]"},
	} {
		if got := products(nil, expr(c[0])); !strings.Contains(got, c[1]) {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}

// expr returns the writer of a graph in Go's notation: calls with capitals are nodes, w weights of a shape, i integers,
// f floats, and other calls attributes.
func expr(text string) writer {
	return func(b builder, x value, w weights) value {
		e, err := parser.ParseExpr(text)
		if err != nil {
			panic(err)
		}
		var eval func(e ast.Expr) any
		eval = func(e ast.Expr) any {
			call, ok := e.(*ast.CallExpr)
			if !ok {
				return map[string]value{"x": x, "none": nil}[e.(*ast.Ident).Name]
			}
			name := call.Fun.(*ast.Ident).Name
			var args []any
			var ints []int64
			var floats []float32
			for _, a := range call.Args {
				lit, ok := a.(*ast.BasicLit)
				if !ok {
					args = append(args, eval(a))
					continue
				}
				number, err := strconv.ParseFloat(lit.Value, 32)
				switch {
				case err != nil:
					return onnx.StringAttr(name, strings.Trim(lit.Value, `"`))
				case lit.Kind == token.INT:
					ints = append(ints, int64(number))
				default:
					floats = append(floats, float32(number))
				}
			}
			switch {
			case ast.IsExported(name):
				return b.Op(name, args...)
			case name == "w":
				return w(ints...)
			case name == "i":
				return b.Ints(ints...)
			case name == "f":
				return b.Floats([]int64{int64(len(floats))}, floats...)
			case floats != nil:
				return onnx.FloatAttr(name, floats[0])
			case len(ints) > 1:
				return onnx.IntsAttr(name, ints)
			}
			return onnx.IntAttr(name, ints[0])
		}
		return eval(e).(value)
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

// TestRunnerFails: an error of Fill, also for a single row, ends the run.
func TestRunnerFails(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, 3, 4)
	y := b.Op("MatMul", x, b.Floats([]int64{4, 5}, make([]float32, 20)...))
	g := match.New(b.Graph, infer.Analyze(b.Model), nil)
	r := NewRunner(g, g.Budget("test", match.Limits{Each: 1 << 20, Reserve: 1 << 20, Shares: 1}))
	stop, rows := errors.New("stop"), 0
	r.Fill = func(p *Product, _ *reference.Tensor) error {
		return p.EachSum(func(Row, int, float64) error { rows++; return stop })
	}
	_, err := r.Run(y, nil, Values{x: reference.NewFloats(onnx.Float, []int{3, 4}, make([]float64, 12))})
	if !errors.Is(err, stop) || rows != 1 {
		t.Errorf("%v after %d rows", err, rows)
	}
}

// TestParts reads matrices that consist of several ones, as further matrices.
func TestParts(t *testing.T) {
	for _, c := range []struct {
		parts      Parts
		expr, want string
	}{
		{Parts{Out: 2}, `MatMul(x, w(4, 6))`, "0: w+3 4x3 by 6,1; 18"}, // 3 * 2 * 3
		{Parts{Out: 2}, `Gemm(x, w(6, 4), w(6), transB(1))`, "0: w+12 4x3 by 1,4 bias w_1+3 1x3 by 0,1; 18"},
		{Parts{In: 2}, `MatMul(x, w(4, 6))`, "0: w+12 2x6 by 6,1; 54"}, // 3 * (1 + 2) * 6
		{Parts{Out: 3, In: 2}, `MatMul(x, w(4, 6))`,
			"0: w+16 2x2 by 6,1; 66"}, // 3 * (5 + 6) * 2: of each three, one is below the other
		{Parts{Out: 2}, `Einsum(x, w(2, 4, 6), equation("tk,ekc->tec"))`, "0: w+27 4x3 by 6,1; 36"}, // 3 * 4 * 3
		{Parts{Out: 2}, `Einsum(x, w(2, 4, 6), equation("tk,ekc->ect"))`, "0: w+27 4x3 by 6,1; 36"},
		{Parts{In: 2}, `Einsum(Concat(Unsqueeze(x, i(2)), Unsqueeze(x, i(2)), axis(2)), w(2, 4, 6),
			equation("tke,ekc->tec"))`,
			"0: w+36 2x6 by 6,1; 126"},
		{Parts{In: 2}, `Einsum(x, w(2, 4, 6), equation("tk,ekc->tec"))`,
			"0: w+36 2x6 by 6,1; 126"}, // 3 * (3 + 4) * 6
		{Parts{Out: 4}, `MatMul(x, w(4, 6))`, "a matrix that is not made of 4 equal ones"},
		{Parts{In: 3}, `MatMul(x, w(4, 6))`, "a matrix that is not made of 3 equal ones"},
	} {
		if got := products(map[int]Parts{0: c.parts}, expr(c.expr)); !strings.Contains(got, c.want) {
			t.Errorf("%s in %+v: %s, want %s", c.expr, c.parts, got, c.want)
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
		last := p.Matrix(p.Places() - 1)
		text := fmt.Sprintf("%d: %s", p.Number, describe(last))
		if int64(p.Places())*last.In*last.Out != int64(p.weight.Len()) {
			text += " of another number of places"
		}
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
