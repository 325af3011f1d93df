package generate_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// withBuffers adds buffers to a model and returns the path of the patched model.
func withBuffers(t *testing.T, name string, cache staticcache.Options) string {
	t.Helper()
	m, err := onnx.Read(modelPath(name))
	must(t, err)
	defer m.Close()
	_, err = rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, StaticCache: &cache})
	must(t, err)
	path := filepath.Join(t.TempDir(), name+".onnx")
	must(t, onnx.Write(path, m))
	return path
}

// reverted writes the fused ops of a patched model as standard ops, and returns the path of the result.
func reverted(t *testing.T, path string) string {
	t.Helper()
	m, err := onnx.Read(path)
	must(t, err)
	defer m.Close()
	_, err = rewrite.Revert(m, nil)
	must(t, err)
	out := filepath.Join(t.TempDir(), "reverted.onnx")
	must(t, onnx.Write(out, m))
	return out
}

// openWithKernels opens a patched model.
func openWithKernels(t *testing.T, path string) *generate.Generator {
	t.Helper()
	return openOn(t, path, orttest.Provider())
}

// openOn opens a patched model on a provider.
func openOn(t *testing.T, path string, provider ort.Option) *generate.Generator {
	t.Helper()
	orttest.Library(t)
	orttest.Kernels(t)
	g, err := generate.Open(path, provider, ort.WithKernels())
	must(t, err)
	t.Cleanup(func() { must(t, g.Close()) })
	return g
}

// cachedModels are the recorded models that have only caches of keys and values.
var cachedModels = []string{"positions-fp32", "cache-fp16", "absolute-fp16", "llama-kv-dynamo-fp32"}

// hybrid is the recorded model that has states too.
const hybrid = "hybrid-fp32"

// TestBuffers compares generation with in-place buffers with transformers: each prompt by itself, all together, and in
// pieces; with kernels, with definitions, and in standard ops.
func TestBuffers(t *testing.T) {
	for _, name := range append(cachedModels, hybrid) {
		want, ok := recordings(t)[name]
		if !ok {
			t.Fatalf("%s has no recording", name)
		}
		path := withBuffers(t, name, staticcache.Options{})
		fixed := withBuffers(t, name, staticcache.Options{Length: 40, PastLength: true})
		for what, g := range map[string]*generate.Generator{"kernels": openWithKernels(t, path),
			"definitions": open(t, path), "kernels, with past_length": openWithKernels(t, fixed),
			"standard ops":                   open(t, reverted(t, path)),
			"standard ops, with past_length": open(t, reverted(t, fixed))} {
			o := generate.Options{MaxTokens: len(want.Greedy[0])}
			for i, p := range want.Prompts {
				if got := tokens(t, g, o, p)[0]; !slices.Equal(got.IDs, want.Greedy[i]) {
					t.Errorf("%s by %s, prompt %d: %v, want %v", name, what, i, got.IDs, want.Greedy[i])
				}
			}
			for _, size := range []int{0, 1, 3} {
				o.PrefillSize = size
				for i, s := range tokens(t, g, o, want.Prompts...) {
					if !slices.Equal(s.IDs, want.Together[i]) {
						t.Errorf("%s by %s, together, prefill %d, prompt %d: %v, want %v", name, what, size, i, s.IDs,
							want.Together[i])
					}
				}
			}
		}
	}
}

