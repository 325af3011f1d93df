package serving

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

var models = filepath.Join("..", "..", "models")

// TestBatchWithPadding feeds a patched decoder like genai: prompts of different lengths with padding after them, then
// one token each after the padding, with a mask of the tokens so far and with a mask of all possible tokens. Each
// sequence must get the logits that it gets by itself.
func TestBatchWithPadding(t *testing.T) {
	m, err := onnx.Read(filepath.Join(models, "llama-kv-dynamo-fp32.onnx"))
	must(t, err)
	defer m.Close()
	const room = 12
	_, err = rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff, LastLogits: true,
		StaticCache: &staticcache.Options{Length: room, RowLengths: true}})
	must(t, err)
	d, err := readDecoder(m)
	must(t, err)
	f := &GenAIFolder{}
	must(t, d.fitGenAI(f))
	if f.Batch != batchAny || !slices.Equal(f.Computed, []string{"past_length"}) {
		t.Fatalf("batch %s (%s), computed %v", f.Batch, f.OneBecause, f.Computed)
	}
	run := func(prompts [][]int64, next []int64, maskRoom int) [][]float64 {
		rows, longest := len(prompts), 0
		for _, p := range prompts {
			longest = max(longest, len(p))
		}
		in := map[string]*reference.Tensor{}
		for i := range d.Caches {
			past := reference.NewFloats(onnx.Float, []int{rows, 2, room, 16}, make([]float64, rows*2*room*16))
			in[layerName(layerNames[i%2].past, i/2)] = past
		}
		step := func(ids []int64, total int) []float64 {
			columns := max(total, maskRoom)
			mask := make([]int64, rows*columns)
			for r, p := range prompts {
				for i := range total {
					if i < len(p) || i >= longest {
						mask[r*columns+i] = 1
					}
				}
			}
			in[genaiIDs] = reference.NewInts(onnx.Int64, []int{rows, len(ids) / rows}, ids)
			in[genaiMask] = reference.NewInts(onnx.Int64, []int{rows, columns}, mask)
			e, err := reference.New(m, reference.Options{})
			must(t, err)
			out, err := e.Run(in)
			must(t, err)
			for i := range d.Caches {
				in[layerName(layerNames[i%2].past, i/2)] = out[layerName(layerNames[i%2].present, i/2)]
			}
			return out[genaiLogits].F
		}
		var ids []int64
		for _, p := range prompts {
			ids = append(append(ids, p...), make([]int64, longest-len(p))...)
		}
		first := step(ids, longest)
		second := step(next, longest+1)
		var logits [][]float64
		for r := range rows {
			n := len(first) / rows
			logits = append(logits, slices.Concat(first[r*n:(r+1)*n], second[r*n:(r+1)*n]))
		}
		return logits
	}
	prompts, next := [][]int64{{11, 5, 7}, {31, 8, 9, 10, 44}, {6}}, []int64{73, 85, 25}
	for _, maskRoom := range []int{0, room} {
		together := run(prompts, next, maskRoom)
		for r, p := range prompts {
			alone := run([][]int64{p}, next[r:r+1], maskRoom)[0]
			for i, x := range alone {
				if y := together[r][i]; y-x > 1e-5 || x-y > 1e-5 {
					t.Fatalf("mask of %d: logit %d of sequence %d is %g, and %g alone", maskRoom, i, r, y, x)
				}
			}
		}
	}
}

// TestOtherLayout exports a decoder with caches [batch, tokens, heads, width], other names, and other types of
// positions and mask. It must compute the same results from genai's inputs.
func TestOtherLayout(t *testing.T) {
	build := func() *onnx.Model { return otherDecoder() }
	rows := func(n int, values ...int64) *reference.Tensor {
		return reference.NewInts(onnx.Int64, []int{1, n}, values)
	}
	past := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}   // [1, 2, 3, 2]: 2 tokens of 3 heads
	turned := []float64{1, 2, 7, 8, 3, 4, 9, 10, 5, 6, 11, 12} // [1, 3, 2, 2]
	floats := func(dims []int, f []float64) *reference.Tensor { return reference.NewFloats(onnx.Float, dims, f) }
	evaluate := func(m *onnx.Model, in map[string]*reference.Tensor) map[string]*reference.Tensor {
		e, err := reference.New(m, reference.Options{})
		must(t, err)
		out, err := e.Run(in)
		must(t, err)
		return out
	}
	want := evaluate(build(), map[string]*reference.Tensor{"tokens": rows(1, 3),
		"position":  reference.NewInts(onnx.Int32, []int{1, 1}, []int64{2}),
		"pad_mask":  reference.NewInts(onnx.Bool, []int{1, 3}, []int64{1, 1, 1}),
		"cache_v_7": floats([]int{1, 2, 3, 2}, past), "cache_k_7": floats([]int{1, 2, 3, 2}, past)})
	folder := t.TempDir()
	f, err := WriteGenAI(folder, build(), GenAIOptions{Tokenizer: filepath.Join(models, "smollm2"), Provider: "cpu"})
	must(t, err)
	if f.Batch != batchOne || f.Cache != cacheAppended || f.Layers != 1 {
		t.Errorf("%+v", f)
	}
	m, err := onnx.Read(filepath.Join(folder, modelFile))
	must(t, err)
	defer m.Close()
	got := evaluate(m, map[string]*reference.Tensor{genaiIDs: rows(1, 3), genaiPositions: rows(1, 2),
		genaiMask: rows(3, 1, 1, 1), "past_key_values.0.key": floats([]int{1, 3, 2, 2}, turned),
		"past_key_values.0.value": floats([]int{1, 3, 2, 2}, turned)})
	if !slices.Equal(got["logits"].F, want["scores"].F) {
		t.Errorf("logits %v, before %v", got["logits"].F, want["scores"].F)
	}
	back := make([]float64, 18) // of the present, [1, 3, 3, 2], in the model's order
	for token := range 3 {
		for head := range 3 {
			copy(back[(token*3+head)*2:], got["present.0.key"].F[(head*3+token)*2:][:2])
		}
	}
	if !slices.Equal(back, want["new_cache_k_7"].F) {
		t.Errorf("present %v, before %v", back, want["new_cache_k_7"].F)
	}
	b, err := os.ReadFile(filepath.Join(folder, "genai_config.json"))
	must(t, err)
	for _, text := range []string{`"position_ids": "position_ids"`, `"head_size": 2`, `"num_key_value_heads": 3`,
		`"vocab_size": 6`, `"past_present_share_buffer": false`} {
		if !strings.Contains(string(b), text) {
			t.Errorf("genai_config.json lacks %s:\n%s", text, b)
		}
	}
}

