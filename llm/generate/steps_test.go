package generate_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// ways runs each with every kind of step: tokens chosen by the host or, without states, by the model; on a GPU also as
// CUDA graphs.
func ways(t *testing.T, path string, each func(t *testing.T, g *generate.Generator, chooses bool)) {
	providers := map[string]ort.Option{"": orttest.Provider()}
	if orttest.CUDA() {
		providers["graph "] = orttest.CUDAGraphs()
	}
	for what, provider := range providers {
		for _, chooses := range []bool{false, true} {
			if chooses && filepath.Base(path) == hybrid+".onnx" {
				_, err := generate.OpenChoosing(path, provider)
				if err == nil || !strings.Contains(err.Error(), "has states") {
					t.Errorf("a model with states that chooses: %v", err)
				}
				continue
			}
			t.Run(fmt.Sprintf("%schooses %t", what, chooses), func(t *testing.T) {
				each(t, openAs(t, path, provider, chooses), chooses)
			})
		}
	}
}

// openAs opens a patched model as it is, or as a model that chooses.
func openAs(t *testing.T, path string, provider ort.Option, chooses bool) *generate.Generator {
	t.Helper()
	orttest.Library(t)
	orttest.Kernels(t)
	if chooses {
		g, err := generate.OpenChoosing(path, provider, ort.WithKernels())
		must(t, err)
		t.Cleanup(func() { must(t, g.Close()) })
		return g
	}
	m, err := onnx.Read(path)
	must(t, err)
	defer m.Close()
	session, err := ort.Open(path, provider, ort.WithKernels())
	must(t, err)
	t.Cleanup(func() { must(t, session.Close()) })
	g, err := generate.New(m, session)
	must(t, err)
	return g
}

// TestSteps decodes in fixed memory and compares with transformers: each prompt by itself, and all together.
func TestSteps(t *testing.T) {
	for _, name := range append(slices.Clone(cachedModels), hybrid) {
		want := recordings(t)[name]
		path := withBuffers(t, name, staticcache.Options{PastLength: true})
		ways(t, path, func(t *testing.T, g *generate.Generator, chooses bool) {
			count := len(want.Greedy[0])
			o := generate.Options{MaxTokens: count}
			for i, p := range want.Prompts {
				if got := tokens(t, g, o, p)[0]; !slices.Equal(got.IDs, want.Greedy[i]) {
					t.Errorf("prompt %d: %v, want %v", i, got.IDs, want.Greedy[i])
				}
			}
			r, err := g.Start(o, want.Prompts...)
			must(t, err)
			for _, err := range r.Tokens(t.Context()) {
				must(t, err)
			}
			for i, s := range r.Sequences() {
				if !slices.Equal(s.IDs, want.Together[i]) {
					t.Errorf("together, prompt %d: %v, want %v", i, s.IDs, want.Together[i])
				}
			}
			if b := r.Buffers(); b.Fed != chooses || b.Steps < count-3 {
				t.Errorf("%d steps, chosen by the model: %t", b.Steps, b.Fed)
			}
			o.Sampling = generate.Sampling{Temperature: 1, Seed: 3}
			sampled := tokens(t, g, o, want.Prompts[0])[0].IDs
			if other := tokens(t, open(t, modelPath(name)), o, want.Prompts[0])[0].IDs; !slices.Equal(sampled, other) {
				t.Errorf("sampled %v, want %v", sampled, other)
			}
		})
	}
}

