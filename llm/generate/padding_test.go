package generate

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

func openAt(t *testing.T, path string) *Generator {
	t.Helper()
	g, err := Open(path, orttest.Provider())
	if err != nil {
		if _, missing := ort.Find(""); missing != nil && os.Getenv("MOJO_REQUIRE_ORT") != "1" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// TestPadding checks which models accept padding before prompts. Those that count positions from the cache accept it
// with relative positions, but not with one vector per position.
func TestPadding(t *testing.T) {
	prompts := [][]int64{{5, 17, 42}, {9, 3, 27, 20, 8}, {11, 4, 4}}
	for path, groups := range map[string]int{
		"testdata/positions-fp32.onnx":           1,
		"testdata/cache-fp16.onnx":               1,
		"testdata/absolute-fp16.onnx":            2,
		"testdata/hybrid-fp32.onnx":              2,
		"../../models/llama-kv-dynamo-fp32.onnx": 1,
		"../../models/llama-ts-fp32.onnx":        1,
		"../../models/llama-merged-ts-fp32.onnx": 1,
		queryAttention(t, t.TempDir(), false):    2,
		queryAttention(t, t.TempDir(), true):     2,
	} {
		g := openAt(t, path)
		got, err := g.group(t.Context(), prompts)
		if err != nil || len(got) != groups {
			t.Errorf("%s: groups %v, %v, want %d", path, got, err, groups)
		}
	}
}

// queryAttention writes a model of one com.microsoft.GroupQueryAttention, as onnxruntime-genai builds them.
func queryAttention(t *testing.T, folder string, masked bool) string {
	t.Helper()
	const vocabulary, hidden, heads, kv, size, positions = 48, 32, 2, 1, 16, 64
	r := rand.New(rand.NewPCG(8, 1))
	m := onnx.New(10, 21)
	m.Graph.Name = "attention"
	m.ImportOpset("com.microsoft", 1)
	weight := func(name string, scale float64, dims ...int64) *onnx.Value {
		x := make([]float32, dims[0]*dims[1])
		for i := range x {
			x[i] = float32(scale * r.NormFloat64())
		}
		return m.Graph.AddInitializer(onnx.NewFloat32s(name, dims, x))
	}
	input := func(name string, dt onnx.DataType, shape string) *onnx.Value {
		return m.Graph.AddInput(name, onnx.Type{DataType: dt, HasShape: true, Dims: dims(shape)})
	}
	op := func(name string, inputs ...*onnx.Value) *onnx.Value {
		y := m.Graph.NewValue("h")
		m.Graph.AddNode(name, inputs, []*onnx.Value{y})
		return y
	}
	ids := input("input_ids", onnx.Int64, "b s")
	h := op("Gather", weight("table", 1, vocabulary, hidden), ids)
	q := op("MatMul", h, weight("wq", 0.3, hidden, heads*size))
	k := op("MatMul", h, weight("wk", 0.3, hidden, kv*size))
	v := op("MatMul", h, weight("wv", 0.3, hidden, kv*size))
	pk, pv := input("past_key_values.0.key", onnx.Float, "b 1 p 16"),
		input("past_key_values.0.value", onnx.Float, "b 1 p 16")
	var last, total *onnx.Value
	if masked { // read the lengths from the mask
		mask := input("attention_mask", onnx.Int64, "b t")
		number := func(name string, v int64) *onnx.Value {
			x := onnx.NewInt64s(name, []int64{v})
			if name == "axis" {
				x.Dims = []int64{}
			}
			return m.Graph.AddInitializer(x)
		}
		to32 := onnx.IntAttr("to", int64(onnx.Int32))
		sum := op("Sub", op("ReduceSum", mask, number("axes", 1)), number("one", 1))
		last, total = op("Cast", sum), op("Cast", op("Gather", op("Shape", mask), number("axis", 1)))
		last.Producer.SetAttr(to32)
		total.Producer.SetAttr(onnx.IntAttr("to", int64(onnx.Int32)))
	} else {
		last, total = input("seqlens_k", onnx.Int32, "b"), input("total_sequence_length", onnx.Int32, "")
	}
	a, ck, cv := m.Graph.NewValue("a"), m.Graph.NewValue("present.0.key"), m.Graph.NewValue("present.0.value")
	n := m.Graph.AddNode("GroupQueryAttention",
		[]*onnx.Value{q, k, v, pk, pv, last, total, weight("cos", 1, positions, size/2),
			weight("sin", 1, positions, size/2)},
		[]*onnx.Value{a, ck, cv}, onnx.IntAttr("num_heads", heads), onnx.IntAttr("kv_num_heads", kv),
		onnx.IntAttr("do_rotary", 1))
	n.Domain = "com.microsoft"
	y := op("MatMul", op("Add", h, a), weight("head", 0.5, hidden, vocabulary))
	for out, shape := range map[*onnx.Value]string{y: "b s 48", ck: "b 1 t 16", cv: "b 1 t 16"} {
		out.SetType(onnx.Type{DataType: onnx.Float, HasShape: true, Dims: dims(shape)})
	}
	for _, out := range []*onnx.Value{y, ck, cv} {
		m.Graph.AddOutput(out)
	}
	path := filepath.Join(folder, "attention.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAttentionLengths generates with GroupQueryAttention, which takes lengths as inputs, and compares with feeding the
// whole text for each token.
func TestAttentionLengths(t *testing.T) {
	for _, masked := range []bool{false, true} {
		attentionLengths(t, openAt(t, queryAttention(t, t.TempDir(), masked)))
	}
}

func attentionLengths(t *testing.T, g *Generator) {
	for i, s := range likeFedAnew(t, g, Options{MaxTokens: 8}, []int64{5, 17, 42}, []int64{9, 3},
		[]int64{1, 2, 3}).Sequences() {
		if slices.Equal(s.IDs[:4], slices.Repeat(s.IDs[:1], 4)) &&
			slices.Equal(s.IDs[4:], slices.Repeat(s.IDs[:1], 4)) {
			t.Errorf("prompt %d: nothing but %d: a model that tells nothing", i, s.IDs[0])
		}
	}
}

// likeFedAnew generates from all prompts together, and expects the tokens that the model returns when it is fed the
// whole text each time.
func likeFedAnew(t *testing.T, g *Generator, o Options, prompts ...[]int64) *Run {
	t.Helper()
	r, err := g.Start(o, prompts...)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range r.Tokens(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range r.Sequences() {
		text := slices.Clone(prompts[i])
		for k, id := range s.IDs {
			for token, err := range g.Generate(t.Context(), text, Options{MaxTokens: 1}) {
				if err != nil || token.ID != id {
					t.Fatalf("prompt %d, token %d: %d, fed anew %d, %v", i, k, id, token.ID, err)
				}
			}
			text = append(text, id)
		}
	}
	return r
}
