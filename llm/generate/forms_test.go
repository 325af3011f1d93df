package generate_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// rename renames the inputs and outputs of a model, and reverses their order if asked.
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

// plain removes the text that Sprintf adds for unused arguments.
func plain(s string) string {
	s, _, _ = strings.Cut(s, "%!(EXTRA")
	return s
}

// TestNames expects the same tokens for any names and order of the cache.
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

// TestFixed generates with graphs that fix the size of the sequence or batch.
func TestFixed(t *testing.T) {
	for _, c := range []struct {
		model, sizes string
		tokens       int
	}{{"llama-ts-fp32", "1 12", 9}, {"llama-kv-dynamo-fp32", "1 1", 8}, {"llama-kv-dynamo-fp32", "2 s", 8},
		{"llama-kv-dynamo-fp32", "4 s", 8}} {
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

// TestOneAtATime expects prompts of one length to run one by one if the graph does not accept more.
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

// fix replaces the batch and the sequence of a model's ids by those sizes that are numbers, also in the other inputs.
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