// TestStepsGrow replaces buffers by larger ones between steps. If the number of tokens is given, the buffers are large
// enough from the start.
func TestStepsGrow(t *testing.T) {
	const count = 600
	for name, prompts := range map[string][][]int64{
		"llama-kv-dynamo-fp32": {{5, 17, 42}, {101, 3, 9, 8}},
		hybrid:                 {{5, 17, 42}, {101, 3, 9}}, // of one length, so that they run together
	} {
		want := tokens(t, open(t, modelPath(name)), generate.Options{MaxTokens: count}, prompts...)
		ways(t, withBuffers(t, name, staticcache.Options{PastLength: true}),
			func(t *testing.T, g *generate.Generator, chooses bool) {
				for most, grown := range map[int]int{0: 2, count: 0} {
					r, err := g.Start(generate.Options{MaxTokens: most}, prompts...)
					must(t, err)
					for _, err := range r.Tokens(t.Context()) {
						must(t, err)
						if len(r.Sequences()[1].IDs) == count {
							break
						}
					}
					for i, s := range r.Sequences() {
						if !slices.Equal(s.IDs, want[i].IDs) {
							t.Errorf("prompt %d: %v, want %v", i, s.IDs, want[i].IDs)
						}
					}
					if b := r.Buffers(); b.Grown != grown || b.Slots != 1024 || b.Steps < count-5 || b.Fed != chooses {
						t.Errorf("%+v", b)
					}
				}
			})
	}
}

// TestStepsByRows decodes prompts of unequal lengths together without padding, each with its own number of tokens in
// the buffers, and compares with the unpatched model on each prompt separately.
func TestStepsByRows(t *testing.T) {
	prompts := [][]int64{{5, 17, 42}, {101, 3, 9, 8, 77, 12, 30, 2}, {9}, {64, 11, 5, 8, 120}}
	o := generate.Options{MaxTokens: 22}
	for _, name := range cachedModels {
		var want []generate.Sequence
		g := open(t, modelPath(name))
		for _, p := range prompts {
			want = append(want, tokens(t, g, o, p)[0])
		}
		path := withBuffers(t, name, staticcache.Options{RowLengths: true})
		paths := []string{path}
		if name == "llama-kv-dynamo-fp32" {
			paths = append(paths, lastOnly(t, path, false), lastOnly(t, path, true))
		}
		for k, path := range paths {
			ways(t, path, func(t *testing.T, g *generate.Generator, chooses bool) {
				r, err := g.Start(o, prompts...)
				must(t, err)
				for _, err := range r.Tokens(t.Context()) {
					must(t, err)
				}
				for i, s := range r.Sequences() {
					if !slices.Equal(s.IDs, want[i].IDs) {
						t.Errorf("%s, %d, prompt %d: %v, alone %v", name, k, i, s.IDs, want[i].IDs)
					}
				}
				if b := r.Buffers(); b.Fed != chooses || b.Steps != o.MaxTokens-1 || !b.Rows {
					t.Errorf("%s, %d: %+v", name, k, b)
				}
			})
		}
	}
}

// TestStepsStop ends sequences at each of the tokens that are chosen ahead, with two prompts together.
func TestStepsStop(t *testing.T) {
	const name = "llama-kv-dynamo-fp32"
	prompts := [][]int64{{5, 17, 42}, {101, 3, 9}}
	full := tokens(t, open(t, modelPath(name)), generate.Options{MaxTokens: 3 * generate.Remembered}, prompts...)
	upTo := func(ids []int64, stop int64) []int64 {
		if i := slices.Index(ids, stop); i >= 0 {
			return ids[:i+1]
		}
		return ids
	}
	ways(t, withBuffers(t, name, staticcache.Options{PastLength: true}),
		func(t *testing.T, g *generate.Generator, chooses bool) {
			for n := range full[0].IDs {
				stop := full[0].IDs[n]
				o := generate.Options{MaxTokens: 3 * generate.Remembered, StopTokens: []int64{stop}}
				for i, s := range tokens(t, g, o, prompts...) {
					if want := upTo(full[i].IDs, stop); !slices.Equal(s.IDs, want) {
						t.Errorf("stop at %d, prompt %d: %v, want %v", stop, i, s.IDs, want)
					}
				}
				o = generate.Options{MaxTokens: n + 1}
				if got := tokens(t, g, o, prompts[0])[0]; !slices.Equal(got.IDs, full[0].IDs[:n+1]) {
					t.Errorf("%d tokens: %v, want %v", n+1, got.IDs, full[0].IDs[:n+1])
				}
			}
		})
}

