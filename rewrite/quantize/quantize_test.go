package quantize

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
)

// builder builds a graph from parts of a decoder.
type builder struct {
	*onnx.Graph
	r *rand.Rand
}

func newBuilder() (*onnx.Model, *builder) {
	m := onnx.New(10, 20)
	return m, &builder{m.Graph, rand.New(rand.NewPCG(1, 2))}
}

func (b *builder) input(name string, t onnx.DataType, dims ...int64) *onnx.Value {
	var list []onnx.Dim
	for _, d := range dims {
		if d < 0 {
			list = append(list, onnx.Dim{Value: -1, Param: "sequence"})
		} else {
			list = append(list, onnx.Dim{Value: d})
		}
	}
	return b.AddInput(name, onnx.Type{DataType: t, HasShape: true, Dims: list})
}

func (b *builder) weight(name string, dims ...int64) *onnx.Value {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(b.r.NormFloat64())
	}
	return b.AddInitializer(onnx.NewFloat32s(name, dims, x))
}

func (b *builder) node(op string, in []*onnx.Value, attrs ...*onnx.Attribute) *onnx.Value {
	y := b.NewValue(strings.ToLower(op))
	b.AddNode(op, in, []*onnx.Value{y}, attrs...).Name = y.Name + "_node"
	return y
}

// decoder has embeddings of tokens and positions, a router with expert ids, a product, and a head whose weight is the
// transposed table, as a separate copy or not.
func decoder(tied bool) *onnx.Model {
	const v, k = 200, 128
	m, b := newBuilder()
	ids, mask := b.input("input_ids", onnx.Int64, 1, -1), b.input("attention_mask", onnx.Int64, 1, -1)
	table := b.weight("embed", v, k)
	x := b.node("Gather", []*onnx.Value{table, ids})
	axis := onnx.IntAttr("axis", 1)
	places := b.node("CumSum", []*onnx.Value{mask, b.AddInitializer(onnx.NewInt64s("one", []int64{1}))})
	x = b.node("Add", []*onnx.Value{x, b.node("Gather", []*onnx.Value{b.weight("positions", 64, k), places})})
	logits := b.node("MatMul", []*onnx.Value{x, b.weight("gate", k, 32)})
	count := b.AddInitializer(onnx.NewInt64s("two", []int64{2}))
	chosen := b.NewValue("chosen")
	b.AddNode("TopK", []*onnx.Value{b.node("Softmax", []*onnx.Value{logits}), count},
		[]*onnx.Value{b.NewValue("top"), chosen}, axis)
	b.AddOutput(chosen)
	up := b.node("MatMul", []*onnx.Value{x, b.weight("up", k, 96)})
	down := b.node("Gemm", []*onnx.Value{b.node("Reshape", []*onnx.Value{up,
		b.AddInitializer(onnx.NewInt64s("rows", []int64{-1, 96}))}), b.weight("down", k, 96), b.weight("bias", k)},
		onnx.IntAttr("transB", 1))
	b.node("MatMul", []*onnx.Value{down, b.weight("small", k, 16)})
	b.node("MatMul", []*onnx.Value{down, b.weight("stacked", 2, k, 64)})
	b.node("MatMul", []*onnx.Value{b.node("Reshape", []*onnx.Value{down,
		b.AddInitializer(onnx.NewInt64s("odd_rows", []int64{-1, 100}))}), b.weight("odd", 100, 64)})
	var head *onnx.Value
	if tied {
		head = b.node("Transpose", []*onnx.Value{table}, onnx.IntsAttr("perm", []int64{1, 0}))
	} else {
		raw, _ := table.Const.Bytes()
		copied := make([]float32, v*k)
		for i := range v {
			for j := range k {
				copied[j*v+i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*(i*k+j):]))
			}
		}
		head = b.AddInitializer(onnx.NewFloat32s("head", []int64{k, v}, copied))
	}
	b.AddOutput(b.node("MatMul", []*onnx.Value{down, head}))
	return m
}

func find(t *testing.T, m *onnx.Model, o Options) (map[string]*Weight, map[string]string) {
	t.Helper()
	p, err := Find(m, o)
	if err != nil {
		t.Fatal(err)
	}
	weights, skipped := map[string]*Weight{}, map[string]string{}
	for _, w := range p.Weights {
		weights[w.Name] = w
	}
	for _, s := range p.Skipped {
		skipped[s.Name] = s.Reason
	}
	return weights, skipped
}

