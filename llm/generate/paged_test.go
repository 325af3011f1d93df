package generate_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// withPools turns the caches of a model into pools, and returns the path of the patched model.
func withPools(t *testing.T, name string, block int64, last bool) string {
	t.Helper()
	return withCodes(t, name, block, last, onnx.Undefined)
}

// withCodes is withPools for pools of codes.
func withCodes(t *testing.T, name string, block int64, last bool, codes onnx.DataType) string {
	t.Helper()
	m, err := onnx.Read(modelPath(name))
	must(t, err)
	defer m.Close()
	_, err = rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, PagedCache: block, LastLogits: last,
		PagedType: codes})
	must(t, err)
	path := filepath.Join(t.TempDir(), name+".onnx")
	must(t, onnx.Write(path, m))
	return path
}

// TestPaged compares generation from pools of blocks with transformers: each prompt by itself, all together, and in
// pieces; with kernels, with definitions, and in standard ops.
func TestPaged(t *testing.T) {
	for _, name := range append(slices.Clone(cachedModels), "llama-merged-ts-fp32") {
		want := recordings(t)[name]
		path := withPools(t, name, 4, true)
		for what, g := range map[string]*generate.Generator{"kernels": openWithKernels(t, path),
			"definitions":                    open(t, path),
			"standard ops":                   open(t, reverted(t, path)),
			"kernels, logits of every token": openWithKernels(t, withPools(t, name, 16, false))} {
			o := generate.Options{MaxTokens: len(want.Greedy[0])}
			for i, p := range want.Prompts {
				if got := tokens(t, g, o, p)[0]; !slices.Equal(got.IDs, want.Greedy[i]) {
					t.Errorf("%s by %s, prompt %d: %v, want %v", name, what, i, got.IDs, want.Greedy[i])
				}
			}
			for _, size := range []int{0, 1, 3} {
				o.PrefillSize = size
				for i, s := range tokens(t, g, o, want.Prompts...) {
					if !slices.Equal(s.IDs, want.Greedy[i]) {
						t.Errorf("%s by %s, together, prefill %d, prompt %d: %v, want %v", name, what, size, i, s.IDs,
							want.Greedy[i])
					}
				}
			}
		}
	}
}

// someText returns 90 tokens.
func someText() (text []int64) {
	for i := range int64(90) {
		text = append(text, (i*i+3*i+1)%160)
	}
	return text
}

// TestPagedPrefixes generates from prompts that begin alike, some of which end before others, in pools that grow, and
// compares the tokens with the model as exported.
func TestPagedPrefixes(t *testing.T) {
	const name = "llama-kv-dynamo-fp32"
	text := someText()
	prompts := [][]int64{text[:64], append(slices.Clone(text[:40]), 7, 8, 9), text[:64], text[:17], text, {5},
		append(slices.Clone(text[:80]), 3)}
	exported := open(t, modelPath(name))
	for _, block := range []int64{1, 16, 256} {
		g := openWithKernels(t, withPools(t, name, block, true))
		for _, size := range []int{0, 7} {
			o := generate.Options{MaxTokens: 300, PrefillSize: size}
			r, err := g.Start(o, prompts...)
			must(t, err)
			for _, err := range r.Tokens(t.Context()) {
				must(t, err)
			}
			for i, s := range r.Sequences() {
				if want := tokens(t, exported, o, prompts[i])[0]; !slices.Equal(s.IDs, want.IDs) {
					t.Errorf("blocks of %d, prefill %d, prompt %d: %v, want %v", block, size, i, s.IDs, want.IDs)
				}
			}
			if b := r.Buffers(); len(r.Groups()) != 1 || b.Grown == 0 && block < 256 || b.Count != 4 {
				t.Errorf("blocks of %d: %d groups, buffers %+v", block, len(r.Groups()), b)
			}
		}
	}
}

// windowed returns a model of two layers, some of which see only the tokens of a window, and the model with pools.
func windowed(t *testing.T, window, block int64, layers ...int) (exported, pools string) {
	t.Helper()
	m, err := onnx.Read(modelPath("llama-kv-dynamo-fp32"))
	must(t, err)
	defer m.Close()
	g := m.Graph
	node := func(op string, in ...*onnx.Value) *onnx.Value {
		out := g.NewValue("window")
		g.AddNode(op, in, []*onnx.Value{out})
		return out
	}
	begin := node("Sub", g.Value("unsqueeze_9"), g.AddInitializer(onnx.NewInt64s("size", []int64{window})))
	seen := node("And", g.Value("bitwise_and_1"), node("Greater", g.Value("unsqueeze_12"), begin))
	old, uses := g.Value("val_233").Producer, slices.Clone(g.Value("val_233").Uses())
	bias := node("Where", node("Expand", seen, g.Value("val_78")), old.Input(1), old.Input(2))
	for _, i := range layers {
		uses[i].Node.SetInput(uses[i].Index, bias)
	}
	must(t, g.Sort())
	exported, pools = filepath.Join(t.TempDir(), "windowed.onnx"), filepath.Join(t.TempDir(), "pools.onnx")
	must(t, onnx.Write(exported, m))
	r, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, PagedCache: block})
	must(t, err)
	if r.Paged.Window != window {
		t.Fatalf("a window of %d tokens is reported", r.Paged.Window)
	}
	must(t, onnx.Write(pools, m))
	return exported, pools
}