// TestRowLengths generates from prompts of different lengths without padding, and compares with the unpatched model on
// each prompt separately, over more than ten steps: with kernels, definitions, prompts in pieces, and a growing cache.
// Prompts of a model with states, which padding after a prompt changes too, run by length.
func TestRowLengths(t *testing.T) {
	prompts := [][]int64{{5, 17, 42}, {101, 3, 9, 8, 77, 12, 30, 2}, {9}, {64, 11, 5, 8, 120}}
	o := generate.Options{MaxTokens: 14}
	for _, name := range append(cachedModels, hybrid) {
		var want []generate.Sequence
		g := open(t, modelPath(name))
		for _, p := range prompts {
			want = append(want, tokens(t, g, o, p)[0])
		}
		path := withBuffers(t, name, staticcache.Options{RowLengths: true})
		for what, g := range map[string]*generate.Generator{"kernels": openWithKernels(t, path),
			"definitions": open(t, path)} {
			for _, size := range []int{0, 1, 3} {
				o.PrefillSize = size
				r, err := g.Start(o, prompts...)
				must(t, err)
				for _, err := range r.Tokens(t.Context()) {
					must(t, err)
				}
				for i, s := range r.Sequences() {
					if !slices.Equal(s.IDs, want[i].IDs) {
						t.Errorf("%s by %s, prefill %d, prompt %d: %v, alone %v", name, what, size, i, s.IDs,
							want[i].IDs)
					}
				}
				want := 1
				if name == hybrid {
					want = len(prompts)
				}
				if groups := r.Groups(); len(groups) != want || len(groups[0]) != len(prompts)+1-want {
					t.Errorf("%s by %s: groups %v", name, what, groups)
				}
			}
			o.PrefillSize = 0
		}
	}
	o.MaxTokens = 300
	want := tokens(t, open(t, modelPath("llama-kv-dynamo-fp32")), o, prompts[2])[0]
	got := tokens(t, openWithKernels(t, withBuffers(t, "llama-kv-dynamo-fp32", staticcache.Options{RowLengths: true})),
		o,
		prompts...)[2]
	if !slices.Equal(got.IDs, want.IDs) {
		t.Errorf("grown: %v, alone %v", got.IDs, want.IDs)
	}
}

// TestBuffersGrow generates more tokens than buffers of any length first have room for.
func TestBuffersGrow(t *testing.T) {
	const name, count = "llama-kv-dynamo-fp32", 600
	prompts := [][]int64{{5, 17, 42}, {101, 3, 9, 8}}
	o := generate.Options{MaxTokens: count}
	want := tokens(t, open(t, modelPath(name)), o, prompts...)
	r, err := openWithKernels(t, withBuffers(t, name, staticcache.Options{})).Start(o, prompts...)
	must(t, err)
	for _, err := range r.Tokens(t.Context()) {
		must(t, err)
	}
	for i, s := range r.Sequences() {
		if !slices.Equal(s.IDs, want[i].IDs) {
			t.Errorf("prompt %d: %v, want %v", i, s.IDs, want[i].IDs)
		}
	}
	bytes := int64(4 * 2 * 2 * 1024 * 16 * 4)
	if got := r.Buffers(); got != (generate.Buffers{Count: 4, Slots: 1024, Bytes: bytes, Grown: 2}) {
		t.Errorf("buffers are %+v, want %d bytes", got, bytes)
	}
}

// TestFullBuffers expects generation to end when the buffers of 12 slots are full.
func TestFullBuffers(t *testing.T) {
	g := openWithKernels(t, withBuffers(t, "llama-kv-dynamo-fp32", staticcache.Options{Length: 12}))
	got := tokens(t, g, generate.Options{}, []int64{5, 17, 42})[0]
	want := tokens(t, open(t, modelPath("llama-kv-dynamo-fp32")), generate.Options{MaxTokens: 9}, []int64{5, 17, 42})[0]
	if !slices.Equal(got.IDs, want.IDs) || got.Stop != generate.StopContext {
		t.Errorf("%v (%s), want %v", got.IDs, got.Stop, want.IDs)
	}
	_, err := g.Start(generate.Options{}, make([]int64, 13))
	if err == nil || !strings.Contains(err.Error(), `13 tokens, but the cache of input "past_k0" holds only 12`) {
		t.Errorf("a prompt that is too long: %v", err)
	}
	// padding leaves the shorter prompt no room for all its tokens
	r, err := g.Start(generate.Options{MaxTokens: 7}, make([]int64, 4), make([]int64, 9))
	must(t, err)
	for _, e := range r.Tokens(t.Context()) {
		err = e
	}
	if err == nil || !strings.Contains(err.Error(), `the cache is too small: input "past_k0" holds 12 tokens`) {
		t.Errorf("a cache that is full: %v", err)
	}
}
