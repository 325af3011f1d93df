package shard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// maker builds models of forms that the bundled ones lack.
type maker struct {
	*onnxtest.Builder
	t     *testing.T
	count int
}

// weight adds a constant of random numbers.
func (m *maker) weight(dims ...int64) *onnx.Value {
	m.t.Helper()
	m.count++
	x, err := prove.MakeInput(prove.Normal, m.count, onnx.Float, dims)
	if err != nil {
		m.t.Fatal(err)
	}
	c, err := x.ToONNX("w")
	if err != nil {
		m.t.Fatal(err)
	}
	return m.Graph.AddInitializer(c)
}

// codes adds a constant of random bytes from least on, of so many values.
func (m *maker) codes(least, values int, dims ...int64) *onnx.Value {
	m.t.Helper()
	m.count++
	r := rand.New(rand.NewPCG(uint64(m.count), 0))
	b := make([]byte, match.Elements(dims))
	for i := range b {
		b[i] = byte(least + r.IntN(values))
	}
	c, err := onnx.NewTensor("codes", onnx.Uint8, dims, b)
	if err != nil {
		m.t.Fatal(err)
	}
	return m.Graph.AddInitializer(c)
}

// linear multiplies by a quantized matrix of 4 bits, with a bias.
func (m *maker) linear(x *onnx.Value, n, k int64) *onnx.Value {
	product := fused.Linear{Embedding: fused.Embedding{Code: "int4", Zero: 8, Block: 32, N: n, K: k},
		Activations: "float"}
	return m.fused(1, product, x, m.codes(0, 256, n/16, k/32, 4, 64), m.weight(n/16, k/32, 16), nil, nil, nil,
		m.weight(n))[0]
}

// fused adds a node of a fused op with its definition.
func (m *maker) fused(outputs int, attrs fused.Typed, inputs ...any) []*onnx.Value {
	m.t.Helper()
	out := m.Ops(outputs, fused.Domain+":"+attrs.OpType(), append(inputs, attrs.Attributes())...)
	n := out[0].Producer
	site := fused.Site{Attributes: n.Attributes, Opset: m.Model.Opset("")}
	facts := infer.Analyze(m.Model)
	for _, v := range n.Inputs {
		t := onnx.Undefined
		if v != nil {
			t = facts.DataType(v)
		}
		site.Types, site.Dims = append(site.Types, t), append(site.Dims, nil)
	}
	f, err := fused.Lookup(n.OpType).Function(site)
	if err != nil {
		m.t.Fatal(err)
	}
	n.Overload = f.Overload
	m.Model.Functions = append(m.Model.Functions, f)
	m.Model.ImportOpset(fused.Domain, fused.Version)
	return out
}

// attention adds attention with tokens before heads.
func (m *maker) attention(outputs int, inputs ...any) []*onnx.Value {
	return m.fused(outputs, fused.Attention{Scale: 0.5, Causal: true, Empty: "zero", HeadOrder: "blocked",
		QLayout: "bsnh", KLayout: "bsnh", VLayout: "bsnh", YLayout: "bsnh"}, inputs...)
}

// project makes an output of all heads of x.
func (m *maker) project(x *onnx.Value, width int64) {
	m.Output(m.Op("MatMul", m.Op("Reshape", x, []int64{0, 0, width}), m.weight(width, 16)))
}

