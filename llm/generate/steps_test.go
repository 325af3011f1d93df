package generate_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// ways are those in which steps are run: the host chooses tokens, or they are chosen beside the logits; and, on a GPU,
// either as CUDA graphs.
func ways(t *testing.T, path string, each func(t *testing.T, g *generate.Generator, beside bool)) {
	providers := map[string]ort.Option{"": orttest.Provider()}
	if orttest.CUDA() {
		providers["graph "] = orttest.CUDAGraphs()
	}
	for what, provider := range providers {
		for _, beside := range []bool{false, true} {
			t.Run(fmt.Sprintf("%sbeside %t", what, beside), func(t *testing.T) {
				g := openOn(t, path, provider)
				g.ChooseBesideLogits(beside)
				each(t, g, beside)
			})
		}
	}
}

// TestSteps decodes in memory that stays where it is, what transformers does: each prompt alone, and all together.
func TestSteps(t *testing.T) {
	for _, name := range cachedModels {
		want := recordings(t)[name]
		path := withBuffers(t, name, 0, rewrite.WithPastLength())
		ways(t, path, func(t *testing.T, g *generate.Generator, beside bool) {
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
			if b := r.Buffers(); b.Fed != beside || b.Steps < count-3 {
				t.Errorf("%d steps, chosen beside the logits: %t", b.Steps, b.Fed)
			}
			o.Sampling = generate.Sampling{Temperature: 1, Seed: 3}
			sampled := tokens(t, g, o, want.Prompts[0])[0].IDs
			if other := tokens(t, open(t, modelPath(name)), o, want.Prompts[0])[0].IDs; !slices.Equal(sampled, other) {
				t.Errorf("sampled %v, want %v", sampled, other)
			}
		})
	}
}

// TestStepsGrow exchanges buffers for greater ones between steps. Where it is said how many tokens are to come, they
// are long enough from the beginning.
func TestStepsGrow(t *testing.T) {
	const name, count = "llama-kv-dynamo-fp32", 600
	prompts := [][]int64{{5, 17, 42}, {101, 3, 9, 8}}
	want := tokens(t, open(t, modelPath(name)), generate.Options{MaxTokens: count}, prompts...)
	ways(t, withBuffers(t, name, 0, rewrite.WithPastLength()),
		func(t *testing.T, g *generate.Generator, beside bool) {
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
				if b := r.Buffers(); b.Grown != grown || b.Slots != 1024 || b.Steps < count-5 || b.Fed != beside {
					t.Errorf("%+v", b)
				}
			}
		})
}

// TestFeeder chooses the first of equal tokens, in rows of each type of logits, and counts on.
func TestFeeder(t *testing.T) {
	rows := [][]float64{{1, 3, 2, 3, math.Inf(-1)}, {-7, -7, -7, -7, -7}, {math.Inf(-1), -3, -2, -3, -2}}
	want := []int64{1, 0, 2}
	for _, dt := range []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16} {
		for _, idType := range []onnx.DataType{onnx.Int64, onnx.Int32} {
			e, err := reference.New(generate.FeederModel(dt, idType, 3, 5), reference.Options{})
			must(t, err)
			got, err := e.Run(map[string]*reference.Tensor{
				"logits":    reference.NewFloats(dt, []int{3, 1, 5}, slices.Concat(rows...)),
				"length":    reference.NewInts(onnx.Int64, []int{1}, []int64{41}),
				"positions": reference.NewInts(idType, []int{3, 1}, []int64{1, 2, 3}),
			})
			must(t, err)
			for name, want := range map[string][]int64{"chosen": want, "ids": want, "length.next": {42},
				"positions.next": {2, 3, 4}} {
				if !slices.Equal(got[name].I, want) {
					t.Errorf("%s, %s: %s is %v, want %v", dt, idType, name, got[name].I, want)
				}
			}
			if want := []float64{3, -7, -2}; !slices.Equal(got["greatest"].F, want) {
				t.Errorf("%s: the greatest are %v, want %v", dt, got["greatest"].F, want)
			}
		}
	}
}

// TestNoNumbers has logits become no numbers behind the prompt: an error names the sequence.
func TestNoNumbers(t *testing.T) {
	const name = "llama-kv-dynamo-fp32"
	dims := []onnx.Dim{{Value: -1, Param: "rows"}, {Value: -1, Param: "tokens"}, {Value: 160}}
	path := behind(t, withBuffers(t, name, 0, rewrite.WithPastLength()), onnx.Float, dims,
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
	ways(t, path, func(t *testing.T, g *generate.Generator, beside bool) {
		r, err := g.Start(generate.Options{MaxTokens: 9}, []int64{5, 17, 42})
		must(t, err)
		for _, e := range r.Tokens(t.Context()) {
			err = e
		}
		if err == nil || !strings.Contains(err.Error(), "logits") || !strings.Contains(err.Error(), "is NaN") {
			t.Error(err)
		}
	})
}
