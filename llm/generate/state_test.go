package generate

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// stateful writes a model that keeps the sum of its tokens' vectors in a state of fixed size. The logits are tanh of
// the sums times a matrix. The ids have a batch axis if batch is set, and a mask of the new tokens if masked is set.
func stateful(t *testing.T, batch, masked bool) string {
	t.Helper()
	const vocabulary, width = 24, 8
	r := rand.New(rand.NewPCG(3, 1))
	m := onnx.New(10, 21)
	m.Graph.Name = "state"
	weight := func(name string, dims ...int64) *onnx.Value {
		x := make([]float32, dims[0]*dims[1])
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return m.Graph.AddInitializer(onnx.NewFloat32s(name, dims, x))
	}
	op := func(name string, attr *onnx.Attribute, inputs ...*onnx.Value) *onnx.Value {
		y := m.Graph.NewValue("h")
		n := m.Graph.AddNode(name, inputs, []*onnx.Value{y})
		if attr != nil {
			n.SetAttr(attr)
		}
		return y
	}
	typed := func(dt onnx.DataType, shape string) onnx.Type {
		return onnx.Type{DataType: dt, HasShape: true, Dims: dims(shape)}
	}
	ids, state, logits, axis := "s", "1 8", "s 24", int64(0)
	if batch {
		ids, state, logits, axis = "b s", "b 1 8", "b s 24", 1
	}
	x := m.Graph.AddInput("input_ids", typed(onnx.Int64, ids))
	past := m.Graph.AddInput("past_ssm_0", typed(onnx.Float, state))
	number := onnx.NewInt64s("axis", []int64{axis})
	number.Dims = []int64{}
	along := m.Graph.AddInitializer(number)
	rows := op("Gather", nil, weight("table", vocabulary, width), x)
	if masked {
		mask := op("Cast", onnx.IntAttr("to", int64(onnx.Float)), m.Graph.AddInput("mask", typed(onnx.Int64, ids)))
		last := m.Graph.AddInitializer(onnx.NewInt64s("last", []int64{-1}))
		rows = op("Mul", nil, rows, op("Unsqueeze", nil, mask, last))
	}
	sums := op("Add", nil, op("CumSum", nil, rows, along), past)
	end := onnx.NewInt64s("end", []int64{-1})
	present := op("Gather", onnx.IntAttr("axis", axis), sums, m.Graph.AddInitializer(end))
	y := op("MatMul", nil, op("Tanh", nil, sums), weight("head", width, vocabulary))
	y.Name, present.Name = "logits", "present_ssm_0"
	y.SetType(typed(onnx.Float, logits))
	present.SetType(typed(onnx.Float, state))
	m.Graph.AddOutput(y)
	m.Graph.AddOutput(present)
	path := filepath.Join(t.TempDir(), "state.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestState generates with a state of fixed size, and compares with feeding the whole text for each token.
func TestState(t *testing.T) {
	for _, c := range []struct {
		batch, masked bool
		groups        int
	}{{true, false, 2}, {false, false, 3}, {true, true, 1}} {
		r := likeFedAnew(t, openAt(t, stateful(t, c.batch, c.masked)), Options{MaxTokens: 9, PrefillSize: 2},
			[]int64{5, 7, 2}, []int64{9}, []int64{1, 2, 3})
		for i, s := range r.Sequences() {
			if len(s.IDs) != 9 || slices.Max(s.IDs) == slices.Min(s.IDs) {
				t.Errorf("%+v, prompt %d: %v", c, i, s.IDs)
			}
		}
		if b := r.Buffers(); r.g.layout.steady() != nil || b.Steps < 9-3 {
			t.Errorf("%+v: %d steps in fixed memory: %v", c, b.Steps, r.g.layout.steady())
		}
		if len(r.Groups()) != c.groups {
			t.Errorf("%+v: groups %v", c, r.Groups())
		}
	}
}

// TestPaddedStates refuses to pad for a model whose convolution sees the last three tokens, and so forgets padding.
func TestPaddedStates(t *testing.T) {
	const vocabulary, width = 24, 4
	m := onnx.New(10, 21)
	m.Graph.Name = "convolution"
	typed := func(dt onnx.DataType, shape string) onnx.Type {
		return onnx.Type{DataType: dt, HasShape: true, Dims: dims(shape)}
	}
	op := func(name string, attr *onnx.Attribute, inputs ...*onnx.Value) *onnx.Value {
		y := m.Graph.NewValue("h")
		n := m.Graph.AddNode(name, inputs, []*onnx.Value{y})
		if attr != nil {
			n.SetAttr(attr)
		}
		return y
	}
	r := rand.New(rand.NewPCG(4, 1))
	weight := func(name string, dims ...int64) *onnx.Value {
		t := &onnx.Tensor{Dims: dims}
		x := make([]float32, t.Len())
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return m.Graph.AddInitializer(onnx.NewFloat32s(name, dims, x))
	}
	ids := m.Graph.AddInput("input_ids", typed(onnx.Int64, "b s"))
	m.Graph.AddInput("attention_mask", typed(onnx.Int64, "b t"))
	past := m.Graph.AddInput("past_conv", typed(onnx.Float, "b 4 2"))
	turned := onnx.IntsAttr("perm", []int64{0, 2, 1})
	x := op("Transpose", turned, op("Gather", nil, weight("table", vocabulary, width), ids))
	all := op("Concat", onnx.IntAttr("axis", 2), past, x)
	y := op("Conv", onnx.IntAttr("group", width), all, weight("filter", width, 1, 3))
	y = op("MatMul", nil, op("Transpose", turned, y), weight("head", width, vocabulary))
	number := func(name string, x int64) *onnx.Value {
		return m.Graph.AddInitializer(onnx.NewInt64s(name, []int64{x}))
	}
	present := op("Slice", nil, all, number("first", -2), number("last", 1<<40), number("axis", 2))
	y.Name, present.Name = "logits", "present_conv"
	y.SetType(typed(onnx.Float, "b s 24"))
	present.SetType(typed(onnx.Float, "b 4 2"))
	m.Graph.AddOutput(y)
	m.Graph.AddOutput(present)
	path := filepath.Join(t.TempDir(), "convolution.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	groups := likeFedAnew(t, openAt(t, path), Options{MaxTokens: 6}, []int64{5, 7, 2, 9, 1, 3}, []int64{9},
		[]int64{1, 2, 3}).Groups()
	if len(groups) != 3 {
		t.Errorf("groups %v, want each prompt by itself", groups)
	}
}
