package weights_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/llm/weights/gguf"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// stored are the formats that are kept, with the offsets of their blocks' float16 scales.
var stored = []struct {
	t      gguf.Type
	f      *blocks.Format
	scales []int
}{
	{gguf.Q4_0, blocks.Q4_0, []int{0}}, {gguf.Q4_1, blocks.Q4_1, []int{0, 2}}, {gguf.Q5_0, blocks.Q5_0, []int{0}},
	{gguf.Q5_1, blocks.Q5_1, []int{0, 2}}, {gguf.Q8_0, blocks.Q8_0, []int{0}}, {gguf.Q4_K, blocks.Q4_K, []int{0, 2}},
	{gguf.Q5_K, blocks.Q5_K, []int{0, 2}}, {gguf.Q6_K, blocks.Q6_K, []int{208}}, {gguf.MXFP4, blocks.MXFP4, nil},
}

// randomBlocks makes a matrix of random codes, with normal scales of either sign, one subnormal and one zero.
func randomBlocks(name string, i int, rows, cols int64) checkpoints.Tensor {
	s := stored[i]
	r := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	b := make([]byte, rows*cols/int64(s.f.Elements)*int64(s.f.Size))
	for j := range b {
		b[j] = byte(r.Uint32())
	}
	for block := range len(b) / s.f.Size {
		one := b[block*s.f.Size:]
		for _, at := range s.scales {
			switch one[at+1] = one[at+1]&0x83 | 0x28; block { // of about 0.03 to 0.06
			case 3:
				one[at], one[at+1] = 0, 0
			case 4:
				one[at], one[at+1] = 1, 0x80
			}
		}
		if s.scales == nil {
			one[0] = 118 + one[0]%8
		}
	}
	return checkpoints.Tensor{Name: name, Dims: []int64{rows, cols}, Type: uint32(s.t), Raw: b}
}

// readersOf is a graph that reads a tied table, a product's weight and a Gemm's, in float32 or a half type.
func readersOf(t *testing.T, dt onnx.DataType, n, k int64) *onnx.Model {
	t.Helper()
	m := onnx.New(10, 20)
	g := m.Graph
	weight := func(name string, dims ...int64) *onnx.Value {
		x, err := onnx.NewReference(name, dt, dims, onnx.External{Location: "absent.bin",
			Length: dims[0] * dims[1] * int64(dt.Bits()/8)})
		if err != nil {
			t.Fatal(err)
		}
		return g.AddInitializer(x)
	}
	shape := func(dims ...int64) (list []onnx.Dim) {
		for _, d := range dims {
			list = append(list, onnx.Dim{Value: d})
		}
		return list
	}
	ids := g.AddInput("ids", onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: shape(2, 3)})
	flat := g.AddInput("flat", onnx.Type{DataType: dt, HasShape: true, Dims: shape(5, k)})
	node := func(op, name string, in []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
		y := g.NewValue(name)
		g.AddNode(op, in, []*onnx.Value{y}, attrs...).Name = name + "_node"
		return y
	}
	table := weight("model.embed_tokens.weight", n, k)
	rows := node("Gather", "rows", []*onnx.Value{table, ids})
	turned := node("Transpose", "turned", []*onnx.Value{table}, onnx.IntsAttr("perm", []int64{1, 0}))
	bias := make([]float32, n)
	for i := range bias {
		bias[i] = float32(i) - 7
	}
	b := g.AddInitializer(onnx.NewFloat32s("bias", []int64{n}, bias))
	if dt != onnx.Float {
		b = node("Cast", "half_bias", []*onnx.Value{b}, onnx.IntAttr("to", int64(dt)))
	}
	gemm := []*onnx.Value{flat, weight("model.layers.0.mlp.up_proj.weight", n, k)}
	if dt == onnx.Float {
		gemm = append(gemm, b)
	}
	for _, y := range []*onnx.Value{
		node("MatMul", "logits", []*onnx.Value{rows, turned}),
		node("MatMul", "gate", []*onnx.Value{rows, weight("model.layers.0.mlp.gate_proj.weight", k, n)}),
		node("Gemm", "up", gemm, onnx.IntAttr("transB", 1)),
	} {
		g.AddOutput(y)
	}
	return m
}

// keep loads a graph from a file and keeps its weight formats, writes the model, and reads it.
func keep(t *testing.T, g *onnx.Model, path string, o weights.KeepOptions) (*onnx.Model, *weights.Report, error) {
	t.Helper()
	p, err := weights.Match(g, open(t, path), weights.MatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.KeepQuantized(g, o); err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(nil); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "model.onnx")
	if err := onnx.Write(out, g, onnx.ExternalDataOver(100)); err != nil {
		return nil, nil, err
	}
	m, err := onnx.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, p.Report(), nil
}