// otherDecoder makes a decoder with only an interface: the logits are a product of a sum of all inputs.
func otherDecoder() *onnx.Model {
	m := onnx.New(10, 21)
	g := m.Graph
	g.Name = "decoder"
	symbol := func(name string) onnx.Dim { return onnx.Dim{Value: -1, Param: name} }
	number := func(n int64) onnx.Dim { return onnx.Dim{Value: n} }
	input := func(name string, dt onnx.DataType, dims ...onnx.Dim) *onnx.Value {
		return g.AddInput(name, onnx.Type{DataType: dt, HasShape: true, Dims: dims})
	}
	node := func(op, name string, inputs []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
		v := g.NewValue(name)
		g.AddNode(op, inputs, []*onnx.Value{v}, attrs...)
		return v
	}
	floats := func(name string, dims ...int64) *onnx.Value {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		f := make([]float32, n)
		for i := range f {
			f[i] = float32(i%7) - 3
		}
		return g.AddInitializer(onnx.NewFloat32s(name, dims, f))
	}
	ids := input("tokens", onnx.Int64, symbol("b"), symbol("s"))
	position := input("position", onnx.Int32, symbol("b"), symbol("s"))
	mask := input("pad_mask", onnx.Bool, symbol("b"), symbol("t"))
	hidden := node("Gather", "hidden", []*onnx.Value{floats("words", 6, 6), ids})
	hidden = node("Add", "moved", []*onnx.Value{hidden, node("Gather", "place", []*onnx.Value{floats("places", 9, 6),
		position})})
	seen := node("ReduceSum", "seen", []*onnx.Value{node("Cast", "bits", []*onnx.Value{mask},
		onnx.IntAttr("to", int64(onnx.Float)))})
	hidden = node("Add", "masked", []*onnx.Value{hidden, seen})
	shape := g.AddInitializer(onnx.NewInt64s("shape", []int64{0, 0, 3, 2}))
	fresh := node("Reshape", "fresh", []*onnx.Value{hidden, shape})
	for _, name := range []string{"cache_v_7", "cache_k_7"} {
		past := input(name, onnx.Float, symbol("b"), symbol("p"), number(3), number(2))
		present := node("Concat", "new_"+name, []*onnx.Value{past, fresh}, onnx.IntAttr("axis", 1))
		present.SetType(onnx.Type{DataType: onnx.Float, HasShape: true,
			Dims: []onnx.Dim{symbol("b"), symbol("q"), number(3), number(2)}})
		hidden = node("Add", name+"_read", []*onnx.Value{hidden, node("ReduceSum", name+"_sum",
			[]*onnx.Value{present})})
		g.AddOutput(present)
	}
	scores := node("MatMul", "scores", []*onnx.Value{hidden, floats("head", 6, 6)})
	scores.SetType(onnx.Type{DataType: onnx.Float, HasShape: true,
		Dims: []onnx.Dim{symbol("b"), symbol("s"), number(6)}})
	g.AddOutput(scores)
	return m
}

// TestByLayer orders caches by the layers in their names, and keeps the order if the names have no layers.
func TestByLayer(t *testing.T) {
	for _, c := range []struct{ names, want string }{
		{"past_k0 past_k1 past_v0 past_v1", "past_k0 past_v0 past_k1 past_v1"},
		{"past_key_values.3.value past_key_values.3.key past_key_values.11.key past_key_values.11.value",
			"past_key_values.3.key past_key_values.3.value past_key_values.11.key past_key_values.11.value"},
		{"input.past_key_values.layers.0.keys input.past_key_values.layers.0.values",
			"input.past_key_values.layers.0.keys input.past_key_values.layers.0.values"},
		{"cache_1 cache_0", "cache_1 cache_0"},
		{"first second", "first second"},
		{"k0 v0 k1 v2", "k0 v0 k1 v2"},
	} {
		var caches []generate.Cache
		for _, name := range strings.Fields(c.names) {
			caches = append(caches, generate.Cache{Past: generate.Port{Value: &onnx.Value{Name: name}}})
		}
		var got []string
		for _, x := range byLayer(caches) {
			got = append(got, x.Past.Value.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %s, want %s", c.names, strings.Join(got, " "), c.want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