// TestFind has one weight of each kind.
func TestFind(t *testing.T) {
	weights, skipped := find(t, decoder(true), Options{Format: "q4_0", Head: "q8_0"})
	for name, format := range map[string]string{"embed": "q8_0", "up": "q4_0", "down": "q4_0"} {
		if weights[name] == nil || weights[name].Format != format {
			t.Errorf("%s: %+v, %s", name, weights[name], skipped[name])
		}
	}
	for name, why := range map[string]string{"positions": "table of positions", "gate": "gate of a router",
		"small": "fewer than 4096 elements", "stacked": "3 dimensions", "odd": "row length 100 is not a multiple of " +
			"the block size 32"} {
		if !strings.Contains(skipped[name], why) {
			t.Errorf("%s: %q", name, skipped[name])
		}
	}
	if len(weights) != 3 || len(skipped) != 5 {
		t.Errorf("%v, %v", weights, skipped)
	}
	weights, skipped = find(t, decoder(true), Options{Format: "q4_0", Head: Float,
		Only: regexp.MustCompile("gate|positions|small|embed|odd|matmul")})
	if weights["gate"] == nil || weights["positions"] == nil || weights["small"] == nil || len(weights) != 4 ||
		!strings.Contains(skipped["embed"], "left in float") ||
		!strings.Contains(skipped["down"], "--only does not name it") {
		t.Errorf("%v, %v", weights, skipped)
	}
	weights, skipped = find(t, decoder(true), Options{Format: "q4_0", Skip: regexp.MustCompile("^gemm_node|embed")})
	if len(weights) != 1 || weights["up"] == nil || !strings.Contains(skipped["down"], "--skip names it") {
		t.Errorf("%v, %v", weights, skipped)
	}
}

// TestApply writes a model whose head is a transposed copy of its table. The two share a matrix, which holds the
// rounded floats, in float32 and in half types.
func TestApply(t *testing.T) {
	for _, format := range Formats() {
		m := decoder(false)
		f, err := lookup(format)
		if err != nil {
			t.Fatal(err)
		}
		if f.SharedRows > 0 || f.Panels() == nil { // TestFP8Block, TestHalf
			continue
		}
		raw, err := m.Graph.Value("down").Const.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		floats := make([]float32, 128*96)
		blocks.ReaderOf(onnx.Float)(floats, raw)
		p, err := Find(m, Options{Format: format})
		if err != nil {
			t.Fatal(err)
		}
		p.Measure(map[string][][]float32{}, func(int, int) {})
		r, err := p.Apply(rewrite.Request{})
		if err != nil || len(r.Refuse) != 0 || len(r.Kept) != 4 {
			t.Fatalf("%s: %v, %+v", format, err, r)
		}
		path := filepath.Join(t.TempDir(), "m.onnx")
		if err := onnx.Write(path, m); err != nil {
			t.Fatal(err)
		}
		written, err := onnx.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		defer written.Close()
		stored := make([]byte, len(floats)/f.Elements*f.Size)
		if err := f.Encode(stored, floats); err != nil {
			t.Fatal(err)
		}
		panels := f.Panels()
		codes, scale, minus, _, _ := panels.Sizes(96)
		var parts [3][]byte
		for i, name := range []string{"down_codes", "down_scale", "down_minus"} {
			if v := written.Graph.Value(name); v != nil {
				if parts[i], err = v.Const.Bytes(); err != nil {
					t.Fatal(err)
				}
			}
		}
		row := make([]byte, len(stored)/128)
		for i := range int64(128) {
			at := i / 16
			panels.Unpack(row, &blocks.Panel{Codes: parts[0][at*codes:][:codes], Scale: parts[1][at*scale:][:scale],
				Minus: parts[2][at*minus:][:minus]}, int(i%16))
			if !bytes.Equal(row, stored[int(i)*len(row):][:len(row)]) {
				t.Fatalf("%s: row %d holds other blocks", format, i)
			}
		}
		var tables []string
		ops := map[string]int{}
		for _, n := range written.Graph.Nodes {
			ops[n.OpType]++
			if n.OpType == "Embedding" || n.OpType == "Linear" && n.AttrInt("n", 0) == 200 {
				tables = append(tables, n.Inputs[1].Name)
			}
		}
		if ops["Linear"] != 3 || ops["Embedding"] != 1 || len(tables) != 2 || tables[0] != tables[1] {
			t.Errorf("%s: %v, %q", format, ops, tables)
		}
		for _, w := range p.Weights {
			most := map[string]float64{"q4_0": 0.1, "q4_1": 0.09, "q8_0": 0.007, "mxfp4": 0.13}[format]
			if w.RMS > most || w.RMS < most/3 || w.Cosine < 1-most*most || w.Product != nil {
				t.Errorf("%s: %+v", format, w)
			}
		}
	}
}

