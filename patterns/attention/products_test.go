package attention_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestSharedWeights: each product with the weights of one softmax is attention, unless another node reads them.
func TestSharedWeights(t *testing.T) {
	for _, read := range []bool{false, true} {
		m := build(func(b *block) {
			b.sum = func(b *block, p, v value) value {
				other := repeatEach(b, b.Input("other", onnx.Float, "batch", 2, "queries", 8))
				b.Output(b.Op("MatMul", p, other))
				if read {
					b.Output(b.Op("ReduceMax", p, []int64{-1}))
				}
				return b.Op("MatMul", p, v)
			}
		}, false)
		matches, _ := patterns.Builtin().Find(m.Graph, infer.Analyze(m))
		var values []string
		for _, match := range matches {
			if match.Pattern == "Attention" {
				values = append(values, match.Inputs[2].Name)
			}
		}
		slices.Sort(values)
		if want := map[bool][]string{false: {"other", "v"}}[read]; !slices.Equal(values, want) {
			t.Errorf("found attention of the values %q, want %q", values, want)
		}
	}
}

// TestOperandsAreRounded has queries and keys in float32 that are rounded to float16 for the products, as after a
// rotation in float32. The op reads them after the rounding, because the op computes in the type of its inputs.
func TestOperandsAreRounded(t *testing.T) {
	b := onnxtest.New(18)
	wide := func(name, rows string) *onnx.Value { return b.Input(name, onnx.Float, "b", rows, 2, 8) }
	half := func(v *onnx.Value) *onnx.Value { return b.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Float16))) }
	turned := func(v *onnx.Value, perm ...int64) *onnx.Value {
		return b.Op("Transpose", v, onnx.IntsAttr("perm", perm))
	}
	q, k := half(turned(wide("q", "s"), 0, 2, 1, 3)), half(turned(wide("k", "l"), 0, 2, 3, 1))
	s := b.Op("Softmax", b.Op("MatMul", q, k), onnx.IntAttr("axis", -1))
	b.Output(b.Op("MatMul", s, turned(b.Input("v", onnx.Float16, "b", "l", 2, 8), 0, 2, 1, 3)))
	got := found(t, b.Model)
	for _, name := range []string{q.Name, k.Name, "v"} {
		if !slices.Contains(strings.Fields(got), name) {
			t.Errorf("found %q, without the input %q", got, name)
		}
	}
}