// TestPagedWindows generates from models with windows, whose freed blocks other sequences take: prompts that share more
// than a window, chunks that cross its edge, and drafts that take tokens back.
func TestPagedWindows(t *testing.T) {
	text := someText()
	prompts := [][]int64{text[:64], append(slices.Clone(text[:40]), 7), text[:17], text, {5},
		append(slices.Clone(text[:80]), 3)}
	_, draft := windowed(t, 3, 2, 0, 1)
	for _, layers := range [][]int{{1}, {0, 1}} {
		exported, pools := windowed(t, 21, 4, layers...)
		plain, g := open(t, exported), openWithKernels(t, pools)
		var want [][]int64
		for _, p := range prompts {
			want = append(want, tokens(t, plain, generate.Options{MaxTokens: 120}, p)[0].IDs)
		}
		ways := []*generate.Generator{g, g, g, open(t, pools), open(t, reverted(t, pools))}
		drafts := generate.Options{Draft: openWithKernels(t, draft), Speculate: 30}
		for i, o := range []generate.Options{{}, {PrefillSize: 7}, drafts, {}, {}} {
			o.MaxTokens = 120
			for k, s := range tokens(t, ways[i], o, prompts...) {
				if !slices.Equal(s.IDs, want[k]) {
					t.Errorf("layers %v, way %d, prompt %d: %v, want %v", layers, i, k, s.IDs, want[k])
				}
			}
		}
		r, err := g.Start(generate.Options{MaxTokens: 400}, []int64{5})
		must(t, err)
		for _, err := range r.Tokens(t.Context()) {
			must(t, err)
		}
		const layer = 2 * 2 * 16 * 4 // bytes of a token: pools, heads, channels
		most := int64(layer * (len(layers)*(21+1+4+2) + (2-len(layers))*2*(1+256+3)))
		if n, b := len(r.Sequences()[0].IDs), r.Buffers(); n != 400 || b.Bytes > most {
			t.Errorf("layers %v: %d tokens in %d bytes, want at most %d", layers, n, b.Bytes, most)
		}
	}
}

// TestPagedCodes generates from pools of codes: the same tokens by kernels and definitions, alone and with other
// prompts that begin alike, whose last common block is copied with its scales, in pools that grow.
func TestPagedCodes(t *testing.T) {
	const name = "llama-kv-dynamo-fp32"
	text := someText()[:40]
	prompts := [][]int64{text[:33], append(slices.Clone(text[:21]), 7, 8, 9), {5}, text}
	for _, codes := range []onnx.DataType{onnx.Int8, onnx.Float8E4M3FN} {
		path := withCodes(t, name, 8, true, codes)
		var want []generate.Sequence
		g := openWithKernels(t, path)
		for i, p := range prompts {
			// The chunks of a prompt begin at the same tokens as beside the others: after the common ones.
			want = append(want, tokens(t, g, generate.Options{MaxTokens: 60}, p)[0])
			if len(want[i].IDs) != 60 {
				t.Fatalf("%s: %d tokens", codes, len(want[i].IDs))
			}
		}
		together := func(g *generate.Generator) [][]int64 {
			r, err := g.Start(generate.Options{MaxTokens: 60}, prompts...)
			must(t, err)
			for _, err := range r.Tokens(t.Context()) {
				must(t, err)
			}
			if b := r.Buffers(); b.Count != 4 {
				t.Errorf("%s: buffers %+v", codes, b)
			}
			var ids [][]int64
			for _, s := range r.Sequences() {
				ids = append(ids, s.IDs)
			}
			return ids
		}
		all := together(g)
		for _, i := range []int{0, 2} { // these share nothing before them
			if !slices.Equal(all[i], want[i].IDs) {
				t.Errorf("%s, prompt %d: %v beside others, %v alone", codes, i, all[i], want[i].IDs)
			}
		}
		if got := together(open(t, path)); !slices.EqualFunc(got, all, slices.Equal) {
			t.Errorf("%s by definitions: %v, by kernels %v", codes, got, all)
		}
	}
}

// TestPagedPositions ends a text at the end of the table that the model reads at computed positions.
func TestPagedPositions(t *testing.T) {
	g := openWithKernels(t, withPools(t, "absolute-fp16", 16, true))
	s := tokens(t, g, generate.Options{}, []int64{5, 17, 42})[0]
	if n := len(s.Prompt) + len(s.IDs); n != 32 || g.Positions() != 32 || s.Stop != generate.StopContext {
		t.Errorf("%d tokens of %d, ended by %s", n, g.Positions(), s.Stop)
	}
}

// TestPagedRefused names what keeps other users of a decoder from a paged one.
func TestPagedRefused(t *testing.T) {
	m, err := onnx.Read(withPools(t, "llama-kv-dynamo-fp32", 16, false))
	must(t, err)
	defer m.Close()
	_, err = generate.Describe(m)
	for want, err := range map[string]error{"pools of blocks": err, "changes its shape": generate.CheckSteady(m)} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
