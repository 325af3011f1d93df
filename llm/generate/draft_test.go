package generate_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// TestDraft generates with draft models of every form of cache, or without one: the tokens are those without a draft. A
// model that drafts for itself proposes only tokens that it chooses, sampled ones too, so all are accepted.
func TestDraft(t *testing.T) {
	const name = "llama-kv-dynamo-fp32"
	own := map[string]*generate.Generator{"as exported": open(t, modelPath(name)),
		"static":       openWithKernels(t, withBuffers(t, name, staticcache.Options{})),
		"static, rows": openWithKernels(t, withBuffers(t, name, staticcache.Options{RowLengths: true})),
		"paged":        openWithKernels(t, withPools(t, name, 4, false)),
		"last logits":  openWithKernels(t, withPools(t, name, 4, true)),
		"chooses":      openWithKernels(t, withSample(t, name, rewrite.Request{PagedCache: 4, LastLogits: true}))}
	other := map[string]*generate.Generator{"another": open(t, modelPath("qwen3-dynamo-fp32"))}
	wrong := 0
	for _, temperature := range []float64{0, 0.7} {
		o := generate.Options{MaxTokens: 17, Sampling: generate.Sampling{Temperature: temperature, Seed: 3,
			FrequencyPenalty: temperature}}
		prompts := recordings(t)[name].Prompts
		for _, form := range []string{"as exported", "static, rows", "paged"} {
			g := own[form]
			want := tokens(t, g, o, prompts...)
			for itself, drafts := range map[bool]map[string]*generate.Generator{true: own, false: other} {
				for what, draft := range drafts {
					o := o
					o.Draft, o.Speculate = draft, 5
					r, err := g.Start(o, prompts...)
					must(t, err)
					for _, err := range r.Tokens(t.Context()) {
						must(t, err)
					}
					n := r.Speculation()
					for i, s := range r.Sequences() {
						if !slices.Equal(s.IDs, want[i].IDs) {
							t.Errorf("%s, draft %s, temperature %g, prompt %d: %v, want %v", form, what, temperature, i,
								s.IDs, want[i].IDs)
						}
					}
					if n.Proposed == 0 || itself && n.Accepted != n.Proposed {
						t.Errorf("%s, draft %s, temperature %g: %+v", form, what, temperature, n)
					}
					wrong += n.Proposed - n.Accepted
				}
			}
		}
	}
	if wrong < 50 {
		t.Errorf("%d wrong tokens: the drafts agree too often", wrong)
	}
}

// TestDraftRefused: the error names the input that keeps a model from drafting.
func TestDraftRefused(t *testing.T) {
	path := modelPath("llama-kv-dynamo-fp32")
	g := open(t, path)
	m, err := onnx.Read(path)
	must(t, err)
	defer m.Close()
	for _, n := range m.Graph.Nodes {
		if n.Is("Gather") && n.Inputs[0].Const != nil && n.Inputs[0].Const.Dims[0] == 160 {
			n.Inputs[0].Const = onnx.NewFloat32s(n.Inputs[0].Name, []int64{150, 64}, make([]float32, 150*64))
		}
	}
	fewer := filepath.Join(t.TempDir(), "fewer.onnx")
	must(t, onnx.Write(fewer, m))
	for want, o := range map[string]generate.Options{
		"is a state, which cannot take tokens back": {Draft: open(t, modelPath(hybrid)), Speculate: 2},
		"has 150 token ids, but the model has 160":  {Draft: open(t, fewer), Speculate: 2},
		"needs a number of tokens":                  {Draft: g},
	} {
		if _, err := g.Start(o, []int64{1, 2}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
