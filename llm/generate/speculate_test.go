package generate_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// TestSpeculate: tokens that are tried in advance are the tokens that are chosen one by one, with every form of cache.
// The prompts repeat parts of the text that follows, so that some tries are right and some are wrong.
func TestSpeculate(t *testing.T) {
	accepted, wrong := 0, 0
	for _, name := range slices.Sorted(maps.Keys(recordings(t))) {
		if name == hybrid {
			continue
		}
		exported := open(t, modelPath(name))
		models := map[string]*generate.Generator{"as exported": exported}
		if slices.Contains(cachedModels, name) {
			models["static"] = openWithKernels(t, withBuffers(t, name, staticcache.Options{}))
			models["static, rows"] = openWithKernels(t, withBuffers(t, name, staticcache.Options{RowLengths: true}))
			models["paged"] = openWithKernels(t, withPools(t, name, 4, false))
		}
		var prompts [][]int64
		for i, p := range recordings(t)[name].Prompts {
			greedy := recordings(t)[name].Greedy[i]
			prompts = append(prompts, slices.Concat(p, greedy[:min(4, len(greedy))], p))
		}
		for _, temperature := range []float64{0, 0.7} {
			o := generate.Options{MaxTokens: 14, Sampling: generate.Sampling{Temperature: temperature, Seed: 5}}
			for what, g := range models {
				want := tokens(t, g, o, prompts...)
				for _, most := range []int{1, 3, 8} {
					tried := o
					tried.Speculate = most
					r, err := g.Start(tried, prompts...)
					must(t, err)
					for _, err := range r.Tokens(t.Context()) {
						must(t, err)
					}
					n := r.Speculation()
					for i, s := range r.Sequences() {
						if !slices.Equal(s.IDs, want[i].IDs) || s.Stop != want[i].Stop {
							t.Errorf("%s, %s, temperature %g, %d in advance, prompt %d: %v (%s), want %v (%s); %+v",
								name, what, temperature, most, i, s.IDs, s.Stop, want[i].IDs, want[i].Stop, n)
						}
					}
					if n.Steps+n.Accepted != r.Times().DecodedTokens || n.Accepted > n.Proposed {
						t.Errorf("%s, %s: %+v, %d tokens", name, what, n, r.Times().DecodedTokens)
					}
					accepted, wrong = accepted+n.Accepted, wrong+n.Proposed-n.Accepted
				}
			}
		}
	}
	if accepted < 50 || wrong < 50 {
		t.Errorf("%d accepted, %d wrong: the prompts try too little", accepted, wrong)
	}
}

// TestSpeculateStops ends a text at a stop token among the accepted ones, and at the end of the context.
func TestSpeculateStops(t *testing.T) {
	g := openWithKernels(t, withPools(t, "absolute-fp16", 4, false))
	prompt := []int64{5, 17, 42, 5, 17, 42, 5, 17}
	whole := tokens(t, g, generate.Options{}, prompt)[0]
	if len(prompt)+len(whole.IDs) != 32 {
		t.Fatalf("%d tokens, ended by %s", len(whole.IDs), whole.Stop)
	}
	for i := range whole.IDs {
		o := generate.Options{StopTokens: whole.IDs[i : i+1]}
		want := tokens(t, g, o, prompt)[0]
		o.Speculate = 8
		got := tokens(t, g, o, prompt, []int64{1, 2, 1, 2})[0]
		if !slices.Equal(got.IDs, want.IDs) || got.Stop != want.Stop {
			t.Errorf("stop at %d: %v (%s), want %v (%s)", whole.IDs[i], got.IDs, got.Stop, want.IDs, want.Stop)
		}
	}
	if got := tokens(t, g, generate.Options{Speculate: 8}, prompt)[0]; !slices.Equal(got.IDs, whole.IDs) {
		t.Errorf("%v, want %v", got.IDs, whole.IDs)
	}
}

// TestSpeculateRefused names what keeps a model from trying tokens in advance.
func TestSpeculateRefused(t *testing.T) {
	last := func(t *testing.T, name string) string {
		m, err := onnx.Read(modelPath(name))
		must(t, err)
		defer m.Close()
		_, err = rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, LastLogits: true})
		must(t, err)
		path := t.TempDir() + "/last.onnx"
		must(t, onnx.Write(path, m))
		return path
	}
	for path, want := range map[string]string{
		modelPath(hybrid):                             "is a state, which cannot take tokens back",
		last(t, "llama-kv-dynamo-fp32"):               "logits of the last token only",
		withPools(t, "llama-kv-dynamo-fp32", 4, true): "logits of the last token only",
	} {
		_, err := open(t, path).Start(generate.Options{Speculate: 2}, []int64{1, 2})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
