package probe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestRunner reads products with weights. Channel c of token t and matrix e of a result becomes t*e*c, all counted from
// 1: the result of a region shows which of them it contains.
func TestRunner(t *testing.T) {
	type (
		builder = *onnxtest.Builder
		value   = *onnx.Value
		weights = func(dims ...int64) value
	)
	describe := func(m *Matrix) string {
		return fmt.Sprintf("%s+%d %dx%d by %d,%d", m.Source.Name, m.Offset, m.In, m.Out, m.ByIn, m.ByOut)
	}
	for name, c := range map[string]struct {
		write func(b builder, x value, w weights) value
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
		}, "0: w+0 4x5 by 5,1; 15"},
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
		"a diagonal": {func(b builder, x value, w weights) value {
			return b.Op("Einsum", x, w(4, 4), onnx.StringAttr("equation", "tk,kk->tk"))
		}, "; 0"},
		"two in a row": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", b.Op("Relu", b.Op("MatMul", x, w(4, 5))), w(5, 2))
		}, "0: w+0 4x5 by 5,1 1: w_1+0 5x2 by 2,1 of [1 2 3 4 5]; 0"},
		"three in a row": {func(b builder, x value, w weights) value {
			return b.Op("MatMul", b.Op("MatMul", b.Op("MatMul", x, w(4, 5)), w(5, 2)), w(2, 2))
		}, "an expert has more than two products in a row"},
	} {
		b := onnxtest.New(20)
		x := b.Input("x", onnx.Float, 3, 4)
		y := c.write(b, x, func(dims ...int64) *onnx.Value {
			return b.Graph.AddInitializer(onnx.NewFloat32s("w", dims, make([]float32, match.Elements(dims))))
		})
		b.Output(y)
		g := match.New(b.Graph, infer.Analyze(b.Model), nil)
		r := NewRunner(g, g.Budget("test", match.Limits{Each: 1 << 20, Reserve: 1 << 20, Shares: 1}))
		var products []*Product
		r.Fill = func(p *Product, out *reference.Tensor) error {
			products = append(products, p)
			return p.EachSum(func(row Row, place int, x float64) error {
				row.Add(out, func(channel int) float64 { return x * float64((place+1)*(channel+1)) })
				return nil
			})
		}
		r.Answer = func(p *Product, _ *reference.Tensor) error { products = append(products, p); return nil }
		tokens := reference.NewFloats(onnx.Float, []int{3, 4}, []float64{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3})
		out, err := r.Run(y, nil, Values{x: tokens})
		var got []string
		for _, p := range products {
			text := fmt.Sprintf("%d: %s", p.Number, describe(p.Matrix(p.Places()-1)))
			if m := p.BiasAt(p.Places() - 1); m != nil {
				text += " bias " + describe(m)
			}
			for _, f := range p.First {
				text += fmt.Sprintf(" of %g", f.Row)
			}
			got = append(got, text)
		}
		all := fmt.Sprint(err)
		if err == nil {
			all = fmt.Sprintf("%s; %g", strings.Join(got, " "), out.F[len(out.F)-1])
		}
		if !strings.Contains(all, c.want) {
			t.Errorf("%s: %s, want %s", name, all, c.want)
		}
	}
}