// outputs runs a model of readersOf in the evaluator.
func outputs(t *testing.T, m *onnx.Model, dt onnx.DataType, n, k int) map[string]*reference.Tensor {
	t.Helper()
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	x := make([]float64, 5*k)
	for i := range x {
		x[i] = float64(r.IntN(2048)-1024) / 256 // exact in any type
	}
	in := map[string]*reference.Tensor{"flat": reference.NewFloats(dt, []int{5, k}, x),
		"ids": reference.NewInts(onnx.Int64, []int{2, 3}, []int64{0, 1, int64(n) - 1, 16, 5, -2})}
	out, err := e.Run(in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestKeepQuantized keeps a matrix of each format in a table read by ids and by a product, in a MatMul and in a Gemm.
// The model's arrays must convert back to the file's bytes, and compute the same as the widened weights.
func TestKeepQuantized(t *testing.T) {
	const n, k = 37, 512
	for i, s := range stored {
		t.Run(s.t.String(), func(t *testing.T) {
			var list []checkpoints.Tensor
			for _, name := range []string{"token_embd.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"} {
				list = append(list, randomBlocks(name, i, n, k))
			}
			path := file(t, "m.gguf", map[string]any{"general.architecture": "qwen3"}, list...)
			floats, _ := load(t, readersOf(t, onnx.Float, n, k), open(t, path), weights.MatchOptions{})
			want := outputs(t, floats, onnx.Float, n, k)
			m, r, err := keep(t, readersOf(t, onnx.Float, n, k), path, weights.KeepOptions{Activations: "float"})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Quantized) != 1 || r.Quantized[0].Matrices != 3 || r.Quantized[0].Elements != 3*n*k ||
				r.Loaded != 3 || len(r.Widened) != 0 || r.Quantized[0].File != int64(3*len(list[0].Raw)) {
				t.Fatalf("%+v", r)
			}
			for name, x := range outputs(t, m, onnx.Float, n, k) {
				if d := farthest(x.F, want[name].F); d > 1e-6 {
					t.Errorf("%s differs by %g of the greatest magnitude", name, d)
				}
			}
			ops := map[string]int{}
			for _, node := range m.Graph.Nodes {
				ops[node.OpType]++
				if node.Domain == fused.Domain && !bytes.Equal(unpacked(t, node, s.f), list[0].Raw) {
					t.Errorf("%s of %s holds other bytes than the file", node.Name, node.Outputs[0].Name)
				}
			}
			if ops["Linear"] != 3 || ops["Embedding"] != 1 || ops["MatMul"]+ops["Gemm"]+ops["Gather"] != 0 {
				t.Errorf("nodes %v", ops)
			}
		})
	}
}

// unpacked converts the arrays of a node back to blocks.
func unpacked(t *testing.T, node *onnx.Node, f *blocks.Format) []byte {
	t.Helper()
	var arrays [5][]byte
	for i := range arrays {
		if v := node.Input(i + 1); v != nil && v.Constant() != nil && v.Constant().DataType != onnx.Float {
			b, err := v.Constant().Bytes()
			if err != nil {
				t.Fatal(err)
			}
			arrays[i] = b
		}
	}
	p, n, k := f.Panels(), node.AttrInt("n", 0), node.AttrInt("k", 0)
	var rows []byte
	for row := int64(0); row < n; row++ {
		part := func(i int) []byte {
			panels := (n + 15) / 16
			size := int64(len(arrays[i])) / panels
			return arrays[i][row/16*size:][:size]
		}
		b := make([]byte, k/int64(f.Elements)*int64(f.Size))
		p.Unpack(b, &blocks.Panel{Codes: part(0), Scale: part(1), Minus: part(2), SuperScale: part(3),
			SuperMinus: part(4)}, int(row%16))
		rows = append(rows, b...)
	}
	return rows
}

// farthest returns the greatest difference relative to the greatest magnitude.
func farthest(got, want []float64) float64 {
	d, scale := 0.0, 0.0
	for i, x := range want {
		d, scale = max(d, math.Abs(got[i]-x)), max(scale, math.Abs(x))
	}
	return d / scale
}

// TestKeepHalf covers a float16 graph, whose products read and return halves.
func TestKeepHalf(t *testing.T) {
	const n, k = 37, 64
	path := file(t, "m.gguf", map[string]any{"general.architecture": "qwen3"},
		randomBlocks("token_embd.weight", 4, n, k), randomBlocks("blk.0.ffn_gate.weight", 1, n, k),
		randomBlocks("blk.0.ffn_up.weight", 0, n, k))
	floats, _ := load(t, readersOf(t, onnx.Float, n, k), open(t, path), weights.MatchOptions{})
	m, r, err := keep(t, readersOf(t, onnx.Float16, n, k), path, weights.KeepOptions{})
	if err != nil || len(r.Widened) != 0 || len(r.Quantized) != 3 {
		t.Fatalf("%+v (%v)", r, err)
	}
	want := outputs(t, floats, onnx.Float, n, k)
	for name, x := range outputs(t, m, onnx.Float16, n, k) {
		if name == "up" {
			continue // it has no bias here
		}
		if d := farthest(x.F, want[name].F); d > 2e-3 || x.DataType != onnx.Float16 {
			t.Errorf("%s, %s, differs by %g of the greatest magnitude", name, x.DataType, d)
		}
	}
}

// TestKeepRotated restores q's rows from llama.cpp's order, codes and scales alike.
func TestKeepRotated(t *testing.T) {
	const name, n, k = "model.layers.0.self_attn.q_proj.weight", 32, 64
	path := file(t, "m.gguf", map[string]any{"general.architecture": "llama", "llama.attention.head_count": 2},
		randomBlocks("blk.0.attn_q.weight", 1, n, k))
	want, _ := load(t, reader(t, name, "MatMul", []int64{k, n}), open(t, path), weights.MatchOptions{})
	m, r, err := keep(t, reader(t, name, "MatMul", []int64{k, n}), path, weights.KeepOptions{})
	if err != nil || len(r.Quantized) != 1 || r.Keys[0].RopeHeads != 2 || r.Keys[0].DataType != "q4_1" {
		t.Fatalf("%+v (%v)", r, err)
	}
	rows := unpacked(t, m.Graph.Nodes[0], blocks.Q4_1)
	got := make([]float32, n*k)
	blocks.Q4_1.Decode(got, rows, 0)
	columns := values(t, want, name)
	for i := range n {
		for j := range k {
			if got[i*k+j] != columns[j*n+i] {
				t.Fatalf("row %d, column %d: %v, not %v", i, j, got[i*k+j], columns[j*n+i])
			}
		}
	}
}

// TestStaysFloat covers weights that cannot stay quantized, for different reasons.
func TestStaysFloat(t *testing.T) {
	const gate, n, k = "model.layers.0.mlp.gate_proj.weight", 32, 64
	meta := map[string]any{"general.architecture": "qwen3"}
	quantized := file(t, "m.gguf", meta, randomBlocks("blk.0.ffn_gate.weight", 0, n, k))
	plain := file(t, "m.gguf", meta, named("blk.0.ffn_gate.weight", counted(0, n, k)))
	added := reader(t, gate, "MatMul", []int64{k, n})
	sum := added.Graph.NewValue("sum")
	w := added.Graph.Value(gate)
	added.Graph.AddNode("Add", []*onnx.Value{w, w}, []*onnx.Value{sum})
	added.Graph.AddOutput(sum)
	for _, c := range []struct {
		m    *onnx.Model
		path string
		why  string
	}{
		{added, quantized, "(Add) also reads it"},
		{reader(t, gate, "MatMul", []int64{k, n}), plain, "the file stores it as F32"},
		{reader(t, gate, "MatMul from the left", []int64{n, k}), quantized, "(MatMul) also reads it"},
		{reader(t, gate, "Gemm", []int64{n, k}, onnx.IntAttr("transB", 1), onnx.FloatAttr("alpha", 2)), quantized,
			"has a factor"},
	} {
		m, r, err := keep(t, c.m, c.path, weights.KeepOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Widened) != 1 || !strings.Contains(r.Widened[0].Reason, c.why) || len(r.Quantized) != 0 ||
			m.Graph.Value(gate) == nil || m.Function("mojo", "Linear", "") != nil {
			t.Errorf("%s: %+v", c.why, r)
		}
	}
	no := func(string, string) bool { return false }
	if _, r, err := keep(t, reader(t, gate, "MatMul", []int64{k, n}), quantized, weights.KeepOptions{Keep: no}); err !=
		nil || len(r.Widened)+len(r.Quantized) != 0 || !r.Keys[0].Cast {
		t.Errorf("not asked for: %+v (%v)", r, err)
	}
}

// TestNotAsTheFile has a scale that is NaN for mojo.Linear but not for ggml. Nothing may be written.
func TestNotAsTheFile(t *testing.T) {
	const gate, n, k = "model.layers.0.mlp.gate_proj.weight", 64, 64
	x := randomBlocks("blk.0.ffn_gate.weight", len(stored)-1, n, k)
	copy(x.Raw[len(x.Raw)-17:], []byte{255, 1})
	path := file(t, "m.gguf", map[string]any{"general.architecture": "qwen3"}, x)
	_, _, err := keep(t, reader(t, gate, "MatMul", []int64{k, n}), path, weights.KeepOptions{})
	if err == nil || !strings.Contains(err.Error(), `tensor "blk.0.ffn_gate.weight": element 32 of row 63`) {
		t.Errorf("error %v", err)
	}
}

// mixtureOf is a graph of one mojo.MoE without weights.
func mixtureOf(t *testing.T) *onnx.Model {
	t.Helper()
	const experts, hidden, inner = 3, 96, 32
	m := onnx.New(10, 20)
	m.ImportOpset(fused.Domain, fused.Version)
	g := m.Graph
	input := func(name string, typ onnx.DataType, dims ...int64) *onnx.Value {
		list := make([]onnx.Dim, len(dims))
		for i, d := range dims {
			list[i].Value = d
		}
		return g.AddInput(name, onnx.Type{DataType: typ, HasShape: true, Dims: list})
	}
	in := []*onnx.Value{input("x", onnx.Float, 2, hidden), input("shares", onnx.Float, 2, 2),
		input("ids", onnx.Int64, 2, 2)}
	types := []onnx.DataType{onnx.Float, onnx.Float, onnx.Int64, onnx.Float, onnx.Float}
	for name, dims := range map[string][]int64{"gate_up_proj": {experts, 2 * inner, hidden},
		"down_proj": {experts, hidden, inner}} {
		x, err := onnx.NewReference("model.layers.0.mlp.experts."+name, onnx.Float, dims, onnx.External{
			Location: "absent.bin", Length: 4 * dims[0] * dims[1] * dims[2]})
		if err != nil {
			t.Fatal(err)
		}
		g.AddInitializer(x)
	}
	in = append(in, g.Value("model.layers.0.mlp.experts.gate_up_proj"), g.Value("model.layers.0.mlp.experts.down_proj"))
	attrs := []*onnx.Attribute{onnx.StringAttr("activation", "silu"), onnx.FloatAttr("alpha", 1),
		onnx.FloatAttr("limit", 0), onnx.FloatAttr("up_offset", 0), onnx.StringAttr("packing", "halves"),
		onnx.StringAttr("gate_up_layout", "out_in"), onnx.StringAttr("down_layout", "out_in")}
	f, err := fused.Lookup("MoE").Function(fused.Site{Attributes: attrs, Types: types, Opset: 20})
	if err != nil {
		t.Fatal(err)
	}
	m.Functions = append(m.Functions, f)
	y := g.NewValue("y")
	n := g.AddNode("MoE", in, []*onnx.Value{y}, attrs...)
	n.Domain, n.Overload = fused.Domain, f.Overload
	y.SetType(onnx.Type{DataType: onnx.Float})
	g.AddOutput(y)
	return m
}

// TestKeepExperts keeps the experts of a mixture whose file separates gate and up.
func TestKeepExperts(t *testing.T) {
	stack := func(name string, format int, rows, cols int64) checkpoints.Tensor {
		x := randomBlocks(name, format, 3*rows, cols)
		x.Dims = []int64{3, rows, cols}
		return x
	}
	for _, down := range []int{0, 4, 8} { // Q4_0, Q8_0, MXFP4
		path := file(t, "m.gguf", map[string]any{"general.architecture": "qwen3moe"},
			stack("blk.0.ffn_gate_exps.weight", 1, 32, 96), stack("blk.0.ffn_up_exps.weight", 1, 32, 96),
			stack("blk.0.ffn_down_exps.weight", down, 96, 32))
		floats, _ := load(t, mixtureOf(t), open(t, path), weights.MatchOptions{})
		m, r, err := keep(t, mixtureOf(t), path, weights.KeepOptions{Activations: "float"})
		if err != nil || len(r.Widened) != 0 || len(r.Quantized) != 2 || m.Graph.Nodes[0].OpType != "QMoE" {
			t.Fatalf("%+v (%v)", r, err)
		}
		x := make([]float64, 2*96)
		for i := range x {
			x[i] = float64(i%17)/8 - 1
		}
		in := map[string]*reference.Tensor{"x": reference.NewFloats(onnx.Float, []int{2, 96}, x),
			"shares": reference.NewFloats(onnx.Float, []int{2, 2}, []float64{1, 0.5, 0.25, 2}),
			"ids":    reference.NewInts(onnx.Int64, []int{2, 2}, []int64{2, 0, 0, 1})}
		var y [2]*reference.Tensor
		for i, m := range []*onnx.Model{floats, m} {
			e, err := reference.New(m, reference.Options{})
			if err != nil {
				t.Fatal(err)
			}
			out, err := e.Run(in)
			if err != nil {
				t.Fatal(err)
			}
			y[i] = out["y"]
		}
		if d := farthest(y[1].F, y[0].F); d > 2e-6 {
			t.Errorf("differs by %g of the greatest magnitude", d)
		}
	}
}
