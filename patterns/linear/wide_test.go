package linear_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestWideSteps builds a step of Mamba-2 of four heads of 5 channels, with keys of 3 channels for two groups of heads.
func TestWideSteps(t *testing.T) {
	const heads, val, key = 4, 5, 3
	for name, c := range map[string]struct {
		rate  func(h, p, n int) float32 // of a head's decay
		gates int                       // for each head
		late  bool                      // the state decays after the update
		found bool
	}{
		"a step":                         {func(h, _, _ int) float32 { return -1 - float32(h) }, 1, false, true},
		"equal heads":                    {func(_, _, _ int) float32 { return -2 }, 1, false, true},
		"a rate of each channel of keys": {func(_, _, n int) float32 { return -1 - float32(n) }, 1, false, false},
		"a rate of each channel":         {func(_, p, _ int) float32 { return -1 - float32(p) }, 1, false, false},
		"a gate of each channel":         {func(h, _, _ int) float32 { return -1 - float32(h) }, val, false, false},
		"a decay after the update":       {func(h, _, _ int) float32 { return -1 - float32(h) }, 1, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := onnxtest.New(18)
			state := b.Input("state", onnx.Float, "b", heads, val, key)
			x := b.Input("x", onnx.Float, "b", heads, val)
			group := func(name string) *onnx.Value {
				v := b.Op("Reshape", b.Input(name, onnx.Float, "b", 2*key), b.Ints(-1, 2, 1, key))
				return b.Op("Reshape", b.Op("Expand", v, b.Ints(1, 2, heads/2, key)), b.Ints(-1, heads, 1, key))
			}
			var rates, biases []float32
			for i := range heads * val * key {
				rates = append(rates, c.rate(i/val/key, i/key%val, i%key))
			}
			for i := range heads * val {
				biases = append(biases, float32(i/val)/8)
			}
			gate := b.Op("Expand", b.Input("dt", onnx.Float, "b", heads, c.gates), b.Ints(1, heads, val))
			gate = b.Op("Softplus", b.Op("Add", gate, b.Floats([]int64{heads, val}, biases...)))
			gate = b.Op("Unsqueeze", gate, b.Ints(3))
			factor := b.Op("Exp", b.Op("Mul", gate, b.Floats([]int64{heads, val, key}, rates...)))
			update := b.Op("Mul", b.Op("Mul", gate, group("k")), b.Op("Unsqueeze", x, b.Ints(3)))
			next := b.Op("Add", b.Op("Mul", state, factor), update)
			if c.late {
				next = b.Op("Mul", b.Op("Add", state, update), factor)
			}
			row := b.Op("ReduceSum", b.Op("Mul", next, group("q")), b.Ints(3), onnx.IntAttr("keepdims", 0))
			b.Output(b.Op("Add", row, b.Op("Mul", x, 2.0)))
			b.Output(next)
			matches, _ := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
			found := len(matches) == 1 && matches[0].Op == "LinearAttention"
			if found != c.found || len(matches) > 1 {
				t.Errorf("found %v, want %v: %v", found, c.found, matches)
			}
		})
	}
}
