package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// TestFalseShapes demands that inner values lose declared shapes that contradict the nodes, such as the sizes of an
// exporter's example, and keep all others.
func TestFalseShapes(t *testing.T) {
	for _, c := range []struct {
		name  string
		dims  []any
		stays bool
	}{
		{"right", []any{"batch", "sequence", channels}, true},
		{"right in part", []any{"", "", channels}, true},
		{"a name that no input has", []any{"batch", "tokens", channels}, true},
		{"the example's", []any{1, 4, channels}, false},
		{"one size of the example", []any{"batch", 4, channels}, false},
		{"another dimension", []any{"sequence", "batch", channels}, false},
		{"another rank", []any{"batch", channels}, false},
	} {
		b := onnxtest.New(20)
		first := b.Op("Neg", b.Input("x", onnx.Float, "batch", "sequence", channels))
		first.SetType(onnxtest.Type(onnx.Float, "a name", "tokens", channels)) // which names the same size
		x := b.Op("Abs", first)
		x.SetType(onnxtest.Type(onnx.Float, c.dims...))
		mean := b.Op("ReduceMean", b.Op("Mul", x, x), []int64{-1})
		root := b.Op("Sqrt", b.Op("Add", mean, 1e-5))
		b.Output(b.Op("Mul", b.Op("Div", x, root), vectorOf(b, channels)))
		if r := apply(t, b.Model); !r.Changed {
			t.Errorf("%s: not patched", c.name)
		}
		if typ, ok := x.Type(); !ok || typ.DataType != onnx.Float || typ.HasShape != c.stays {
			t.Errorf("%s: declared %v", c.name, typ)
		}
	}
}
