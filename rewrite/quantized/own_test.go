package quantized_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// otherModel has one node of another tool; all its inputs except the first are constants.
type otherModel struct {
	*rewritetest.Builder
	r *rand.Rand
}

func newOther(t *testing.T, typ onnx.DataType) *otherModel {
	m := &otherModel{rewritetest.New(t, 21, typ), rand.New(rand.NewPCG(1, 2))}
	m.Model.ImportOpset(onnx.Microsoft, 1)
	return m
}

func (m *otherModel) random(typ onnx.DataType, dims ...int) *onnx.Value {
	n := 1
	for _, d := range dims {
		n *= d
	}
	x := reference.NewInts(typ, dims, make([]int64, n))
	if typ.IsFloat() {
		x = reference.NewFloats(typ, dims, make([]float64, n))
	}
	for i := range n {
		if typ.IsFloat() {
			x.F[i] = float64(1+m.r.IntN(60)) / 1024
		} else if x.I[i] = int64(m.r.IntN(1 << typ.Bits())); typ == onnx.Int4 || typ == onnx.Int8 {
			x.I[i] -= 1 << (typ.Bits() - 1)
		}
	}
	c, err := x.ToONNX("w")
	if err != nil {
		m.T.Fatal(err)
	}
	return m.Model.Graph.AddInitializer(c)
}

