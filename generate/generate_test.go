package generate_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mojo-patch/mojo-patch/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

func TestMain(m *testing.M) {
	if _, err := ort.Find(""); err != nil {
		if os.Getenv("MOJO_REQUIRE_ORT") == "1" {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		noRuntime = true
		flag.Parse()
		flag.Set("test.skip", "^Example") // it cannot skip itself
	}
	os.Exit(m.Run())
}

var noRuntime bool

// recording is what models/export/generation.py had transformers generate.
type recording struct {
	Prompts  [][]int64   `json:"prompts"`
	Greedy   [][]int64   `json:"greedy"`
	Together [][]int64   `json:"together"`
	Gaps     [][]float64 `json:"gaps"`
}

func recordings(t *testing.T) map[string]recording {
	t.Helper()
	b, err := os.ReadFile("testdata/greedy.json")
	must(t, err)
	list := map[string]recording{}
	must(t, json.Unmarshal(b, &list))
	if len(list) < 6 {
		t.Fatalf("testdata/greedy.json has %d models", len(list))
	}
	return list
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func modelPath(name string) string {
	if path := filepath.Join("testdata", name+".onnx"); exists(path) {
		return path
	}
	return filepath.Join("..", "models", name+".onnx")
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func open(t *testing.T, path string) *generate.Generator {
	t.Helper()
	if noRuntime {
		t.Skip("onnxruntime is not here")
	}
	g, err := generate.Open(path, orttest.Provider())
	must(t, err)
	t.Cleanup(func() { must(t, g.Close()) })
	return g
}

func tokens(t *testing.T, g *generate.Generator, o generate.Options, prompts ...[]int64) []generate.Sequence {
	t.Helper()
	r, err := g.Start(o, prompts...)
	must(t, err)
	for _, err := range r.Tokens(t.Context()) {
		must(t, err)
	}
	return r.Sequences()
}

// TestGreedy compares with transformers' generate(): each prompt alone, all together, and the prompts in pieces.
func TestGreedy(t *testing.T) {
	for name, want := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			g := open(t, modelPath(name))
			o := generate.Options{MaxTokens: len(want.Greedy[0]), Margins: true}
			tolerance := 1e-4
			if g.Half() {
				tolerance = 0.02
			}
			for i, p := range want.Prompts {
				got := tokens(t, g, o, p)[0]
				if !slices.Equal(got.IDs, want.Greedy[i]) || got.Stop != generate.StopLength {
					t.Errorf("prompt %d: %v (%s), want %v", i, got.IDs, got.Stop, want.Greedy[i])
				}
				for k, m := range got.Margins {
					if math.Abs(float64(m)-want.Gaps[i][k]) > tolerance {
						t.Errorf("prompt %d, token %d: margin %g, want %g", i, k, m, want.Gaps[i][k])
					}
				}
			}
			for _, size := range []int{0, 1, 3} {
				o.PrefillSize = size
				for i, s := range tokens(t, g, o, want.Prompts...) {
					if !slices.Equal(s.IDs, want.Together[i]) {
						t.Errorf("together, prefill %d, prompt %d: %v, want %v", size, i, s.IDs, want.Together[i])
					}
				}
			}
		})
	}
}

// rename gives the inputs and outputs of a model other names, in another order.
func rename(t *testing.T, path string, name func(string) string, reverse bool) string {
	t.Helper()
	m, err := onnx.Read(path)
	must(t, err)
	defer m.Close()
	for _, v := range slices.Concat(m.Graph.Inputs, m.Graph.Outputs) {
		v.Name = name(v.Name)
	}
	if reverse {
		slices.Reverse(m.Graph.Inputs)
	}
	out := filepath.Join(t.TempDir(), "renamed.onnx")
	must(t, onnx.Write(out, m))
	return out
}

// plain takes away what Sprintf says of arguments that a form does not use.
func plain(s string) string {
	s, _, _ = strings.Cut(s, "%!(EXTRA")
	return s
}

