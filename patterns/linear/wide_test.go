package linear_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestWideSteps builds a step of Mamba-2 of four heads of 5 channels, with keys of 3 channels for two groups of heads.
func TestWideSteps(t *testing.T) {
	const heads, val, key = 4, 5, 3
	byHead := func(h, _, _ int) float32 { return -1 - float32(h) }
	byKey := func(h, _, n int) float32 { return -1 - float32(h+n) }
	for name, c := range map[string]struct {
		rate  func(h, p, n int) float32 // of a head's decay
		gates int                       // for each head
		late  bool                      // the state decays after the update
		half  bool                      // all but the decay and the sum of the state is float16
		found bool
	}{
		"a step":                         {rate: byHead, gates: 1, found: true},
		"a step in float16":              {rate: byHead, gates: 1, half: true, found: true},
		"equal heads":                    {rate: func(_, _, _ int) float32 { return -2 }, gates: 1, found: true},
		"a rate of each channel of keys": {rate: byKey, gates: 1, found: true},
		"a rate of each channel":         {rate: func(_, p, _ int) float32 { return -1 - float32(p) }, gates: 1},
		"a gate of each channel":         {rate: byHead, gates: val},
		"a decay after the update":       {rate: byHead, gates: 1, late: true},
		"a late decay in float16":        {rate: byHead, gates: 1, late: true, half: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, typ := onnxtest.New(18), onnx.Float
			if c.half {
				typ = onnx.Float16
			}
			cast := func(v *onnx.Value, t onnx.DataType) *onnx.Value {
				if !c.half {
					return v
				}
				return b.Op("Cast", v, onnx.IntAttr("to", int64(t)))
			}
			state := cast(b.Input("state", typ, "b", heads, val, key), onnx.Float)
			x := b.Input("x", typ, "b", heads, val)
			group := func(name string) *onnx.Value {
				v := b.Op("Reshape", b.Input(name, typ, "b", 2*key), b.Ints(-1, 2, 1, key))
				return b.Op("Reshape", b.Op("Expand", v, b.Ints(1, 2, heads/2, key)), b.Ints(-1, heads, 1, key))
			}
			var rates, biases []float32
			for i := range heads * val * key {
				rates = append(rates, c.rate(i/val/key, i/key%val, i%key))
			}
			for i := range heads * val {
				biases = append(biases, float32(i/val)/8)
			}
			gate := b.Op("Expand", b.Input("dt", typ, "b", heads, c.gates), b.Ints(1, heads, val))
			gate = b.Op("Add", gate, cast(b.Floats([]int64{heads, val}, biases...), typ))
			if soft := b.Op("Softplus", gate); c.half { // as torch writes it for half types
				soft = b.Op("Div", soft, b.Op("CastLike", b.Floats(nil, 1), soft))
				gate = b.Op("Where", b.Op("Greater", gate, cast(b.Floats(nil, 20), typ)), gate, soft)
			} else {
				gate = soft
			}
			gate = b.Op("Unsqueeze", gate, b.Ints(3))
			factor := b.Op("Exp", b.Op("Mul", cast(gate, onnx.Float), b.Floats([]int64{heads, val, key}, rates...)))
			update := b.Op("Mul", b.Op("Mul", gate, group("k")), b.Op("Unsqueeze", x, b.Ints(3)))
			update = cast(update, onnx.Float)
			next := b.Op("Add", b.Op("Mul", state, factor), update)
			if c.late {
				next = b.Op("Mul", b.Op("Add", state, update), factor)
			}
			row := b.Op("ReduceSum", b.Op("Mul", cast(next, typ), group("q")), b.Ints(3), onnx.IntAttr("keepdims", 0))
			b.Output(b.Op("Add", row, b.Op("Mul", x, cast(b.Floats([]int64{}, 2), typ))))
			next = cast(next, typ)
			b.Output(next)
			matches, _ := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
			found := len(matches) == 1 && matches[0].Op == "LinearAttention"
			if found != c.found || len(matches) > 1 || found && matches[0].Outputs[1] != next {
				t.Errorf("found %v, want %v: %v", found, c.found, matches)
			}
		})
	}
}