// TestHalf writes the same model in 16 bits: table and head share a matrix by rows, as in the products.
func TestHalf(t *testing.T) {
	for format, typ := range map[string]onnx.DataType{"f16": onnx.Float16, "bf16": onnx.BFloat16} {
		m := decoder(false)
		raw, err := m.Graph.Value("up").Const.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		floats := make([]float32, 128*96)
		blocks.ReaderOf(onnx.Float)(floats, raw)
		p, err := Find(m, Options{Format: format, Skip: regexp.MustCompile("^down$")})
		if err != nil {
			t.Fatal(err)
		}
		p.Measure(map[string][][]float32{}, func(int, int) {})
		if _, err := p.Apply(rewrite.Request{}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "m.onnx")
		if err := onnx.Write(path, m); err != nil {
			t.Fatal(err)
		}
		written, err := onnx.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		defer written.Close()
		var tables []string
		for _, n := range written.Graph.Nodes {
			switch {
			case n.OpType == "HalfLinear" && slices.Equal(n.Input(1).Const.Dims, []int64{96, 128}):
				raw, err := n.Input(1).Const.Bytes()
				if err != nil || n.Input(1).Const.DataType != typ {
					t.Fatal(err, n.Input(1).Const.DataType)
				}
				is, want, stored := make([]float32, 1), make([]float32, 1), make([]byte, 2)
				for i, x := range floats { // element [i/96, i%96] of [K, N]
					if err := blocks.Half(typ).Encode(stored, []float32{x}); err != nil {
						t.Fatal(err)
					}
					blocks.Half(typ).Decode(want, stored, 0)
					if blocks.Half(typ).Decode(is, raw, int64(i%96*128+i/96)); is[0] != want[0] {
						t.Fatalf("%s: element %d is %g, want %g", format, i, is[0], want[0])
					}
				}
			case n.OpType == "HalfLinear" || n.OpType == "Gather" && n.Input(0).Const.DataType == typ:
				tables = append(tables, n.Inputs[map[string]int{"HalfLinear": 1}[n.OpType]].Name)
			}
		}
		if len(tables) != 3 || tables[0] != tables[2] || p.Weights[0].RMS > 0.003 || p.Weights[0].Bits != 16 {
			t.Errorf("%s: %q, %+v", format, tables, p.Weights[0])
		}
	}
}

// TestMeasure: for a row with a single 1, a product has the error of a column.
func TestMeasure(t *testing.T) {
	m := decoder(true)
	p, err := Find(m, Options{Format: "q4_1", Only: regexp.MustCompile("^(up|down)$")})
	if err != nil {
		t.Fatal(err)
	}
	up := p.Weights[slices.IndexFunc(p.Weights, func(w *Weight) bool { return w.Name == "up" })]
	row := make([]float32, 128)
	row[5] = 1
	p.Measure(map[string][][]float32{up.products[0].Input(0).Name: {row, make([]float32, 7)}}, func(int, int) {})
	was, is := make([]float32, 96*128), make([]float32, 96*128)
	if err := up.matrix.read(was, 0); err != nil {
		t.Fatal(err)
	}
	stored := make([]byte, 96*128/32*20)
	if err := blocks.Q4_1.Encode(stored, was); err != nil {
		t.Fatal(err)
	}
	blocks.Q4_1.Decode(is, stored, 0)
	var all, apart float64
	for i := 5; i < len(was); i += 128 {
		all += float64(was[i]) * float64(was[i])
		apart += math.Pow(float64(was[i]-is[i]), 2)
	}
	if want := math.Sqrt(apart / all); up.Product == nil || math.Abs(*up.Product-want) > 1e-6*want {
		t.Errorf("%+v, want %g", up, want)
	}
	p.KeepAbove(*up.Product - 1e-9)
	if len(p.Weights) != 1 || p.Weights[0].Name != "down" ||
		!strings.Contains(p.Skipped[len(p.Skipped)-1].Reason, "the error of its products is above") {
		t.Errorf("%v, %v", p.Weights, p.Skipped)
	}
}

