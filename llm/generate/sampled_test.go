package generate_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// withSample adds the choice of tokens to a model and returns the path of the patched model.
func withSample(t *testing.T, name string, request rewrite.Request) string {
	t.Helper()
	m, err := onnx.Read(modelPath(name))
	must(t, err)
	defer m.Close()
	request.AssumeAvailable, request.Sample = true, true
	_, err = rewrite.Apply(m, request)
	must(t, err)
	path := filepath.Join(t.TempDir(), name+".onnx")
	must(t, onnx.Write(path, m))
	return path
}

// TestSampleInModel: a model chooses the tokens that the host chooses for the same seeds, whatever its cache is, for
// one sequence and for eight of different lengths, at once and in pieces.
func TestSampleInModel(t *testing.T) {
	static := func(o staticcache.Options) rewrite.Request { return rewrite.Request{StaticCache: &o} }
	all := generate.Sampling{Temperature: 0.8, TopK: 40, TopP: 0.9, MinP: 0.02, RepetitionPenalty: 1.2,
		FrequencyPenalty: 0.5, PresencePenalty: -0.5, Seed: 5}
	samplings := []generate.Sampling{{}, {RepetitionPenalty: 2, FrequencyPenalty: 1}, {Temperature: 1.5, Seed: 3},
		{Temperature: 1.5, TopP: 0.7, Seed: 4}, all}
	for what, path := range map[string]string{
		"cache that grows": withSample(t, "llama-kv-dynamo-fp32", rewrite.Request{}),
		"last logits":      withSample(t, "llama-kv-dynamo-fp32", rewrite.Request{LastLogits: true}),
		"buffers":          withSample(t, "llama-kv-dynamo-fp32", static(staticcache.Options{})),
		"steps": withSample(t, "llama-kv-dynamo-fp32",
			static(staticcache.Options{Length: 40, PastLength: true})),
		"steps by rows": withSample(t, "llama-kv-dynamo-fp32",
			static(staticcache.Options{Length: 40, RowLengths: true})),
		"paged":              withSample(t, "llama-kv-dynamo-fp32", rewrite.Request{PagedCache: 4, LastLogits: true}),
		"paged, every token": withSample(t, "llama-kv-dynamo-fp32", rewrite.Request{PagedCache: 4}),
		"states":             withSample(t, hybrid, rewrite.Request{}),
		"no cache":           withSample(t, "llama-dynamo-fp32", rewrite.Request{}),
	} {
		for ops, g := range map[string]*generate.Generator{"kernels": openWithKernels(t, path),
			"definitions": open(t, path)} {
			rng := rand.New(rand.NewPCG(1, 2))
			var prompts [][]int64
			for i := range 8 {
				p := make([]int64, 3+i%4)
				for k := range p {
					p[k] = rng.Int64N(g.Vocabulary())
				}
				prompts = append(prompts, p)
			}
			if !g.CanSample(prompts[:1]) {
				t.Errorf("%s: the model does not choose tokens", what)
			}
			for _, s := range samplings {
				for _, n := range []int{1, 8} {
					o := generate.Options{Sampling: s, MaxTokens: 12, Margins: true} // the host reads the logits
					want := tokens(t, g, o, prompts[:n]...)
					o.Margins = false
					for _, o.PrefillSize = range []int{0, 2} {
						for i, got := range tokens(t, g, o, prompts[:n]...) {
							if !slices.Equal(got.IDs, want[i].IDs) {
								t.Errorf("%s by %s, %+v, %d prompts, prefill %d, prompt %d: %v, the host chooses %v",
									what, ops, s, n, o.PrefillSize, i, got.IDs, want[i].IDs)
							}
						}
					}
				}
			}
			mixed(t, what+" by "+ops, g, samplings, prompts)
		}
	}
}

// mixed compares a batch of prompts with different options, some of them greedy, with each prompt by itself, where the
// host chooses; with pools also while tokens are tried in advance, which a draft model proposes or the text itself.
func mixed(t *testing.T, what string, g *generate.Generator, samplings []generate.Sampling, prompts [][]int64) {
	t.Helper()
	together := generate.Options{MaxTokens: 14, PrefillSize: 3}
	var want []generate.Sequence
	for i, p := range prompts {
		together.Samplings = append(together.Samplings, samplings[i%len(samplings)])
		alone := generate.Options{Sampling: together.Samplings[i], MaxTokens: 14, Margins: true}
		want = append(want, tokens(t, g, alone, p)...)
	}
	compare := func(how string, o generate.Options) {
		for i, got := range tokens(t, g, o, prompts...) {
			if !slices.Equal(got.IDs, want[i].IDs) {
				t.Errorf("%s, %s, prompt %d: %v, the host chooses %v", what, how, i, got.IDs, want[i].IDs)
			}
		}
	}
	compare("together", together)
	if strings.HasSuffix(what, "definitions") {
		return
	}
	together.Speculate = 4
	if _, err := g.Start(together, prompts...); err == nil {
		compare("in advance", together)
		together.Draft = g
		compare("with itself as a draft", together)
	}
	if _, err := g.Start(together, prompts[0]); err == nil {
		t.Errorf("%s: options of 8 prompts are taken for one", what)
	}
}