// built are the models.
func built(t *testing.T) map[string]*onnx.Model {
	models := map[string]*onnx.Model{}
	build := func(name string, write func(m *maker, x *onnx.Value)) {
		m := &maker{Builder: onnxtest.New(20), t: t}
		write(m, m.Input("x", onnx.Float, "batch", "sequence", 16))
		models[name] = m.Model
	}
	build("experts with biases", func(m *maker, x *onnx.Value) {
		weights := m.Input("weights", onnx.Float, "batch", "sequence", 2)
		ids := m.Input("ids", onnx.Int64, "batch", "sequence", 2)
		glu := fused.GLU{Activation: "silu", Alpha: 1}
		moe := fused.MoE{GLU: glu, Packing: "halves", GateUpLayout: "out_in", DownLayout: "out_in"}
		m.Output(m.fused(1, moe, x, weights, ids, m.weight(4, 32, 16), m.weight(4, 16, 16), m.weight(4, 32),
			m.weight(4, 16))[0])
	})
	build("delta layer with one convolution", func(m *maker, x *onnx.Value) {
		past := m.Input("past", onnx.Float, "batch", 64, 3)
		packed := m.Op("Transpose", m.Op("MatMul", x, m.weight(16, 64)), onnx.IntsAttr("perm", []int64{0, 2, 1}))
		conv := m.fused(2, fused.CausalConv{Activation: "silu"}, packed, m.weight(64, 1, 4), m.weight(64), past)
		qkv := m.Ops(3, "Split", m.Op("Transpose", conv[0], onnx.IntsAttr("perm", []int64{0, 2, 1})),
			[]int64{16, 16, 32}, onnx.IntAttr("axis", 2))
		beta := m.Op("Sigmoid", m.Op("MatMul", x, m.weight(16, 8)))
		decay := m.Op("Neg", m.Op("Exp", m.Op("MatMul", x, m.weight(16, 8))))
		state := m.Input("state", onnx.Float, "batch", 8, 4, 4)
		y := m.fused(2, fused.LinearAttention{QHeads: 4, KHeads: 4, VHeads: 8, Scale: 0.5, L2Norm: true, Epsilon: 1e-6},
			qkv[0], qkv[1], qkv[2], state, decay, beta)
		gated := m.fused(1, fused.GatedRMSNorm{Epsilon: 1e-6, Groups: 4}, y[0],
			m.Op("MatMul", x, m.weight(16, 32)), m.weight(32))
		m.Output(m.Op("MatMul", gated[0], m.weight(32, 16)))
		m.Output(conv[1])
		m.Output(y[1])
	})
	build("latent attention", func(m *maker, x *onnx.Value) {
		q := m.Op("Reshape", m.Op("MatMul", x, m.weight(16, 24)), []int64{0, 0, 4, 6})
		c := m.Op("MatMul", x, m.weight(16, 8))
		pe := m.Op("Unsqueeze", m.Op("MatMul", x, m.weight(16, 2)), []int64{1})
		y := m.fused(1, fused.LatentAttention{Scale: 0.5, Causal: true, Empty: "zero", QLayout: "bsnh", YLayout: "bsnh",
			WLayout: "in_out"}, q, c, pe, m.weight(8, 32))
		m.Output(m.Op("MatMul", m.Op("Reshape", y[0], []int64{0, 0, 16}), m.weight(16, 16)))
	})
	build("two sums, a table and factors of channels", func(m *maker, x *onnx.Value) {
		ids := m.Input("tokens", onnx.Int64, "batch", "sequence")
		x = m.Op("Add", x, m.Op("Gather", m.weight(16, 16), ids))
		first := m.Op("Mul", m.Op("Relu", m.Op("MatMul", x, m.weight(16, 32))), m.weight(32))
		second := m.Op("Add", m.Op("Tanh", m.Op("MatMul", x, m.weight(16, 8))), m.weight(8))
		m.Output(m.Op("Add", m.Op("MatMul", first, m.weight(32, 16)), m.Op("MatMul", second, m.weight(8, 16))))
	})
	build("nine heads that share three of keys", func(m *maker, x *onnx.Value) {
		heads := func(n int64) *onnx.Value {
			flat := m.Op("MatMul", x, m.weight(16, 4*n))
			shape := m.Op("Concat", m.Op("Slice", m.Op("Shape", x), []int64{0}, []int64{2}), []int64{n, 4},
				onnx.IntAttr("axis", 0))
			return m.Op("Reshape", flat, shape)
		}
		keys := m.Input("keys", onnx.Float, "batch", 3, "past", 4)
		values := m.Input("values", onnx.Float, "batch", 3, "past", 4)
		y := m.attention(3, heads(9), heads(3), heads(3), nil, keys, values, nil, nil, m.weight(9))
		shape := m.Op("Shape", y[0])
		number := func(at int64) *onnx.Value { return m.Op("Gather", shape, []int64{at}) }
		flat := m.Op("Concat", number(0), number(1), m.Op("Mul", number(2), number(3)), onnx.IntAttr("axis", 0))
		m.Output(m.Op("MatMul", m.Op("Reshape", y[0], flat), m.weight(36, 16)))
		m.Output(y[1])
		m.Output(y[2])
	})
	build("a bias of keys, as long as the past and the rows", func(m *maker, x *onnx.Value) {
		heads := func() *onnx.Value { return m.Op("Reshape", m.Op("MatMul", x, m.weight(16, 32)), []int64{0, 0, 4, 8}) }
		past := func(name string) *onnx.Value { return m.Input(name, onnx.Float, "batch", 4, "past", 8) }
		y := m.attention(3, heads(), heads(), heads(), nil, past("keys"), past("values"), nil,
			m.Input("bias", onnx.Float, "batch", 4, 1, "all"))
		m.project(y[0], 32)
		m.Output(y[1])
		m.Output(y[2])
	})
	merged := func(queries, keys int64, cut func(m *maker, all *onnx.Value, sizes []int64) []*onnx.Value) func(m *maker,
		x *onnx.Value) {
		return func(m *maker, x *onnx.Value) {
			all := m.Op("MatMul", x, m.weight(16, 8*(queries+2*keys)))
			qkv := cut(m, all, []int64{8 * queries, 8 * keys, 8 * keys})
			for i, n := range []int64{queries, keys, keys} {
				qkv[i] = m.Op("Reshape", qkv[i], []int64{0, 0, n, 8})
			}
			m.project(m.attention(1, qkv[0], qkv[1], qkv[2])[0], 8*queries)
		}
	}
	splits := func(m *maker, all *onnx.Value, sizes []int64) []*onnx.Value {
		return m.Ops(3, "Split", all, sizes, onnx.IntAttr("axis", -1))
	}
	build("one matrix of 12 heads and 2 of keys", merged(12, 2, splits))
	build("one matrix of 12 heads and one of keys", merged(12, 1, splits))
	build("one matrix, cut behind an axis for heads of keys", func(m *maker, x *onnx.Value) {
		all := m.Op("Unsqueeze", m.Op("MatMul", x, m.weight(16, 14*8)), []int64{1})
		qkv := m.Ops(3, "Split", all, []int64{96, 8, 8}, onnx.IntAttr("axis", 3))
		q := m.Op("Reshape", qkv[0], m.Op("Concat", m.Op("Shape", x, onnx.IntAttr("end", 2)), []int64{12, 8},
			onnx.IntAttr("axis", 0)))
		m.project(m.fused(1, fused.Attention{Scale: 0.5, Causal: true, Empty: "zero", HeadOrder: "blocked",
			QLayout: "bsnh", KLayout: "bnsh", VLayout: "bnsh", YLayout: "bsnh"}, q, qkv[1], qkv[2])[0], 96)
	})
	build("queries, keys and values before 9 heads", func(m *maker, x *onnx.Value) {
		all := m.Op("Reshape", m.Op("MatMul", x, m.weight(16, 3*36)), []int64{0, 0, 3, 9, 4})
		part := func(all *onnx.Value, i int64) *onnx.Value {
			return m.Op("Squeeze", m.Op("Gather", all, []int64{i}, onnx.IntAttr("axis", 2)), []int64{2})
		}
		two := m.Op("Slice", all, []int64{0}, []int64{2}, []int64{2})
		two = m.Op("Reshape", m.Op("Reshape", two, []int64{0, 0, 72}), []int64{0, 0, 2, 9, 4})
		m.project(m.attention(1, part(two, 0), part(two, 1), part(all, 2))[0], 36)
	})
	build("half a cache, and a gate of 12 heads that share 2", func(m *maker, x *onnx.Value) {
		heads := func(n int64) *onnx.Value {
			return m.Op("Reshape", m.Op("MatMul", x, m.weight(16, 4*n)), []int64{0, 0, n, 4})
		}
		past := func(name string) *onnx.Value {
			past := m.Input(name, onnx.Float16, "batch", 2, "past", 4)
			return m.Op("Cast", past, onnx.IntAttr("to", int64(onnx.Float)))
		}
		y := m.attention(3, heads(12), heads(2), heads(2), nil, past("keys"), past("values"))
		gate := m.Op("Sigmoid", m.Op("MatMul", x, m.weight(16, 48)))
		m.project(m.Op("Mul", gate, m.Op("Reshape", y[0], []int64{0, 0, 48})), 48)
		m.Output(y[1])
		m.Output(m.Op("Cast", y[2], onnx.IntAttr("to", int64(onnx.Float16))))
	})
	build("slices of 10 heads and 2 of keys", merged(10, 2, func(m *maker, all *onnx.Value,
		sizes []int64) []*onnx.Value {
		q, k := sizes[0], sizes[0]+sizes[1]
		slice := func(from, to int64) *onnx.Value {
			return m.Op("Slice", all, []int64{from}, []int64{to}, []int64{2})
		}
		return []*onnx.Value{slice(0, q), slice(q, k), slice(k, 1<<40)}
	}))
	build("a table and a head of 33 tokens", func(m *maker, x *onnx.Value) {
		ids := m.Input("tokens", onnx.Int64, "batch", "sequence")
		m.Output(m.Op("MatMul", m.Op("Add", x, m.Op("Gather", m.weight(33, 16), ids)), m.weight(16, 33)))
	})
	build("quantized products", func(m *maker, x *onnx.Value) {
		x = m.Op("MatMul", x, m.weight(16, 32))
		heads := func(n int64) *onnx.Value {
			return m.Op("Reshape", m.linear(x, 16*n, 32), []int64{0, 0, n, 16})
		}
		y := m.attention(1, heads(8), heads(4), heads(4))[0]
		x = m.linear(m.Op("Reshape", y, []int64{0, 0, 128}), 32, 128)
		x = m.linear(m.Op("Relu", m.linear(x, 160, 32)), 32, 160)
		m.Output(m.linear(x, 80, 32)) // a head, of which the ranks have whole panels
	})
	build("quantized experts", func(m *maker, x *onnx.Value) {
		x = m.Op("MatMul", x, m.weight(16, 32))
		weights := m.Input("weights", onnx.Float, "batch", "sequence", 2)
		ids := m.Input("ids", onnx.Int64, "batch", "sequence", 2)
		moe := fused.QMoE{GLU: fused.GLU{Activation: "silu", Alpha: 1}, Packing: "halves", GateUpCode: "int4",
			GateUpZero: 8, GateUpBlock: 32, DownCode: "e2m1", DownBlock: 32, Hidden: 32, Inner: 160,
			Activations: "float"}
		m.Output(m.fused(1, moe, x, weights, ids, m.codes(0, 256, 5, 20, 1, 4, 64), m.weight(5, 20, 1, 16),
			m.codes(0, 256, 5, 2, 5, 4, 64), m.codes(125, 4, 5, 2, 5, 16), nil, nil, nil, nil, nil, nil,
			m.weight(5, 320), m.weight(5, 32))[0])
	})
	type product func(m *maker, x *onnx.Value, n, k int64) *onnx.Value
	pools := func(queries, keys, width, k int64, product product) func(m *maker, x *onnx.Value) {
		return func(m *maker, x *onnx.Value) {
			if k != 16 {
				x = m.Op("MatMul", x, m.weight(16, k))
			}
			x = m.Op("Reshape", x, []int64{-1, k})
			heads := func(n int64) *onnx.Value {
				return m.Op("Reshape", product(m, x, width*n, k), []int64{-1, n, width})
			}
			pool := func(name string) *onnx.Value {
				return m.Input(name, onnx.Int8, "blocks", 16, int(keys), int(width))
			}
			scale := func(name string) *onnx.Value { return m.Input(name, onnx.Float, "blocks", int(keys)) }
			y := m.fused(5, fused.QPagedAttention{PagedAttention: fused.PagedAttention{Scale: 0.5, Causal: true,
				HeadOrder: "blocked"}}, heads(queries), heads(keys), heads(keys), pool("keys"), pool("values"),
				m.Input("cum", onnx.Int32, "sequences+1"), m.Input("lengths", onnx.Int32, "sequences"),
				m.Input("table", onnx.Int32, "sequences", "columns"), scale("key_scales"), scale("value_scales"), nil,
				m.weight(queries))
			m.Output(product(m, m.Op("Reshape", y[0], []int64{-1, queries * width}), k, queries*width))
			for _, v := range y[1:] {
				m.Output(v)
			}
		}
	}
	build("pools of codes", pools(8, 4, 4, 16, func(m *maker, x *onnx.Value, n, k int64) *onnx.Value {
		return m.Op("MatMul", x, m.weight(k, n))
	}))
	build("quantized queries and keys, pools of codes", pools(14, 2, 32, 32, (*maker).linear))
	return models
}

