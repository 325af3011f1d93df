package convert

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestSettleCasts: Casts that change nothing are removed, and float32 arithmetic whose result is rounded at once is
// done in 16 bits if each result is the same. Nodes that the caller does not name stay.
func TestSettleCasts(t *testing.T) {
	to := func(d onnx.DataType) *onnx.Attribute { return onnx.IntAttr("to", int64(d)) }
	wide := func(b builder, v value) value { return b.Op("Cast", v, to(onnx.Float)) }
	half := func(b builder, v value) value { return b.Op("Cast", v, to(onnx.Float16)) }
	for name, c := range map[string]struct {
		build func(b builder, x, y value) value // of two float16 values
		want  string
	}{
		"a sum": {func(b builder, x, y value) value { return half(b, b.Op("Add", wide(b, x), wide(b, y))) }, "Add16"},
		"a product": {func(b builder, x, y value) value {
			return half(b, b.Op("Mul", wide(b, x), wide(b, y)))
		}, "Mul16"},
		"a difference": {func(b builder, x, y value) value {
			return half(b, b.Op("Sub", wide(b, x), wide(b, y)))
		}, "Sub16"},
		"a quotient": {func(b builder, x, y value) value {
			return half(b, b.Op("Div", wide(b, x), wide(b, y)))
		}, "Div16"},
		"two roundings in one": {func(b builder, x, y value) value {
			return half(b, b.Op("Add", b.Op("Mul", wide(b, x), wide(b, y)), wide(b, y)))
		}, "Cast32 Cast32 Mul32 Cast32 Add32 Cast16"},
		"another op": {func(b builder, x, _ value) value {
			return half(b, b.Op("Exp", wide(b, x)))
		}, "Cast32 Exp32 Cast16"},
		"moved elements": {func(b builder, x, _ value) value {
			return half(b, b.Op("Transpose", b.Op("Unsqueeze", wide(b, x), b.Ints(0))))
		}, "Unsqueeze16 Transpose16"},
		"a sum of moved elements": {func(b builder, x, y value) value {
			return half(b, b.Op("Add", b.Op("Transpose", wide(b, x)), wide(b, y)))
		}, "Transpose16 Add16"},
		"sums side by side": {func(b builder, x, y value) value {
			sum := b.Op("Add", wide(b, x), wide(b, y))
			return half(b, b.Op("Concat", sum, wide(b, x), onnx.IntAttr("axis", 0)))
		}, "Add16 Concat16"},
		"a concatenation that is added": {func(b builder, x, y value) value {
			both := b.Op("Concat", wide(b, x), wide(b, y), onnx.IntAttr("axis", 0))
			return half(b, b.Op("Add", both, both))
		}, "Concat16 Add16"},
		"a sum that is moved": {func(b builder, x, y value) value {
			return half(b, b.Op("Transpose", b.Op("Add", wide(b, x), wide(b, y))))
		}, "Cast32 Cast32 Add32 Transpose32 Cast16"},
		"a number of float32": {func(b builder, x, _ value) value {
			return half(b, b.Op("Mul", wide(b, x), b.Floats(nil, 1.001)))
		}, "Cast32 Mul32 Cast16"},
		"another half type": {func(b builder, x, y value) value {
			return b.Op("Cast", b.Op("Add", wide(b, x), wide(b, y)), to(onnx.BFloat16))
		}, "Cast32 Cast32 Add32 Cast16"},
		"to the same type": {func(b builder, x, _ value) value { return b.Op("Neg", half(b, x)) }, "Neg16"},
		"there and back":   {func(b builder, x, _ value) value { return b.Op("Neg", half(b, wide(b, x))) }, "Neg16"},
		"to a wider type":  {func(b builder, x, _ value) value { return b.Op("Neg", wide(b, x)) }, "Cast32 Neg32"},
		"like another": {func(b builder, x, y value) value {
			return b.Op("CastLike", b.Op("Add", wide(b, x), wide(b, y)), y)
		}, "Add16"},
		"like a wider one": {func(b builder, x, _ value) value {
			return b.Op("Neg", b.Op("CastLike", x, b.Floats(nil, 1)))
		}, "Cast32 Neg32"},
	} {
		for _, named := range []bool{true, false} {
			b := onnxtest.New(20)
			x, y := b.Input("x", onnx.Float16, 2, 2), b.Input("y", onnx.Float16, 2, 2)
			b.Output(b.Op("Identity", c.build(b, x, y)))
			in := map[string]*reference.Tensor{
				"x": reference.NewFloats(onnx.Float16, []int{2, 2}, []float64{1, 0.0009765625, -3, 1000}),
				"y": reference.NewFloats(onnx.Float16, []int{2, 2}, []float64{3, 7, 0.3330078125, 2.00390625})}
			run := func() *reference.Tensor {
				e, err := reference.New(b.Model, reference.Options{})
				if err != nil {
					t.Fatal(err)
				}
				out, err := e.Run(in)
				if err != nil {
					t.Fatal(err)
				}
				return out[b.Graph.Outputs[0].Name]
			}
			before := run()
			all := computedIn(b.Model)
			if err := SettleCasts(b.Model, func(*onnx.Node) bool { return named }); err != nil {
				t.Fatal(err)
			}
			got := strings.TrimSuffix(computedIn(b.Model), " Identity16")
			got = strings.TrimSuffix(got, " Identity32")
			if named && got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
			if !named && computedIn(b.Model) != all {
				t.Errorf("%s: %s, before %s, though no node was named", name, computedIn(b.Model), all)
			}
			if after := run(); !slices.Equal(after.F, before.F) || after.DataType != before.DataType {
				t.Errorf("%s: %v, before %v", name, after.F, before.F)
			}
		}
	}
}
