package weights_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// absent makes an initializer whose elements are missing.
func absent(t *testing.T, g *onnx.Graph, name string, dims ...int64) *onnx.Value {
	t.Helper()
	n := int64(4)
	for _, d := range dims {
		n *= d
	}
	x, err := onnx.NewReference(name, onnx.Float, dims, onnx.External{Location: "absent.bin", Length: n})
	if err != nil {
		t.Fatal(err)
	}
	return g.AddInitializer(x)
}

// reader is a graph of one node of this kind that reads a weight of this name.
func reader(t *testing.T, name, op string, dims []int64, attrs ...*onnx.Attribute) *onnx.Model {
	t.Helper()
	m := onnx.New(10, 20)
	g := m.Graph
	x := g.AddInput("x", onnx.Type{DataType: onnx.Float})
	w := absent(t, g, name, dims...)
	y := g.NewValue("y")
	inputs := []*onnx.Value{x, w}
	switch op {
	case "Transpose, MatMul":
		turned := g.NewValue("turned")
		g.AddNode("Transpose", []*onnx.Value{w}, []*onnx.Value{turned}, onnx.IntsAttr("perm", []int64{1, 0}))
		inputs[1], op = turned, "MatMul"
	case "MatMul from the left":
		slices.Reverse(inputs)
		op = "MatMul"
	case "1 +, Mul":
		one := g.AddInitializer(onnx.NewFloat32s("one", nil, []float32{1}))
		factor := g.NewValue("factor")
		g.AddNode("Add", []*onnx.Value{w, one}, []*onnx.Value{factor})
		inputs[1], op = factor, "Mul"
	}
	g.AddNode(op, inputs, []*onnx.Value{y}, attrs...)
	g.AddOutput(y)
	return m
}

// counted returns the elements start, start+1, …
func counted(start float32, dims ...int64) checkpoints.Tensor {
	n := 1
	for _, d := range dims {
		n *= int(d)
	}
	x := checkpoints.Tensor{Dims: dims}
	for i := range n {
		x.Data = append(x.Data, start+float32(i))
	}
	return x
}

func named(name string, x checkpoints.Tensor) checkpoints.Tensor {
	x.Name = name
	return x
}