// TestBuilt: each model is divided into one block, and nothing large stays whole.
func TestBuilt(t *testing.T) {
	want := map[string]int{"experts with biases": 1, "delta layer with one convolution": 1, "latent attention": 1,
		"two sums, a table and factors of channels": 2, "nine heads that share three of keys": 1,
		"quantized queries and keys, pools of codes": 2, "one matrix of 12 heads and 2 of keys": 1,
		"one matrix of 12 heads and one of keys":            1,
		"one matrix, cut behind an axis for heads of keys":  1,
		"queries, keys and values before 9 heads":           1,
		"half a cache, and a gate of 12 heads that share 2": 1,
		"slices of 10 heads and 2 of keys":                  1,
		"a bias of keys, as long as the past and the rows":  1, "a table and a head of 33 tokens": 2,
		"quantized products": 4, "quantized experts": 2, "pools of codes": 1}
	models := built(t)
	for name, blocks := range want {
		m := models[name]
		for _, o := range []Options{{Ranks: 2, Experts: Split}, {Ranks: 3, Experts: Split},
			{Ranks: 3, Experts: Spread}, {Ranks: 4, Experts: Split}} {
			o.Least = 1024
			name := fmt.Sprint(name, ", ", o.Ranks, " ranks, ", o.Experts)
			p, err := New(m, o)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if len(p.Blocks) != blocks {
				t.Errorf("%s: %d blocks instead of %d: %+v", name, len(p.Blocks), blocks, p.Whole)
			}
			for _, b := range p.Blocks {
				if len(b.Collectives) != 1 {
					t.Errorf("%s: the block of %s has the operations %v instead of one", name, b.First, b.Collectives)
				}
			}
		}
	}
}