// TestSelectiveSteps builds a step of Mamba-1: four channels, each with a state of 3 numbers that have their own rates.
func TestSelectiveSteps(t *testing.T) {
	const heads, key = 4, 3
	for name, c := range map[string]struct {
		cast  bool // every value, to the type that it has
		write func(b *onnxtest.Builder, state, factor, update *onnx.Value) *onnx.Value
		found bool
	}{
		"a step": {false, func(b *onnxtest.Builder, state, factor, update *onnx.Value) *onnx.Value {
			return b.Op("Add", b.Op("Mul", state, factor), update)
		}, true},
		"a step of TorchScript": {true, func(b *onnxtest.Builder, state, factor, update *onnx.Value) *onnx.Value {
			return b.Op("Add", b.Op("Mul", factor, state), update)
		}, true},
		"a decay after the update": {false, func(b *onnxtest.Builder, state, factor, update *onnx.Value) *onnx.Value {
			return b.Op("Mul", b.Op("Add", state, update), factor)
		}, false},
		"an update with another factor": {false, func(b *onnxtest.Builder, state, f, update *onnx.Value) *onnx.Value {
			return b.Op("Add", b.Op("Mul", state, f), b.Op("Mul", update, f))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := onnxtest.New(18)
			cast := func(v *onnx.Value) *onnx.Value {
				if c.cast {
					v = b.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Float)))
				}
				return v
			}
			at := func(v *onnx.Value, axis int64) *onnx.Value { return cast(b.Op("Unsqueeze", cast(v), b.Ints(axis))) }
			x, k := b.Input("x", onnx.Float, "b", heads), b.Input("k", onnx.Float, "b", key)
			dt := b.Input("dt", onnx.Float, "b", heads)
			if c.cast { // an operand of the step in the other cases
				dt = b.Op("Softplus", dt)
			}
			var rates []float32
			for i := range heads * key {
				rates = append(rates, -1-float32(i))
			}
			factor := cast(b.Op("Exp", b.Op("Mul", at(dt, 2), b.Floats([]int64{heads, key}, rates...))))
			update := b.Op("Mul", b.Op("Mul", at(dt, 2), at(k, 1)), at(x, 2))
			next := cast(c.write(b, b.Input("state", onnx.Float, "b", heads, key), factor, update))
			row := b.Op("MatMul", cast(next), at(b.Input("q", onnx.Float, "b", key), 2))
			b.Output(b.Op("Add", b.Op("Squeeze", row, b.Ints(2)), b.Op("Mul", x, 2.0)))
			b.Output(cast(next))
			matches, _ := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
			if found := len(matches) == 1 && matches[0].Op == "LinearAttention"; found != c.found {
				t.Errorf("found %v, want %v: %v", found, c.found, matches)
			}
		})
	}
}

// TestWideLayers builds layers at the widths of Mamba-2 2.7B with rates of their own. All are found, though the search
// runs each, and the reserve of steps is enough for three.
func TestWideLayers(t *testing.T) {
	const layers, heads, val, key = 5, 80, 64, 128
	b := onnxtest.New(18)
	for i := range layers {
		in := func(name string, dims ...any) *onnx.Value {
			return b.Input(name+strconv.Itoa(i), onnx.Float, append([]any{"b"}, dims...)...)
		}
		gate := b.Op("Softplus", b.Op("Expand", in("dt", heads, 1), b.Ints(1, heads, val)))
		gate = b.Op("Unsqueeze", gate, b.Ints(3))
		rates := b.Floats([]int64{heads, val, key}, slices.Repeat([]float32{-1 - float32(i)}, heads*val*key)...)
		update := b.Op("Mul", b.Op("Mul", gate, in("k", 1, 1, key)), b.Op("Unsqueeze", in("x", heads, val), b.Ints(3)))
		next := b.Op("Add", b.Op("Mul", in("state", heads, val, key), b.Op("Exp", b.Op("Mul", gate, rates))), update)
		b.Output(next)
		b.Output(b.Op("ReduceSum", b.Op("Mul", next, in("q", 1, 1, key)), b.Ints(3), onnx.IntAttr("keepdims", 0)))
	}
	matches, _ := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
	if len(matches) != layers || matches[0].Op != "LinearAttention" {
		t.Errorf("%d steps were found in %d layers", len(matches), layers)
	}
}