// TestNames has a model generate the same tokens whatever its cache is called, and in whatever order it stands.
func TestNames(t *testing.T) {
	want := recordings(t)["positions-fp32"]
	for _, form := range []struct{ name, past, present string }{
		{"transformers", "input.past_key_values.layers.%d.%ss", "output.past_key_values.layers.%d.%ss"},
		{"optimum", "past_key_values.%d.%s", "present.%d.%s"},
		{"decoder", "past_key_values.%d.decoder.%s", "present.%d.decoder.%s"},
		{"flat", "past_%[2]s_%[1]d", "present_%[2]s_%[1]d"},
		{"dots", "past.%d.%s", "present.%d.%s"},
		{"cache", "cache_%.1[2]s_%[1]d", "new_cache_%.1[2]s_%[1]d"},
		{"behind", "%.1[2]s_cache_%[1]d", "%.1[2]s_cache_%[1]d_out"},
		{"in and out", "kv_cache.in.%d.%s", "kv_cache.out.%d.%s"},
		{"in one", "pkv_%.0[2]s%[3]d", "present_%.0[2]s%[3]d"},
		{"by order", "in_%[3]d_x%.0[2]s", "joined_%.0[2]s%[4]d"},
	} {
		for _, reverse := range []bool{false, true} {
			if reverse && form.name == "by order" {
				continue
			}
			t.Run(fmt.Sprint(form.name, reverse), func(t *testing.T) {
				g := open(t, rename(t, modelPath("positions-fp32"), func(name string) string {
					for layer := range 2 {
						for k, part := range []string{"key", "value"} {
							n := 2*layer + k
							switch name {
							case fmt.Sprintf("past_key_values.%d.%s", layer, part):
								return plain(fmt.Sprintf(form.past, layer, part, n, n+7))
							case fmt.Sprintf("present.%d.%s", layer, part):
								return plain(fmt.Sprintf(form.present, layer, part, n, n+7))
							}
						}
					}
					return name
				}, reverse))
				if !g.Cached() {
					t.Fatal("no cache was found")
				}
				for i, s := range tokens(t, g, generate.Options{MaxTokens: len(want.Greedy[0])}, want.Prompts...) {
					if !slices.Equal(s.IDs, want.Greedy[i]) {
						t.Errorf("prompt %d: %v, want %v", i, s.IDs, want.Greedy[i])
					}
				}
			})
		}
	}
}

// TestFixed generates with graphs whose sequence or batch has a fixed size.
func TestFixed(t *testing.T) {
	for _, c := range []struct {
		model, sizes string
		tokens       int
	}{{"llama-hf-fp32", "1 12", 9}, {"llama-kv-dynamo-fp32", "1 1", 8}, {"llama-kv-dynamo-fp32", "2 s", 8}, {"llama-kv-dynamo-fp32", "4 s", 8}} {
		t.Run(c.model+" "+c.sizes, func(t *testing.T) {
			want := recordings(t)[c.model]
			g := open(t, fix(t, modelPath(c.model), strings.Fields(c.sizes)))
			for i, s := range tokens(t, g, generate.Options{MaxTokens: c.tokens}, want.Prompts...) {
				n, reason := c.tokens, generate.StopLength
				if room := 12 - len(want.Prompts[i]); c.sizes == "1 12" && room < n {
					n, reason = room, generate.StopContext
				}
				if !slices.Equal(s.IDs, want.Greedy[i][:n]) || s.Stop != reason {
					t.Errorf("prompt %d: %v (%s), want %v (%s)", i, s.IDs, s.Stop, want.Greedy[i][:n], reason)
				}
			}
		})
	}
}

// TestOneAtATime has prompts of one length computed one by one where the graph does not run with more.
func TestOneAtATime(t *testing.T) {
	g := open(t, modelPath("llama-dynamo23-fp32"))
	a, b := []int64{5, 17, 42}, []int64{9, 3, 77}
	r, err := g.Start(generate.Options{MaxTokens: 5}, a, b)
	must(t, err)
	for _, err := range r.Tokens(t.Context()) {
		must(t, err)
	}
	if groups := fmt.Sprint(r.Groups()); groups != "[[0] [1]]" {
		t.Errorf("groups %s", groups)
	}
	for i, p := range [][]int64{a, b} {
		if alone := tokens(t, g, generate.Options{MaxTokens: 5}, p)[0]; !slices.Equal(alone.IDs, r.Sequences()[i].IDs) {
			t.Errorf("prompt %d: %v, alone %v", i, r.Sequences()[i].IDs, alone.IDs)
		}
	}
}

// fix gives the batch and the sequence of a model's ids numbers, where they are some, and those of the inputs beside them.
func fix(t *testing.T, path string, sizes []string) string {
	t.Helper()
	m, err := onnx.Read(path)
	must(t, err)
	defer m.Close()
	ids, _ := m.Graph.Inputs[0].Type()
	for _, v := range slices.Concat(m.Graph.Inputs, m.Graph.Outputs) {
		ty, _ := v.Type()
		for axis, d := range ty.Dims {
			for i, size := range sizes {
				n, err := strconv.ParseInt(size, 10, 64)
				if err == nil && d.Param == ids.Dims[i].Param {
					ty.Dims[axis] = onnx.Dim{Value: n}
				}
			}
		}
		v.SetType(ty)
	}
	out := filepath.Join(t.TempDir(), "fixed.onnx")
	must(t, onnx.Write(out, m))
	return out
}

// TestStops ends sequences by tokens, lengths and contexts, each by its own.
func TestStops(t *testing.T) {
	want := recordings(t)["llama-kv-dynamo-fp32"]
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	stop := want.Greedy[0][3]
	all := tokens(t, g, generate.Options{MaxTokens: 8, MaxContext: 12, StopTokens: []int64{stop}}, want.Prompts...)
	for i, s := range all {
		n := slices.Index(want.Greedy[i], stop) + 1
		reason := generate.StopToken
		if n == 0 || n > 8 {
			n, reason = 8, generate.StopLength
		}
		if room := 12 - len(want.Prompts[i]); room < n || room == n && reason == generate.StopLength && room < 8 {
			n, reason = room, generate.StopContext
		}
		if s.Stop != reason || !slices.Equal(s.IDs, want.Greedy[i][:n]) {
			t.Errorf("prompt %d: %v (%s), want %v (%s)", i, s.IDs, s.Stop, want.Greedy[i][:n], reason)
		}
	}
	if all[0].Stop != generate.StopToken || all[1].Stop != generate.StopContext {
		t.Errorf("the reasons are %s and %s", all[0].Stop, all[1].Stop)
	}
}