// TestUnread: the plan says which rule keeps the heads of an attention whole if no product reads them.
func TestUnread(t *testing.T) {
	m := &maker{Builder: onnxtest.New(20), t: t}
	x := m.Input("x", onnx.Float, "batch", "sequence", 16)
	heads := func() *onnx.Value { return m.Op("Reshape", m.Op("MatMul", x, m.weight(16, 16)), []int64{0, 0, 2, 8}) }
	m.Output(m.attention(1, heads(), heads(), heads())[0])
	p, err := New(m.Model, Options{Ranks: 4, Experts: Split, Least: 1024})
	if err != nil {
		t.Fatal(err)
	}
	const want = `no product that can be divided reads it: axis 2 of "attention": 2 is not a multiple of 4`
	if text := fmt.Sprint(p.Undivided); !strings.Contains(text, want) {
		t.Errorf("%s instead of %q", text, want)
	}
}

// TestSharedColumns: a product does not sum over elements that several ranks have.
func TestSharedColumns(t *testing.T) {
	m := &maker{Builder: onnxtest.New(20), t: t}
	x := m.Input("x", onnx.Float, "rows", 16)
	for _, op := range []string{"MatMul", "Gemm"} {
		y := m.Op(op, x, m.weight(16, 8))
		m.Output(y)
		b := newBlock(4, infer.Analyze(m.Model))
		b.held[x] = Layout{Axis: 1, Copies: 2}
		if err := ruleOf(y.Producer)(b, y.Producer); !errors.Is(err, errShared) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestUnits: the estimate counts the largest part, two of three heads of keys.
func TestUnits(t *testing.T) {
	p, err := New(built(t)["nine heads that share three of keys"], Options{Ranks: 2, Experts: Split})
	if err != nil {
		t.Fatal(err)
	}
	const all = 4 * (16*(36+12+12) + 36*16 + 9)
	if saved := p.Blocks[0].Saved; saved != all/3 {
		t.Errorf("a rank reads %d of %d bytes less, not a third", saved, all)
	}
}

// TestNamedNumbers: a dimension that an exporter wrote as a name that is a number gets the size of a part.
func TestNamedNumbers(t *testing.T) {
	m := built(t)["delta layer with one convolution"]
	state := m.Graph.Value("state")
	typ, _ := state.Type()
	typ.Dims[1] = onnx.Dim{Value: -1, Param: "8"}
	state.SetType(typ)
	p, err := New(m, Options{Ranks: 2, Experts: Split, Least: 1024})
	if err != nil {
		t.Fatal(err)
	}
	rank, err := p.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	if typ, _ := rank.Graph.Value("state").Type(); typ.Dims[1].Value != 4 {
		t.Errorf("a rank's state has %v heads instead of 4", typ.Dims[1])
	}
}
