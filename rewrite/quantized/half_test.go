package quantized_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestHalf tries each spelling of a product with 16-bit weights, and near misses.
func TestHalf(t *testing.T) {
	cast := func(b *rewritetest.Builder, v *onnx.Value, to onnx.DataType) *onnx.Value {
		return b.Op("Cast", v, onnx.IntAttr("to", int64(to)))
	}
	turn := func(b *rewritetest.Builder, v *onnx.Value) *onnx.Value {
		return b.Op("Transpose", v, onnx.IntsAttr("perm", []int64{1, 0}))
	}
	stored := func(b *rewritetest.Builder, t onnx.DataType, dims ...int) *onnx.Value {
		other := *b
		other.Type = t
		return other.Weight("w", dims...)
	}
	for _, c := range []struct {
		name   string
		typ    onnx.DataType // of x
		write  func(b *rewritetest.Builder, x *onnx.Value) *onnx.Value
		layout string // "": stays, for this reason
		reason string
	}{
		{"MatMul of its own type", onnx.Float16, func(b *rewritetest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("MatMul", x, b.Weight("w", 24, 40))
		}, "in_out", ""},
		{"widened", onnx.Float, func(b *rewritetest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("MatMul", x, cast(b, stored(b, onnx.BFloat16, 24, 40), onnx.Float))
		}, "in_out", ""},
		{"transposed, then widened, with a bias", onnx.Float, func(b *rewritetest.Builder, x *onnx.Value) *onnx.Value {
			w := cast(b, turn(b, stored(b, onnx.Float16, 40, 24)), onnx.Float)
			return b.Op("Add", b.Op("MatMul", x, w), b.Weight("bias", 40))
		}, "out_in", ""},
		{"transposed twice", onnx.BFloat16, func(b *rewritetest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("MatMul", x, turn(b, turn(b, b.Weight("w", 24, 40))))
		}, "in_out", ""},
		{"Gemm with transB and a bias", onnx.Float16, func(b *rewritetest.Builder, x *onnx.Value) *onnx.Value {
			rows := b.Op("Reshape", x, b.Ints(-1, 24))
			return b.Op("Gemm", rows, b.Weight("w", 40, 24), b.Weight("bias", 40), onnx.IntAttr("transB", 1))
		}, "out_in", ""},
		{"a Cast that rounds", onnx.Float16, func(b *rewritetest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("MatMul", x, cast(b, stored(b, onnx.BFloat16, 24, 40), onnx.Float16))
		}, "", "rounds the weights"},
		{"a Gemm with a factor", onnx.Float16, func(b *rewritetest.Builder, x *onnx.Value) *onnx.Value {
			rows := b.Op("Reshape", x, b.Ints(-1, 24))
			return b.Op("Gemm", rows, b.Weight("w", 24, 40), onnx.FloatAttr("alpha", 0.5))
		}, "", "has a factor"},
		{"weights of float32", onnx.Float, func(b *rewritetest.Builder, x *onnx.Value) *onnx.Value {
			return b.Op("MatMul", x, b.Weight("w", 24, 40))
		}, "", ""},
	} {
		b := rewritetest.New(t, 21, c.typ)
		b.Out(c.write(b, b.In("x", 2, 3, 24)))
		want := rewritetest.Evaluate(t, b.Model)
		backend, err := registry.ParseBackend("+CPU")
		if err != nil {
			t.Fatal(err)
		}
		r := applytest.Apply(t, b.Model, rewrite.Request{Backend: backend})
		var layouts []string
		for _, n := range b.Graph.Nodes {
			if n.OpType == "HalfLinear" {
				layouts = append(layouts, n.AttrString("layout", ""))
			}
		}
		if got := strings.Join(layouts, " "); got != c.layout {
			t.Errorf("%s: layout %q, want %q; %+v", c.name, got, c.layout, r.Products)
		}
		if c.reason != "" && !strings.Contains(fmt.Sprint(r.Products.Open), c.reason) {
			t.Errorf("%s: %v", c.name, r.Products.Open)
		}
		if n := rewritetest.CountOps(b.Model); c.layout != "" && n["Cast"]+n["Transpose"]+n["Add"]+n["Gemm"] > 0 {
			t.Errorf("%s: %v", c.name, n)
		}
		for name, x := range rewritetest.Evaluate(t, b.Model) {
			d, scale := prove.Distance(want[name].F, x.F)
			if d > 2*prove.Spacing(c.typ, scale) {
				t.Errorf("%s: %g of %g", c.name, d, scale)
			}
		}
	}
}

