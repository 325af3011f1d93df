package trace

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// evaluated runs pieces in the built-in evaluator.
type evaluated struct{ *reference.Evaluator }

func (e evaluated) Run(inputs []*onnx.Tensor) ([]*onnx.Tensor, error) { return e.RunTensors(inputs) }
func (e evaluated) Close() error                                      { return nil }

func evaluator(m *onnx.Model) (Runner, error) {
	e, err := reference.New(m, reference.Options{})
	return evaluated{e}, err
}

func read(t *testing.T, name string) *onnx.Model {
	t.Helper()
	m, err := onnx.Read(filepath.Join("..", "models", name+".onnx"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if _, err := m.InlineFunctions(func(f *onnx.Function) bool { return f.Domain == fused.Domain }); err != nil {
		t.Fatal(err)
	}
	return m
}

func patched(t *testing.T, name string) *onnx.Model {
	t.Helper()
	m := read(t, name)
	r, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff})
	if err != nil {
		t.Fatal(err)
	}
	if r.Fused() == 0 {
		t.Fatalf("nothing was fused in %s", name)
	}
	return m
}

func compare(t *testing.T, a, b *onnx.Model, o Options) *Comparison {
	t.Helper()
	o.OpenA, o.OpenB = evaluator, evaluator
	inputs, err := golden.RandomInputs(a, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewComparer(a, b, o).Run(inputs, inputs, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBlocks finds the blocks of exports with a norm before each block, on both sides or after it, with attention
// parallel to the MLP, with a recurrence instead of attention, and with experts.
func TestBlocks(t *testing.T) {
	usual := "embedding, layer 0 norm, layer 0 attention, layer 0 mlp, " +
		"layer 1 norm, layer 1 attention, layer 1 mlp, head"
	for name, want := range map[string]string{
		"qwen3-dynamo-fp32": usual, "gemma2-ts-fp32": usual,
		"llama-dynamo23-fp32":           usual,
		"bamba-dynamo-fp32":             strings.Replace(usual, "layer 0 attention", "layer 0 mixer", 1),
		"gptoss-batched_mm-dynamo-fp32": strings.ReplaceAll(usual, "mlp", "experts"),
		"deepseek3-batched_mm-ts-fp32":  strings.Replace(usual, "layer 1 mlp", "layer 1 experts", 1),
	} {
		for how, m := range map[string]*onnx.Model{"as exported": read(t, name), "patched": patched(t, name)} {
			blocks := Blocks(m)
			have := map[string]bool{}
			for _, n := range m.Graph.Nodes {
				if !n.Is("Constant") {
					have[blocks[n].String()] = true
				}
			}
			delete(have, Tables)
			for _, block := range strings.Split(want, ", ") {
				if !have[block] {
					t.Errorf("%s %s: no %s", name, how, block)
				}
				delete(have, block)
			}
			for block := range have {
				t.Errorf("%s %s: there is a %s", name, how, block)
			}
		}
	}
}

// TestCompare compares exports with their patched models. All values must agree.
func TestCompare(t *testing.T) {
	for name, least := range map[string]int{"qwen3-dynamo-fp32": 40, "llama-ts-fp32": 40, "qwen3-ts-fp16": 40,
		"deepseek3-batched_mm-ts-fp32": 55, "moe-loop-ts-fp32": 9} {
		r := compare(t, read(t, name), patched(t, name), Options{})
		if first := r.First(); first != nil {
			t.Errorf("%s: %+v", name, first)
		}
		if len(r.Rows) < least || len(r.Outputs) == 0 || len(r.Unlike) > 4 {
			t.Errorf("%s: %d values and %d outputs were compared, %q not", name, len(r.Rows), len(r.Outputs), r.Unlike)
		}
	}
}

// TestStripped aligns a patched model without its metadata and value names.
func TestStripped(t *testing.T) {
	a, b := read(t, "qwen3-dynamo-fp32"), patched(t, "qwen3-dynamo-fp32")
	truth := map[*onnx.Value]*onnx.Value{}
	for _, p := range Align(a, b) {
		truth[p.A] = p.B
	}
	for i, n := range b.Graph.Nodes {
		n.Metadata, n.Name = nil, ""
		for _, v := range n.Outputs {
			if v != nil && !v.IsOutput() {
				v.Name = "v" + digits(i) + "_" + digits(v.Output)
			}
		}
	}
	pairs := Align(a, b)
	for _, p := range pairs {
		if truth[p.A] != p.B {
			t.Errorf("%q is taken for %q by %s", p.A.Name, p.B.Name, p.By)
		}
	}
	if len(pairs) < len(truth)*9/10 {
		t.Errorf("%d of %d pairs were found", len(pairs), len(truth))
	}
	if first := compare(t, a, b, Options{}).First(); first != nil {
		t.Errorf("%+v", first)
	}
}

// TestOtherNames must not align values by a misleading name.
func TestOtherNames(t *testing.T) {
	a, b := read(t, "qwen3-dynamo-fp32"), patched(t, "qwen3-dynamo-fp32")
	nodes := b.Graph.Nodes
	for i, n := range nodes { // every value has the name of the previous one
		n.Metadata = nil
		if i > 0 && !n.Outputs[0].IsOutput() {
			n.Outputs[0].Name = a.Graph.Nodes[i-1].Outputs[0].Name
		}
	}
	if r := compare(t, a, b, Options{}); r.First() != nil || len(r.Unlike) > 4 {
		t.Errorf("%+v %q", r.First(), r.Unlike)
	}
}

// TestPlanted finds a norm with another epsilon in the second layer.
func TestPlanted(t *testing.T) {
	for _, by := range []string{"metadata", "structure"} {
		a, b := read(t, "qwen3-dynamo-fp32"), patched(t, "qwen3-dynamo-fp32")
		blocks := Blocks(b)
		var wrong *onnx.Node
		for _, n := range b.Graph.Nodes {
			if by == "structure" {
				n.Metadata = nil
			}
			if blocks[n] == (Block{1, Norm}) && wrong == nil {
				wrong = n
			}
		}
		wrong.SetAttr(onnx.FloatAttr("epsilon", 0.5))
		r := compare(t, a, b, Options{})
		first := r.First()
		if first == nil || first.Block != "layer 1 norm" || first.OpB != "mojo.AddRMSNorm" || first.Before == nil ||
			*first.Before > 1e-5 {
			t.Errorf("%s: %+v", by, first)
		}
		for _, row := range r.Blocks() {
			if strings.HasPrefix(row.Block, "layer 0") && row.Failed > 0 || row.Block == Head && row.Failed == 0 {
				t.Errorf("%s: %+v", by, row)
			}
		}
	}
}

// TestMemory compares models whose values take ten times the allowed memory.
func TestMemory(t *testing.T) {
	const width, layers = 1 << 14, 100
	model := func() *onnx.Model {
		b := onnxtest.New(21)
		x := b.Input("x", onnx.Float, "n")
		for range layers {
			x = b.Op("Add", b.Op("Tanh", x), x)
		}
		b.Output(x)
		return b.Model
	}
	x := onnx.NewFloat32s("x", []int64{width}, slices.Repeat([]float32{0.5}, width))
	const all = 2 * 2 * layers * 4 * width // two models, two values per layer
	a, b := model(), model()
	o := Options{OpenA: evaluator, OpenB: evaluator, MaxMemory: all / 10}
	r, err := NewComparer(a, b, o).Run([]*onnx.Tensor{x}, []*onnx.Tensor{x}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2*layers || r.Bytes != all || r.Peak > o.MaxMemory || r.Pieces < 10 || r.First() != nil {
		t.Errorf("%d values, %d bytes in %d pieces, at most %d at once", len(r.Rows), r.Bytes, r.Pieces, r.Peak)
	}
	o.MaxMemory = 4 * width
	if _, err := NewComparer(a, b, o).Run([]*onnx.Tensor{x}, []*onnx.Tensor{x}, 0); err == nil ||
		!strings.Contains(err.Error(), "more than") {
		t.Errorf("%v", err)
	}
}

// router is a model that multiplies each token with the factors of the two experts with the best scores.
func router(nudge float32) *onnx.Model {
	b := onnxtest.New(21)
	b.Output(routed(b, b.Input("x", onnx.Float, "n", 4), nudge))
	return b.Model
}

func routed(b *onnxtest.Builder, x *onnx.Value, nudge float32) *onnx.Value {
	scores := b.Op("Add", x, b.Floats([]int64{4}, 0, 0, nudge, 0))
	best := b.Ops(2, "TopK", scores, b.Ints(2))
	chosen := b.Op("Gather", b.Floats([]int64{4}, 1, 10, 100, 1000), best[1])
	return b.Op("Mul", b.Op("Identity", best[0]), chosen)
}

// TestRouterTies finds the tokens that choose other experts, and among these the tokens that do so in a tie.
func TestRouterTies(t *testing.T) {
	x := onnx.NewFloat32s("x", []int64{3, 4}, []float32{
		1, 0.5, 0.5 - 1e-6, 0, // a tie between experts 1 and 2
		1, 0.5, 0.2, 0,
		1, 0.5, 0.1, 0.4})
	inputs := []*onnx.Tensor{x}
	run := func(nudge float32, ties bool) *Comparison {
		a, b := router(0), router(nudge)
		o := Options{OpenA: evaluator, OpenB: evaluator, RouterTies: ties}
		r, err := NewComparer(a, b, o).Run(inputs, inputs, 0)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := run(0, false); len(r.Routers) != 0 || len(r.Near) != 1 || r.Near[0].Token != 0 || r.Near[0].Tokens != 3 ||
		r.Near[0].Expert != 1 || r.Near[0].Other != 2 || r.Near[0].Margin < 5e-7 || r.Near[0].Margin > 2e-6 {
		t.Errorf("the same choices, one of them a tie: %+v", r)
	}
	r := run(2e-6, false)
	if len(r.Routers) != 1 || len(r.Routers[0].Flips) != 1 || golden.Passed(r.Outputs) {
		t.Fatalf("%+v", r.Routers)
	}
	f := r.Routers[0].Flips[0]
	if f.Token != 0 || !f.Tie || f.Margin == nil || *f.Margin < 5e-7 || *f.Margin > 2e-6 ||
		!slices.Equal(f.Experts, []int64{0, 1}) || !slices.Equal(f.Other, []int64{0, 2}) {
		t.Errorf("%+v", f)
	}
	if r := run(2e-6, true); !golden.Passed(r.Outputs) || r.Routers[0].Ties() != 1 {
		t.Errorf("with ties followed: %+v", r.First())
	}
	if r := run(0.35, true); golden.Passed(r.Outputs) || len(r.Routers[0].Flips) != 2 || r.Routers[0].Ties() != 1 {
		t.Errorf("a token that is no tie chose another expert: %+v", r.Routers)
	}
}
