package shard

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
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
		past := m.Input("past", onnx.Float, "batch", 32, 3)
		packed := m.Op("Transpose", m.Op("MatMul", x, m.weight(16, 32)), onnx.IntsAttr("perm", []int64{0, 2, 1}))
		conv := m.fused(2, fused.CausalConv{Activation: "silu"}, packed, m.weight(32, 1, 4), m.weight(32), past)
		qkv := m.Ops(3, "Split", m.Op("Transpose", conv[0], onnx.IntsAttr("perm", []int64{0, 2, 1})), []int64{8, 8, 16},
			onnx.IntAttr("axis", 2))
		beta := m.Op("Sigmoid", m.Op("MatMul", x, m.weight(16, 4)))
		decay := m.Op("Neg", m.Op("Exp", m.Op("MatMul", x, m.weight(16, 4))))
		state := m.Input("state", onnx.Float, "batch", 4, 4, 4)
		y := m.fused(2, fused.LinearAttention{QHeads: 2, KHeads: 2, VHeads: 4, Scale: 0.5, L2Norm: true, Epsilon: 1e-6},
			qkv[0], qkv[1], qkv[2], state, decay, beta)
		m.Output(m.Op("MatMul", y[0], m.weight(16, 16)))
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
		y := m.fused(3, fused.Attention{Scale: 0.5, Causal: true, Empty: "zero", HeadOrder: "blocked", QLayout: "bsnh",
			KLayout: "bsnh", VLayout: "bsnh", YLayout: "bsnh"}, heads(9), heads(3), heads(3), nil, keys, values, nil,
			nil, m.weight(9))
		shape := m.Op("Shape", y[0])
		number := func(at int64) *onnx.Value { return m.Op("Gather", shape, []int64{at}) }
		flat := m.Op("Concat", number(0), number(1), m.Op("Mul", number(2), number(3)), onnx.IntAttr("axis", 0))
		m.Output(m.Op("MatMul", m.Op("Reshape", y[0], flat), m.weight(36, 16)))
		m.Output(y[1])
		m.Output(y[2])
	})
	build("a table and a head of 33 tokens", func(m *maker, x *onnx.Value) {
		ids := m.Input("tokens", onnx.Int64, "batch", "sequence")
		m.Output(m.Op("MatMul", m.Op("Add", x, m.Op("Gather", m.weight(33, 16), ids)), m.weight(16, 33)))
	})
	return models
}

// TestBuilt: each model is divided into one block, and nothing large stays whole.
func TestBuilt(t *testing.T) {
	want := map[string]int{"experts with biases": 1, "delta layer with one convolution": 1, "latent attention": 1,
		"two sums, a table and factors of channels": 2, "nine heads that share three of keys": 1,
		"a table and a head of 33 tokens": 2}
	for name, m := range built(t) {
		p, err := New(m, Options{Ranks: 2, Experts: Split, Least: 1024})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(p.Blocks) != want[name] {
			t.Errorf("%s: %d blocks instead of %d: %+v", name, len(p.Blocks), want[name], p.Whole)
		}
		for _, b := range p.Blocks {
			if len(b.Collectives) != 1 {
				t.Errorf("%s: the block of %s has the operations %v instead of one", name, b.First, b.Collectives)
			}
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
	typ.Dims[1] = onnx.Dim{Value: -1, Param: "4"}
	state.SetType(typ)
	p, err := New(m, Options{Ranks: 2, Experts: Split, Least: 1024})
	if err != nil {
		t.Fatal(err)
	}
	rank, err := p.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	if typ, _ := rank.Graph.Value("state").Type(); typ.Dims[1].Value != 2 {
		t.Errorf("a rank's state has %v heads instead of 2", typ.Dims[1])
	}
}