// TestHalfIsForTheCPU: such products stay if a GPU may run the model.
func TestHalfIsForTheCPU(t *testing.T) {
	b := rewritetest.New(t, 21, onnx.Float16)
	b.Out(b.Op("MatMul", b.In("x", 2, 24), b.Weight("w", 24, 40)))
	if r := applytest.Apply(t, b.Model); r.Products != nil || rewritetest.CountOps(b.Model)["MatMul"] != 1 {
		t.Errorf("%+v", r.Products)
	}
}

// narrowed returns a float32 tensor in 16 bits, and rounds its value to the same numbers.
func narrowed(t *testing.T, v *onnx.Value, to onnx.DataType, turned bool) *quantized.Narrow {
	t.Helper()
	raw, err := v.Const.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	wide, half := make([]float32, v.Const.Len()), make([]byte, v.Const.Len()*2)
	blocks.ReaderOf(onnx.Float)(wide, raw)
	if err := blocks.Half(to).Encode(half, wide); err != nil {
		t.Fatal(err)
	}
	blocks.Half(to).Decode(wide, half, 0)
	dims := v.Const.Dims
	v.Const = onnx.NewFloat32s(v.Const.Name, dims, wide)
	if turned {
		k, n := dims[0], dims[1]
		dims = []int64{n, k}
		by := make([]float32, len(wide))
		for i, x := range wide {
			by[int64(i)%n*k+int64(i)/n] = x
		}
		if err := blocks.Half(to).Encode(half, by); err != nil {
			t.Fatal(err)
		}
	}
	tensor, err := onnx.NewTensor("half", to, dims, half)
	if err != nil {
		t.Fatal(err)
	}
	return &quantized.Narrow{Value: v, Tensor: tensor, Turned: turned}
}

// TestNarrow stores a table that is both gathered and multiplied, and a transposed matrix.
func TestNarrow(t *testing.T) {
	b := rewritetest.New(t, 21, onnx.Float)
	ids := b.Input("ids", onnx.Int64, 2, 3)
	table, up := b.Weight("table", 50, 24), b.Weight("up", 24, 40)
	x := b.Op("Gather", table, ids)
	b.Out(b.Op("MatMul", x, up))
	b.Out(b.Op("MatMul", x, b.Op("Transpose", table, onnx.IntsAttr("perm", []int64{1, 0}))))
	list := []*quantized.Narrow{narrowed(t, table, onnx.BFloat16, false), narrowed(t, up, onnx.Float16, true)}
	in := map[string]*reference.Tensor{"ids": reference.NewInts(onnx.Int64, []int{2, 3}, []int64{0, 49, 7, 7, 1, -2})}
	want := rewritetest.Run(t, b.Model, in)
	if _, err := rewrite.Narrow(b.Model, list, rewrite.Request{}); err != nil {
		t.Fatal(err)
	}
	if n := rewritetest.CountOps(b.Model); n["HalfLinear"] != 2 || n["Gather"] != 1 || n["Cast"] != 1 ||
		n["Transpose"]+n["MatMul"] > 0 {
		t.Errorf("%v", n)
	}
	for name, x := range rewritetest.Run(t, b.Model, in) {
		if d, scale := prove.Distance(want[name].F, x.F); d > 4*prove.Spacing(onnx.Float, scale) {
			t.Errorf("%s: %g of %g", name, d, scale)
		}
	}
	for _, v := range b.Graph.Initializers() {
		if v.Const.DataType == onnx.Float {
			t.Errorf("%q of float32 is still there", v.Name)
		}
	}
}

// TestNarrowMixture: a MoE reads its experts in 16 bits, unless its bias would be rounded.
func TestNarrowMixture(t *testing.T) {
	for _, bias := range []float32{0.5, 1.0 / 3} {
		m, weights := mixtures(t, onnx.Float, 1, "in_out")
		for _, v := range m.Graph.Initializers() {
			if len(v.Const.Dims) == 2 {
				values := make([]float32, v.Const.Len())
				for i := range values {
					values[i] = bias
				}
				v.Const = onnx.NewFloat32s(v.Name, v.Const.Dims, values)
			}
		}
		var list []*quantized.Narrow
		for _, w := range weights {
			list = append(list, narrowed(t, w.Value, onnx.BFloat16, false))
		}
		want := rewritetest.Evaluate(t, m)
		if _, err := rewrite.Narrow(m, list, rewrite.Request{}); err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			if refused := bias != 0.5; (w.Refused != nil) != refused || (w.Stored == nil) != refused ||
				refused && !strings.Contains(w.Refused.Error(), "bfloat16 cannot hold") {
				t.Errorf("bias %g: refused: %v", bias, w.Refused)
			}
		}
		for name, x := range rewritetest.Evaluate(t, m) {
			if d, scale := prove.Distance(want[name].F, x.F); d > 64*prove.Spacing(onnx.Float, scale) {
				t.Errorf("%s: %g of %g", name, d, scale)
			}
		}
	}
}