func file(t *testing.T, name string, metadata map[string]any, list ...checkpoints.Tensor) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	err := checkpoints.Safetensors(path, list)
	if metadata != nil {
		err = checkpoints.GGUF(path, metadata, list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func values(t *testing.T, m *onnx.Model, name string) []float32 {
	t.Helper()
	b, err := m.Graph.Value(name).Const.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var list []float32
	for ; len(b) > 0; b = b[4:] {
		list = append(list, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return list
}

// TestLayouts checks the transposition for each way to read a weight, square or not.
func TestLayouts(t *testing.T) {
	const name = "model.layers.0.mlp.up_proj.weight"
	for _, c := range []struct {
		op         string
		attr       []*onnx.Attribute
		transposed bool
	}{
		{"MatMul", nil, true},
		{"MatMul from the left", nil, false},
		{"Transpose, MatMul", nil, false},
		{"Gemm", nil, true},
		{"Gemm", []*onnx.Attribute{onnx.IntAttr("transB", 1)}, false},
	} {
		for _, out := range []int64{2, 3} { // square, and not
			dims := []int64{out, 2}
			if c.transposed {
				dims = []int64{2, out}
			}
			want := counted(0, out, 2).Data
			if c.transposed {
				want = []float32{0, 2, 1, 3}
				if out == 3 {
					want = []float32{0, 2, 4, 1, 3, 5}
				}
			}
			for _, metadata := range []map[string]any{nil, {"general.architecture": "qwen3"}} {
				stored := name
				if metadata != nil {
					stored = "blk.0.ffn_up.weight"
				}
				path := file(t, map[bool]string{true: "m.safetensors", false: "m.gguf"}[metadata == nil], metadata,
					named(stored, counted(0, out, 2)))
				got, r := load(t, reader(t, name, c.op, dims, c.attr...), open(t, path), weights.MatchOptions{})
				what := fmt.Sprint(c.op, c.attr != nil, out, metadata)
				if r.Loaded != 1 || r.Keys[0].Transposed != c.transposed {
					t.Errorf("%s: %+v", what, r)
					continue
				}
				if x := values(t, got, name); !slices.Equal(x, want) {
					t.Errorf("%s: %v, not %v", what, x, want)
				}
			}
		}
	}
}

// TestConv1D covers a checkpoint that stores [in, out] (GPT-2), as another layer of the same name reveals by its shape.
func TestConv1D(t *testing.T) {
	m := onnx.New(10, 20)
	g := m.Graph
	x := g.AddInput("x", onnx.Type{DataType: onnx.Float})
	for i, dims := range [][]int64{{2, 2}, {6, 2}} {
		y := g.NewValue(fmt.Sprint("y", i))
		g.AddNode("MatMul", []*onnx.Value{
			x, absent(t, g, []string{"transformer.h.0.attn.c_proj.weight", "transformer.h.0.mlp.c_proj.weight"}[i],
				dims...)}, []*onnx.Value{y})
		g.AddOutput(y)
	}
	path := file(t, "m.safetensors", nil, named("h.0.attn.c_proj.weight", counted(0, 2, 2)),
		named("h.0.mlp.c_proj.weight", counted(0, 6, 2)))
	got, r := load(t, m, open(t, path), weights.MatchOptions{})
	if r.Loaded != 2 || r.Keys[0].Transposed || r.Keys[1].Transposed {
		t.Errorf("%+v", r)
	}
	if x := values(t, got, "transformer.h.0.attn.c_proj.weight"); !slices.Equal(x, []float32{0, 1, 2, 3}) {
		t.Errorf("%v", x)
	}
}

// TestNorms covers graphs that add 1 to a norm's weight and graphs that do not, and files with and without the 1.
func TestNorms(t *testing.T) {
	const name = "model.layers.0.input_layernorm.weight"
	gemma := map[string]any{"general.architecture": "gemma2"}
	for _, c := range []struct {
		op       string
		metadata map[string]any
		want     []float32
	}{
		{"1 +, Mul", gemma, []float32{4, 5}},
		{"Mul", gemma, []float32{5, 6}},
		{"Mul", map[string]any{"general.architecture": "llama"}, []float32{5, 6}},
		{"1 +, Mul", nil, []float32{5, 6}},
	} {
		path := file(t, "m.gguf", c.metadata, named("blk.0.attn_norm.weight", counted(5, 2)))
		if c.metadata == nil {
			path = file(t, "m.safetensors", nil, named(name, counted(5, 2)))
		}
		got, r := load(t, reader(t, name, c.op, []int64{2}), open(t, path), weights.MatchOptions{})
		if r.Loaded != 1 {
			t.Errorf("%s from %v: %+v", c.op, c.metadata, r.Missing)
		} else if x := values(t, got, name); !slices.Equal(x, c.want) {
			t.Errorf("%s from %v: %v, not %v", c.op, c.metadata, x, c.want)
		}
	}
}

// TestUnknownArchitecture covers a file whose conversion is unknown.
func TestUnknownArchitecture(t *testing.T) {
	const name = "model.layers.0.mlp.up_proj.weight"
	path := file(t, "m.gguf", map[string]any{"general.architecture": "rwkv7"},
		named("blk.0.ffn_up.weight", counted(0, 3, 2)))
	_, r := load(t, reader(t, name, "MatMul", []int64{2, 3}), open(t, path), weights.MatchOptions{})
	if len(r.Missing) != 1 || !strings.Contains(r.Missing[0].Reason, `architecture "rwkv7"`) {
		t.Errorf("%+v", r.Missing)
	}
	got, r := load(t, reader(t, name, "MatMul", []int64{2, 3}), open(t, path),
		weights.MatchOptions{Map: weights.Map{name: {Tensor: "blk.0.ffn_up.weight", Transposed: true, Add: 10}}})
	if r.Loaded != 1 || !slices.Equal(values(t, got, name), []float32{10, 12, 14, 11, 13, 15}) {
		t.Errorf("by map: %+v", r)
	}
}

// TestTied loads a checkpoint without a head.
func TestTied(t *testing.T) {
	path := file(t, "m.safetensors", nil, named("model.embed_tokens.weight", counted(0, 3, 2)))
	got, r := load(t, reader(t, "lm_head.weight", "Transpose, MatMul", []int64{3, 2}), open(t, path),
		weights.MatchOptions{})
	if r.Loaded != 1 || r.Keys[0].Rule != weights.ByTie ||
		!slices.Equal(values(t, got, "lm_head.weight"), counted(0, 3, 2).Data) {
		t.Errorf("%+v", r)
	}
}
