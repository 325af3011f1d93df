package builtin_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestKeyTranspose finds keys that are flattened, transposed and reshaped back, but only if that shape is theirs with
// the last two axes exchanged.
func TestKeyTranspose(t *testing.T) {
	for _, c := range []struct {
		name       string
		flat, back []int64
		perm       []int64
		found      bool
	}{
		{"as torch writes it", []int64{-1, 5, 6}, []int64{2, 3, 6, 5}, []int64{0, 2, 1}, true},
		{"with a dimension left open", []int64{6, -1, 6}, []int64{2, 3, -1, 5}, []int64{0, 2, 1}, true},
		{"heads before the batch", []int64{-1, 5, 6}, []int64{3, 2, 6, 5}, []int64{0, 2, 1}, false},
		{"channels in other groups", []int64{-1, 5, 6}, []int64{2, 3, 5, 6}, []int64{0, 2, 1}, false},
		{"flattened at another axis", []int64{2, 15, 6}, []int64{2, 3, 6, 5}, []int64{0, 2, 1}, false},
		{"another transposition", []int64{-1, 5, 6}, []int64{2, 3, 6, 5}, []int64{1, 2, 0}, false},
	} {
		m := onnx.New(10, 20)
		g := m.Graph
		node := func(op, name string, inputs []*onnx.Value, attributes ...*onnx.Attribute) *onnx.Value {
			v := g.NewValue(name)
			g.AddNode(op, inputs, []*onnx.Value{v}, attributes...)
			return v
		}
		k := g.AddInput("k",
			onnx.Type{DataType: onnx.Float, HasShape: true,
				Dims: []onnx.Dim{{Value: 2}, {Value: 3}, {Value: 5}, {Value: 6}}})
		flat := node("Reshape", "flat", []*onnx.Value{k, g.AddInitializer(onnx.NewInt64s("flat_shape", c.flat))})
		turned := node("Transpose", "turned", []*onnx.Value{flat}, onnx.IntsAttr("perm", c.perm))
		y := node("Reshape", "y", []*onnx.Value{turned, g.AddInitializer(onnx.NewInt64s("shape", c.back))})
		g.AddOutput(y)
		found := 0
		matches, _ := patterns.Builtin().Find(g, infer.Analyze(m))
		for _, match := range matches {
			if match.Pattern == "KeyTranspose" {
				found++
			}
		}
		if (found == 1) != c.found {
			t.Errorf("%s: found %d", c.name, found)
		}
	}
}