// letters is a tokenizer whose ids are words.
type letters struct{}

func (letters) Add(id int64) string { return fmt.Sprintf("w%d ", id) }
func (letters) Flush() string       { return "." }

func TestStopText(t *testing.T) {
	want := recordings(t)["llama-kv-dynamo-fp32"]
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	ids := want.Greedy[0]
	o := generate.Options{MaxTokens: 8, NewStream: func() generate.TextStream { return letters{} }}
	if s := tokens(t, g, o, want.Prompts[0])[0]; s.Text != fmt.Sprintf("w%d w%d w%d w%d w%d w%d w%d w%d .", anys(ids[:8])...) {
		t.Errorf("text %q of %v", s.Text, s.IDs)
	}
	o.StopTexts = []string{"never", fmt.Sprintf("%d w%d", ids[2], ids[3])} // over the border of two tokens
	r, err := g.Start(o, want.Prompts[0])
	must(t, err)
	var text string
	for token, err := range r.Tokens(t.Context()) {
		must(t, err)
		text += token.Text
	}
	s := r.Sequences()[0]
	if s.Stop != generate.StopText || s.Text != fmt.Sprintf("w%d w%d w", ids[0], ids[1]) || text != s.Text || len(s.IDs) != 4 {
		t.Errorf("text %q, stream %q, %s after %v", s.Text, text, s.Stop, s.IDs)
	}
}

func anys(ids []int64) []any {
	var list []any
	for _, id := range ids {
		list = append(list, id)
	}
	return list
}

func TestCancel(t *testing.T) {
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := g.Start(generate.Options{}, []int64{1, 2})
	must(t, err)
	n := 0
	var last error
	for _, err := range r.Tokens(ctx) {
		if last = err; err != nil {
			break
		}
		if n++; n == 3 {
			cancel()
		}
	}
	if s := r.Sequences()[0]; !errors.Is(last, context.Canceled) || len(s.IDs) != 3 || s.Stop != "" {
		t.Errorf("after %d tokens (%q): %v", len(s.IDs), s.Stop, last)
	}
	for _, err := range r.Tokens(t.Context()) {
		if err == nil {
			t.Error("a run that was ended goes on")
		}
	}
	for token, err := range g.Generate(t.Context(), []int64{1, 2}, generate.Options{}) { // a reader that has enough
		must(t, err)
		_ = token
		break
	}
}

// TestAtOnce has several goroutines generate with one model, prompts of different lengths too.
func TestAtOnce(t *testing.T) {
	want := recordings(t)["llama-kv-dynamo-fp32"]
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			for i, s := range tokens(t, g, generate.Options{MaxTokens: 6}, want.Prompts...) {
				if !slices.Equal(s.IDs, want.Greedy[i][:6]) {
					t.Errorf("prompt %d: %v", i, s.IDs)
				}
			}
		})
	}
	wait.Wait()
}

// TestSampled has equal seeds give equal tokens, in a batch as alone.
func TestSampled(t *testing.T) {
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	o := generate.Options{MaxTokens: 10, Sampling: generate.Sampling{Temperature: 1.5, TopK: 40, Seed: 3}}
	a, b := []int64{5, 6, 7}, []int64{8, 9}
	both := tokens(t, g, o, a, b)
	if alone := tokens(t, g, o, b)[0]; !slices.Equal(alone.IDs, both[1].IDs) {
		t.Errorf("alone %v, together %v", alone.IDs, both[1].IDs)
	}
	o.Sampling.Seed = 4
	if other := tokens(t, g, o, a)[0]; slices.Equal(other.IDs, both[0].IDs) {
		t.Errorf("another seed gives the same tokens %v", other.IDs)
	}
}

func TestPromptErrors(t *testing.T) {
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	for want, prompts := range map[string][][]int64{
		"there is no prompt": nil,
		"no tokens":          {{1}, {}},
		"id 160, and the model's ids are 0 to 159": {{1, 160}},
		"id -1":                             {{-1}},
		"has 4 tokens, and the model has 4": {{1, 2, 3, 4}},
	} {
		_, err := g.Start(generate.Options{MaxContext: 4}, prompts...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", prompts, err, want)
		}
	}
	if _, err := g.Start(generate.Options{StopTexts: []string{"x"}}, []int64{1}); err == nil {
		t.Error("stop texts without a tokenizer pass")
	}
	if _, err := g.Start(generate.Options{Sampling: generate.Sampling{TopP: 2}}, []int64{1}); err == nil {
		t.Error("top-p 2 passes")
	}
}