// TestRefused: weights that no code can represent stay.
func TestRefused(t *testing.T) {
	m, b := newBuilder()
	x := b.input("x", onnx.Float, -1, 128)
	for name, bad := range map[string]float32{"nan": float32(math.NaN()), "inf": float32(math.Inf(-1)), "great": 3e38} {
		list := make([]float32, 128*64)
		list[64*33+2] = bad
		w := b.AddInitializer(onnx.NewFloat32s(name, []int64{128, 64}, list))
		b.AddOutput(b.node("MatMul", []*onnx.Value{x, w}))
	}
	p, err := Find(m, Options{Format: "q8_0"})
	if err != nil {
		t.Fatal(err)
	}
	p.Measure(nil, func(int, int) {})
	for _, s := range p.Skipped {
		want := map[string]string{"nan": "row 2: element 33 is NaN", "inf": "row 2: element 33 is -Inf",
			"great": "row 2: elements 32 to 63: a scale or minimum of 2.36"}[s.Name]
		if !strings.Contains(s.Reason, want) {
			t.Errorf("%s: %s", s.Name, s.Reason)
		}
	}
	if r, err := p.Apply(rewrite.Request{}); err != nil || len(r.Kept) != 0 || len(p.Skipped) != 3 {
		t.Errorf("%v, %+v, %v", err, r, p.Skipped)
	}
}

// TestRows reads a transposed weight in pieces.
func TestRows(t *testing.T) {
	m := decoder(true)
	for _, name := range []string{"up", "down"} {
		v := m.Graph.Value(name)
		dims, read, err := Rows(v)
		if err != nil || !slices.Equal(dims, map[string][]int64{"up": {96, 128}, "down": {128, 96}}[name]) {
			t.Fatalf("%s: %v, %v", name, dims, err)
		}
		got := make([]float32, 96*128)
		for at := 0; at < len(got); at += 1000 {
			if err := read(got[at:min(at+1000, len(got))], int64(at)); err != nil {
				t.Fatal(err)
			}
		}
		want := make([]float32, 96*128)
		if err := (&matrix{tensor: v.Const, inOut: name == "up", n: dims[0], k: dims[1]}).read(want, 0); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || name == "up" && want[1] != first(v, 96) {
			t.Errorf("%s: other elements", name)
		}
	}
}

func first(v *onnx.Value, at int) float32 {
	raw, _ := v.Const.Bytes()
	return math.Float32frombits(binary.LittleEndian.Uint32(raw[4*at:]))
}

// TestFlatExperts has a mixture whose weights lack the expert dimension.
func TestFlatExperts(t *testing.T) {
	m, b := newBuilder()
	x := b.input("x", onnx.Float, -1, 64)
	y := b.node("MoE", []*onnx.Value{x, x, x, b.weight("up", 128, 64), b.weight("down", 64, 64)},
		onnx.StringAttr("gate_up_layout", "in_out"))
	y.Producer.Domain = "mojo"
	b.AddOutput(y)
	weights, skipped := find(t, m, Options{Format: "q4_0"})
	if len(weights) != 0 || len(skipped) != 2 || !strings.Contains(skipped["up"], "it has 2 dimensions") {
		t.Errorf("%v, %v", weights, skipped)
	}
}

// TestNodeNames: one node widens each bias of a bfloat16 mixture, and onnxruntime requires unique names.
func TestNodeNames(t *testing.T) {
	m, b := newBuilder()
	x := b.input("x", onnx.BFloat16, -1, 64)
	shares, choice := b.input("shares", onnx.Float, -1, 2), b.input("ids", onnx.Int64, -1, 2)
	weight := func(name string, dims ...int64) *onnx.Value {
		t := onnx.Tensor{DataType: onnx.BFloat16, Dims: dims}
		raw := make([]byte, t.Size())
		for i := 0; i < len(raw); i += 2 {
			binary.LittleEndian.PutUint16(raw[i:], blocks.BFloat16(float32(b.r.NormFloat64())))
		}
		w, err := onnx.NewTensor(name, onnx.BFloat16, dims, raw)
		if err != nil {
			panic(err)
		}
		return b.AddInitializer(w)
	}
	y := b.node("MoE", []*onnx.Value{x, shares, choice, weight("up", 4, 64, 64), weight("down", 4, 64, 32),
		weight("up_bias", 4, 64), weight("down_bias", 4, 64)}, fused.MoE{GLU: fused.GLU{Activation: "silu", Alpha: 1},
		Packing: "halves", GateUpLayout: "out_in", DownLayout: "out_in"}.Attributes()...)
	y.Producer.Domain = "mojo"
	b.AddOutput(y)
	m.ImportOpset("mojo", 1)
	p, err := Find(m, Options{Format: "mxfp4"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Apply(rewrite.Request{}); err != nil || len(r.Kept) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	names := map[string]bool{}
	for _, n := range m.Graph.Nodes {
		if names[n.Name] {
			t.Errorf("two nodes are named %q", n.Name)
		}
		names[n.Name] = true
	}
	if len(names) != 3 {
		t.Errorf("nodes: %v", names)
	}
}