// TestReadAlike finds each difference between two nodes that read the same elements.
func TestReadAlike(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *otherModel, o *onnx.Node)
		alike  bool
	}{
		"the same": {func(*otherModel, *onnx.Node) {}, true},
		"domain":   {func(_ *otherModel, o *onnx.Node) { o.Domain = "other" }, false},
		"op":       {func(_ *otherModel, o *onnx.Node) { o.OpType = "GatherBlockQuantized" }, false},
		"scales":   {func(m *otherModel, o *onnx.Node) { o.SetInput(2, m.random(m.Type, 21, 1)) }, false},
		"zeros":    {func(m *otherModel, o *onnx.Node) { o.SetInput(3, m.random(onnx.Uint8, 21, 1)) }, false},
		"block":    {func(_ *otherModel, o *onnx.Node) { o.SetAttr(onnx.IntAttr("block_size", 64)) }, false},
	} {
		m := newOther(t, onnx.Float)
		m.nBits(4, 32, 32, nil)
		n := m.Model.Graph.Nodes[0]
		o := m.Model.Graph.AddNode(n.OpType, slices.Clone(n.Inputs), []*onnx.Value{m.Model.Graph.NewValue("z")},
			slices.Clone(n.Attributes)...)
		o.Domain = n.Domain
		c.change(m, o)
		if err := quantized.ReadAlike(n, quantized.StoredCodes(n)); (err == nil) != c.alike {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func (m *otherModel) nBits(bits, block, k int, zeros *onnx.Value, more ...*onnx.Value) {
	const n = 21
	count := (k + block - 1) / block
	x := m.In("x", "tokens", k)
	inputs := append([]*onnx.Value{x, m.random(onnx.Uint8, n, count, block*bits/8), m.random(m.Type, n, count), zeros},
		more...)
	m.add(onnx.Microsoft, "MatMulNBits", inputs, n, onnx.IntAttr("N", n), onnx.IntAttr("K", int64(k)),
		onnx.IntAttr("bits", int64(bits)), onnx.IntAttr("block_size", int64(block)), onnx.IntAttr("accuracy_level", 0))
}

func (m *otherModel) add(domain, op string, inputs []*onnx.Value, last int, attrs ...*onnx.Attribute) {
	y := m.Model.Graph.NewValue("y")
	m.Model.Graph.AddNode(op, inputs, []*onnx.Value{y}, attrs...).Domain = domain
	m.Out(y, "tokens", last)
}

// TestOwnProducts: products and tables of other tools become mojo's; the evaluator compares the models.
func TestOwnProducts(t *testing.T) {
	axis, block := func(i int64) *onnx.Attribute { return onnx.IntAttr("axis", i) },
		func(i int64) *onnx.Attribute { return onnx.IntAttr("block_size", i) }
	for _, c := range []struct {
		name   string
		typ    onnx.DataType
		make   func(m *otherModel)
		op     string // "" if it stays
		reason string
	}{
		{"4 bits", onnx.Float, func(m *otherModel) { m.nBits(4, 32, 96, nil) }, "Linear", ""},
		{"4 bits, blocks of 16, zero points", onnx.Float, func(m *otherModel) {
			m.nBits(4, 16, 96, m.random(onnx.Uint8, 21, 3))
		}, "Linear", ""},
		{"4 bits, three blocks, zero points", onnx.Float, func(m *otherModel) {
			m.nBits(4, 32, 96, m.random(onnx.Uint8, 21, 2))
		}, "Linear", ""},
		{"8 bits, blocks of 64, a bias", onnx.Float, func(m *otherModel) {
			m.nBits(8, 64, 128, m.random(onnx.Uint8, 21, 2), nil, m.random(onnx.Float, 21))
		}, "Linear", ""},
		{"2 bits, float zero points", onnx.Float, func(m *otherModel) {
			m.nBits(2, 32, 64, m.random(onnx.Float, 21, 2))
		}, "Linear", ""},
		{"part of a block", onnx.Float, func(m *otherModel) { m.nBits(4, 128, 96, nil) }, "Linear", ""},
		{"float16", onnx.Float16, func(m *otherModel) { m.nBits(4, 32, 64, nil) }, "Linear", ""},
		{"float16, zero points", onnx.Float16, func(m *otherModel) {
			m.nBits(4, 32, 64, m.random(onnx.Uint8, 21, 1))
		}, "Linear", ""},
		{"an order of columns", onnx.Float, func(m *otherModel) {
			m.nBits(4, 32, 64, nil, m.Ints(make([]int64, 64)...))
		}, "", "g_idx"},
		{"half a block", onnx.Float, func(m *otherModel) { m.nBits(4, 16, 48, nil) }, "", "not a multiple of 32"},
		{"rows of bytes", onnx.Float, func(m *otherModel) {
			m.add(onnx.Microsoft, "GatherBlockQuantized", []*onnx.Value{m.random(onnx.Uint8, 21, 64), m.ids(),
				m.random(onnx.Float, 21, 2)}, 64, onnx.IntAttr("bits", 8), block(32))
		}, "Embedding", ""},
		{"rows of bytes, float16", onnx.Float16, func(m *otherModel) {
			m.add(onnx.Microsoft, "GatherBlockQuantized", []*onnx.Value{m.random(onnx.Uint8, 21, 64), m.ids(),
				m.random(onnx.Float16, 21, 2)}, 64, onnx.IntAttr("bits", 8), block(32))
		}, "Embedding", ""},
		{"rows of 4 bits in bytes, zero points", onnx.Float, func(m *otherModel) {
			m.add(onnx.Microsoft, "GatherBlockQuantized", []*onnx.Value{m.random(onnx.Uint8, 21, 48), m.ids(),
				m.random(onnx.Float, 21, 3), m.random(onnx.Uint8, 21, 2)}, 96, onnx.IntAttr("bits", 4), block(32))
		}, "Embedding", ""},
		{"rows of int4", onnx.Float, func(m *otherModel) {
			m.add(onnx.Microsoft, "GatherBlockQuantized", []*onnx.Value{m.random(onnx.Int4, 21, 96), m.ids(),
				m.random(onnx.Float, 21, 3), m.random(onnx.Int4, 21, 3)}, 96, block(32))
		}, "Embedding", ""},
		{"columns in blocks", onnx.Float, func(m *otherModel) {
			m.product(m.Op("DequantizeLinear", m.random(onnx.Int4, 96, 21), m.random(onnx.Float, 3, 21), axis(0),
				block(32)))
		}, "Linear", ""},
		{"columns in blocks, zero points", onnx.Float, func(m *otherModel) {
			m.product(m.Op("DequantizeLinear", m.random(onnx.Uint4, 96, 21), m.random(onnx.Float, 6, 21),
				m.random(onnx.Uint4, 6, 21), axis(0), block(16)))
		}, "Linear", ""},
		{"rows in blocks, turned", onnx.Float, func(m *otherModel) {
			m.product(m.Op("Transpose", m.Op("DequantizeLinear", m.random(onnx.Int8, 21, 96),
				m.random(onnx.Float, 21, 3), axis(1), block(32))))
		}, "Linear", ""},
		{"a scale for each row", onnx.Float, func(m *otherModel) {
			m.product(m.Op("DequantizeLinear", m.random(onnx.Int8, 96, 21), m.random(onnx.Float, 21), axis(1)))
		}, "Linear", ""},
		{"one scale, one zero point", onnx.Float, func(m *otherModel) {
			m.product(m.Op("DequantizeLinear", m.random(onnx.Uint8, 96, 21), m.random(onnx.Float),
				m.random(onnx.Uint8)))
		}, "Linear", ""},
		{"columns in blocks, the last one shorter", onnx.Float, func(m *otherModel) {
			w := m.Op("DequantizeLinear", m.random(onnx.Int4, 80, 21), m.random(onnx.Float, 3, 21), axis(0), block(32))
			y := m.Op("MatMul", m.In("x", "tokens", 80), w)
			m.Out(y, "tokens", 21)
		}, "", "row length 80 is not a multiple of its block size 32"},
		{"a scale for each column", onnx.Float, func(m *otherModel) {
			m.product(m.Op("DequantizeLinear", m.random(onnx.Int8, 96, 21), m.random(onnx.Float, 96), axis(0)))
		}, "", "each column has its own scales"},
		{"read by another node", onnx.Float, func(m *otherModel) {
			w := m.Op("DequantizeLinear", m.random(onnx.Int8, 96, 21), m.random(onnx.Float, 21), axis(1))
			m.product(w)
			m.Out(m.Op("Abs", w), 96, 21)
		}, "", "also reads it and takes floats"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newOther(t, c.typ)
			c.make(m)
			var want map[string]*reference.Tensor
			if c.reason != "g_idx" { // the evaluator lacks it
				want = rewritetest.Evaluate(t, m.Model)
			}
			r := applytest.Apply(t, m.Model, rewrite.Request{OwnProducts: "float"})
			n := rewritetest.CountOps(m.Model)
			if c.op == "" {
				if n["Linear"]+n["Embedding"] > 0 || len(r.Products.Open) != 1 ||
					!strings.Contains(fmt.Sprint(r.Products.Open), c.reason) {
					t.Errorf("%v, %+v", n, r.Products)
				}
			} else if n[c.op] != 1 ||
				n["MatMulNBits"]+n["DequantizeLinear"]+n["GatherBlockQuantized"]+n["MatMul"] > 0 ||
				len(r.Products.Open) > 0 {
				t.Errorf("%v, %+v", n, r.Products)
			}
			if want == nil {
				return
			}
			got, tolerance := rewritetest.Evaluate(t, m.Model), 2e-6
			if c.typ == onnx.Float16 {
				tolerance = 2e-3
			}
			for name, x := range want {
				d, scale := prove.Distance(x.F, got[name].F)
				if x.DataType != got[name].DataType || !(d <= tolerance*scale) {
					t.Errorf("%s %s differs by %g of %g", got[name], name, d, scale)
				}
			}
		})
	}
}

// ids adds an input with row numbers.
func (m *otherModel) ids() *onnx.Value {
	return m.Op("Cast", m.Op("Mod", m.Op("Abs", m.In("x", "tokens")), m.Scalar(m.Type, 21), onnx.IntAttr("fmod", 1)),
		onnx.IntAttr("to", int64(onnx.Int64)))
}

// product multiplies an input by a weight with 96 rows and 21 columns.
func (m *otherModel) product(w *onnx.Value) {
	m.Out(m.Op("MatMul", m.In("x", "tokens", 96), w), "tokens", 21)
}

// TestBlocksAroundQuantizedProducts uses exports quantized by onnxruntime 1.31.1's MatMulNBitsQuantizer. The same
// blocks are found around MatMulNBits and DequantizeLinear as in the floats, and these become mojo.Linear.
func TestBlocksAroundQuantizedProducts(t *testing.T) {
	for name, want := range map[string]struct{ made, stay int }{ // rows of 16 are not whole blocks of 32
		"gated-zamba2-ts-fp32.nbitsz":     {1, 1}, // with zero points
		"gated-qwen3next-dynamo-fp16.qdq": {1, 1}, // DequantizeLinear and MatMul
	} {
		t.Run(name, func(t *testing.T) {
			read := func(path string) *onnx.Model {
				m, err := onnx.Read(path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Close() })
				return m
			}
			float, _, _ := strings.Cut(name, ".")
			floats, m := applytest.Apply(t, read("../../models/"+float+".onnx")), read("testdata/"+name+".onnx")
			got := applytest.Apply(t, m, rewrite.Request{OwnProducts: "int16"})
			if w, g := fmt.Sprint(floats.Patterns), fmt.Sprint(got.Patterns); w != g || got.Fused() == 0 {
				t.Errorf("found %s\nin floats %s", g, w)
			}
			n := rewritetest.CountOps(m)
			if n["Linear"]+n["Embedding"] != want.made ||
				n["MatMulNBits"]+n["DequantizeLinear"]+n["GatherBlockQuantized"] != want.stay {
				t.Errorf("%v, %s", n, got.Products.Text())
			}
		})
	}
}