// TestStepsFill fills buffers to their last slot.
func TestStepsFill(t *testing.T) {
	const name, room = "llama-kv-dynamo-fp32", 37
	prompt := []int64{5, 17, 42}
	want := tokens(t, open(t, modelPath(name)), generate.Options{MaxTokens: room - len(prompt)}, prompt)[0].IDs
	ways(t, withBuffers(t, name, staticcache.Options{Length: room, PastLength: true}),
		func(t *testing.T, g *generate.Generator, chooses bool) {
			got := tokens(t, g, generate.Options{}, prompt)[0]
			if !slices.Equal(got.IDs, want) || got.Stop != generate.StopContext {
				t.Errorf("%v (%s), want %v", got.IDs, got.Stop, want)
			}
		})
}

// TestStepsTies makes many logits equal, in each type, and expects the lowest id.
func TestStepsTies(t *testing.T) {
	const name = "llama-kv-dynamo-fp32"
	buffers := withBuffers(t, name, staticcache.Options{PastLength: true})
	dims := []onnx.Dim{{Value: -1, Param: "rows"}, {Value: -1, Param: "tokens"}, {Value: 160}}
	for _, dt := range []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16} {
		path := behind(t, buffers, dt, dims, func(g *onnx.Graph, raw *onnx.Value) *onnx.Node {
			whole := g.NewValue("whole")
			g.AddNode("Round", []*onnx.Value{raw}, []*onnx.Value{whole})
			return g.AddNode("Cast", []*onnx.Value{whole}, []*onnx.Value{g.NewValue("y")},
				onnx.IntAttr("to", int64(dt)))
		})
		var first []int64
		ways(t, path, func(t *testing.T, g *generate.Generator, chooses bool) {
			got := tokens(t, g, generate.Options{MaxTokens: 20}, []int64{5, 17, 42})[0].IDs
			if first == nil {
				first = got
			}
			if !slices.Equal(got, first) {
				t.Errorf("%s: %v, the other way %v", dt, got, first)
			}
		})
	}
}

// TestChooserNames refuses a model that already uses one of the added names.
func TestChooserNames(t *testing.T) {
	m, err := onnx.Read(withBuffers(t, "llama-kv-dynamo-fp32", staticcache.Options{PastLength: true}))
	must(t, err)
	defer m.Close()
	m.Graph.NewValue("generate.next_ids")
	if err := generate.AddChooser(m); err == nil || !strings.Contains(err.Error(), `a value "generate.next_ids"`) {
		t.Error(err)
	}
}

// TestNoNumbers makes the logits after the prompt NaN and expects an error that names the sequence.
func TestNoNumbers(t *testing.T) {
	const name = "llama-kv-dynamo-fp32"
	dims := []onnx.Dim{{Value: -1, Param: "rows"}, {Value: -1, Param: "tokens"}, {Value: 160}}
	path := behind(t, withBuffers(t, name, staticcache.Options{PastLength: true}), onnx.Float, dims,
		func(g *onnx.Graph, raw *onnx.Value) *onnx.Node {
			node := func(op string, inputs ...*onnx.Value) *onnx.Value {
				v := g.NewValue(op)
				g.AddNode(op, inputs, []*onnx.Value{v})
				return v
			}
			late := node("Greater", g.Value("past_length"), g.AddInitializer(onnx.NewInt64s("most", []int64{6})))
			nan := g.AddInitializer(onnx.NewFloat32s("nan", nil, []float32{float32(math.NaN())}))
			return g.AddNode("Where", []*onnx.Value{late, nan, raw}, []*onnx.Value{g.NewValue("y")})
		})
	ways(t, path, func(t *testing.T, g *generate.Generator, chooses bool) {
		r, err := g.Start(generate.Options{MaxTokens: 9}, []int64{5, 17, 42})
		must(t, err)
		for _, e := range r.Tokens(t.Context()) {
			err = e
		}
		why := "is NaN"
		if chooses {
			why = "is not a number"
		}
		if err == nil || !strings.Contains(err.Error(), "logits") || !strings.Contains(err.Error(), why) {
			t.Error(err)
		}
	})
}
