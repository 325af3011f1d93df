//go:build cgo

package reference_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
)

// normal makes a tensor of normal numbers.
func normal(t *testing.T, r *rand.Rand, typ onnx.DataType, dims ...int) *onnx.Tensor {
	t.Helper()
	n := 1
	for _, d := range dims {
		n *= d
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = r.NormFloat64()
	}
	x, err := reference.NewFloats(typ, dims, v).ToONNX("")
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// likeOnnxruntime runs a node in onnxruntime, on the CPU, and in the evaluator, and compares its outputs: one, or three
// of an op with a cache. Inputs may be nil.
func likeOnnxruntime(t *testing.T, domain, op string, opset int64, inputs []*onnx.Tensor, precision float64,
	attrs ...*onnx.Attribute) {
	t.Helper()
	library := orttest.Library(t)
	m := onnx.New(10, opset)
	m.ImportOpset("com.microsoft", 1)
	values := make([]*onnx.Value, len(inputs))
	given := map[string]*reference.Tensor{}
	var list []*onnx.Tensor
	for i, x := range inputs {
		if x == nil {
			continue
		}
		x.Name = string(rune('a' + i))
		dims := make([]onnx.Dim, len(x.Dims))
		for k, d := range x.Dims {
			dims[k].Value = d
		}
		values[i] = m.Graph.AddInput(x.Name, onnx.Type{DataType: x.DataType, HasShape: true, Dims: dims})
		r, err := reference.FromONNX(x)
		if err != nil {
			t.Fatal(err)
		}
		given[x.Name], list = r, append(list, x)
	}
	outputs := []*onnx.Value{m.Graph.NewValue("y")}
	if op == "GroupQueryAttention" || op == "MultiHeadAttention" && len(inputs) == 8 {
		outputs = append(outputs, m.Graph.NewValue("present_key"), m.Graph.NewValue("present_value"))
	}
	if op == "GatedDeltaNet" {
		outputs = append(outputs, m.Graph.NewValue("final_state"))
	}
	m.Graph.AddNode(op, values, outputs, attrs...).Domain = domain
	typ := inputs[0].DataType
	if op == "GatherBlockQuantized" || op == "DequantizeLinear" {
		typ = inputs[len(inputs)-2].DataType
	}
	for _, v := range outputs {
		if v.Name == "final_state" {
			typ = onnx.Float
		}
		v.SetType(onnx.Type{DataType: typ})
		m.Graph.AddOutput(v)
	}
	b, err := onnx.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ort.OpenBytes(b, "", ort.WithLibrary(library), ort.WithThreads(1))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.Run(list)
	if err != nil {
		t.Fatal(err)
	}
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Run(given)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range outputs {
		want, err := reference.FromONNX(out[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := reference.CloseTo(got[v.Name], want, precision, precision); err != nil {
			t.Errorf("onnxruntime differs: %v", err)
		}
	}
}

func TestMicrosoftRotaryEmbedding(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const f32, f16 = onnx.Float, onnx.Float16
	i := onnx.IntAttr
	one := onnx.NewInt64s("", []int64{2})
	each := onnx.NewInt64s("", []int64{5, 0, 1, 3, 3, 4})
	each.Dims = []int64{2, 3}
	for _, c := range []struct {
		name      string
		typ       onnx.DataType
		x, tables []int
		positions *onnx.Tensor
		attrs     []*onnx.Attribute
	}{
		{"heads", f32, []int{2, 4, 3, 8}, []int{6, 4}, one, nil},
		{"heads, each position", f32, []int{2, 4, 3, 8}, []int{6, 4}, each, nil},
		{"interleaved", f32, []int{2, 4, 3, 8}, []int{6, 4}, each, []*onnx.Attribute{i("interleaved", 1)}},
		{"packed heads", f32, []int{2, 3, 32}, []int{6, 4}, each, nil},
		{"packed heads, interleaved", f32, []int{2, 3, 32}, []int{6, 4}, one, []*onnx.Attribute{i("interleaved", 1)}},
		{"part", f32, []int{2, 4, 3, 8}, []int{6, 2}, one,
			[]*onnx.Attribute{i("num_heads", 4), i("rotary_embedding_dim", 4)}},
		{"part of packed heads", f32, []int{2, 3, 32}, []int{6, 2}, each,
			[]*onnx.Attribute{i("num_heads", 4), i("rotary_embedding_dim", 4)}},
		{"float16", f16, []int{2, 4, 3, 8}, []int{6, 4}, each, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			inputs := []*onnx.Tensor{normal(t, r, c.typ, c.x...), c.positions, normal(t, r, c.typ, c.tables...),
				normal(t, r, c.typ, c.tables...)}
			precision := 1e-6
			if c.typ == f16 {
				precision = 4e-3
			}
			likeOnnxruntime(t, "com.microsoft", "RotaryEmbedding", 17, inputs, precision, c.attrs...)
		})
	}
}

func TestMicrosoftMoE(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const experts, hidden, inner, tokens = 5, 8, 6, 7
	i, f, s := onnx.IntAttr, onnx.FloatAttr, onnx.StringAttr
	gated := []*onnx.Attribute{s("activation_type", "swiglu"), i("swiglu_fusion", 1)}
	for _, c := range []struct {
		name   string
		typ    onnx.DataType
		x      []int
		parts  int
		biases bool
		attrs  []*onnx.Attribute
	}{
		{"gated", onnx.Float, []int{tokens, hidden}, 2, false,
			append(gated, i("k", 2), i("normalize_routing_weights", 1))},
		{"not normalized, biases", onnx.Float, []int{tokens, hidden}, 2, true, append(gated, i("k", 3))},
		{"clamped", onnx.Float, []int{1, tokens, hidden}, 2, true,
			append(gated, i("k", 2), i("normalize_routing_weights", 1),
				f("activation_alpha", 1.702), f("activation_beta", 1), f("swiglu_limit", 1.5))},
		{"relu", onnx.Float, []int{tokens, hidden}, 1, false,
			[]*onnx.Attribute{i("k", 1), s("activation_type", "relu")}},
		{"gelu", onnx.Float, []int{tokens, hidden}, 1, true,
			[]*onnx.Attribute{i("k", 2), s("activation_type", "gelu")}},
		{"silu", onnx.Float, []int{tokens, hidden}, 1, false,
			[]*onnx.Attribute{i("k", 5), s("activation_type", "silu")}},
		{"identity", onnx.Float, []int{tokens, hidden}, 1, false,
			[]*onnx.Attribute{i("k", 2), s("activation_type", "identity")}},
		{"float16", onnx.Float16, []int{tokens, hidden}, 2, true,
			append(gated, i("k", 2), i("normalize_routing_weights", 1))},
	} {
		t.Run(c.name, func(t *testing.T) {
			inputs := []*onnx.Tensor{normal(t, r, c.typ, c.x...), normal(t, r, c.typ, tokens, experts),
				normal(t, r, c.typ, experts, c.parts*inner, hidden), nil, normal(t, r, c.typ, experts, hidden, inner)}
			if c.biases {
				inputs[3] = normal(t, r, c.typ, experts, c.parts*inner)
				inputs = append(inputs, normal(t, r, c.typ, experts, hidden))
			}
			precision := 1e-4
			if c.typ == onnx.Float16 {
				precision = 0.05
			}
			likeOnnxruntime(t, "com.microsoft", "MoE", 17, inputs, precision, c.attrs...)
		})
	}
}

func TestMicrosoftMultiHeadAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const batch, queries, past, heads, width = 2, 3, 4, 4, 8
	heads4 := onnx.IntAttr("num_heads", heads)
	rows := func(n, width int) *onnx.Tensor { return normal(t, r, onnx.Float, batch, n, heads*width) }
	cache := func() *onnx.Tensor { return normal(t, r, onnx.Float, batch, heads, past, width) }
	lengths := func(dims []int, n ...int64) *onnx.Tensor {
		x, err := reference.NewInts(onnx.Int32, dims, n).ToONNX("")
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, c := range []struct {
		name   string
		inputs []*onnx.Tensor
		attrs  []*onnx.Attribute
	}{
		{"plain", []*onnx.Tensor{rows(3, width), rows(5, width), rows(5, width)}, nil},
		{"a scale", []*onnx.Tensor{rows(3, width), rows(5, width), rows(5, width)},
			[]*onnx.Attribute{onnx.FloatAttr("scale", 0.2)}},
		{"values of another width", []*onnx.Tensor{rows(3, width), rows(5, width), rows(5, 6)}, nil},
		{"causal", []*onnx.Tensor{rows(3, width), rows(3, width), rows(3, width)},
			[]*onnx.Attribute{onnx.IntAttr("unidirectional", 1)}},
		{"keys and values by heads", []*onnx.Tensor{rows(3, width), normal(t, r, onnx.Float, batch, heads, 5, width),
			normal(t, r, onnx.Float, batch, heads, 5, width)}, nil},
		{"biases", []*onnx.Tensor{rows(3, width), rows(5, width), rows(5, width),
			normal(t, r, onnx.Float, 3*heads*width)}, nil},
		{"lengths", []*onnx.Tensor{rows(3, width), rows(5, width), rows(5, width), nil, lengths([]int{2}, 4, 2)}, nil},
		{"keys that exist", []*onnx.Tensor{rows(3, width), rows(5, width), rows(5, width), nil,
			lengths([]int{2, 5}, 1, 1, 0, 1, 1, 0, 0, 1, 1, 1)},
			[]*onnx.Attribute{onnx.FloatAttr("mask_filter_value", -2)}},
		{"a bias of the scores", []*onnx.Tensor{rows(3, width), rows(5, width), rows(5, width), nil, nil,
			normal(t, r, onnx.Float, 1, heads, queries, 5)}, nil},
		{"with a cache", []*onnx.Tensor{rows(3, width), rows(3, width), rows(3, width), nil, nil,
			normal(t, r, onnx.Float, batch, 1, queries, past+queries), cache(), cache()}, nil},
		{"with a cache, causal", []*onnx.Tensor{rows(3, width), rows(3, width), rows(3, width), nil, nil, nil, cache(),
			cache()}, []*onnx.Attribute{onnx.IntAttr("unidirectional", 1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			likeOnnxruntime(t, "com.microsoft", "MultiHeadAttention", 17, c.inputs, 1e-5, append(c.attrs, heads4)...)
		})
	}
}

func TestMicrosoftGroupQueryAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const heads, kv, width, table = 4, 2, 32, 12
	i, f := onnx.IntAttr, onnx.FloatAttr
	ints := func(n ...int64) *onnx.Tensor {
		x, err := reference.NewInts(onnx.Int32, []int{len(n)}, n).ToONNX("")
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	positions := func(rows int64, n ...int64) *onnx.Tensor {
		x := onnx.NewInt64s("", n)
		x.Dims = []int64{rows, int64(len(n)) / rows}
		return x
	}
	bias := func(dims ...int) *onnx.Tensor { return normal(t, r, onnx.Float, dims...) }
	rotary, rotation := []int{table, width / 2}, i("do_rotary", 1)
	for _, c := range []struct {
		name          string
		queries, past int // past: of the cache, or of the buffer
		lengths       []int64
		total         int64
		packed        bool
		tables        []int
		more          []*onnx.Tensor // from input 9 on
		attrs         []*onnx.Attribute
	}{
		{name: "a prompt", queries: 3, lengths: []int64{2, 2}, total: 3},
		{name: "no past", queries: 3, past: -1, lengths: []int64{2, 2}, total: 3},
		{name: "prompts with padding", queries: 4, lengths: []int64{3, 1}, total: 4},
		{name: "prompts with padding, window", queries: 5, lengths: []int64{4, 1}, total: 5,
			attrs: []*onnx.Attribute{i("local_window_size", 2)}},
		{name: "prompts in a buffer", queries: 4, past: 7, lengths: []int64{3, 1}, total: 4},
		{name: "not causal", queries: 4, lengths: []int64{3, 2}, total: 4, attrs: []*onnx.Attribute{i("causal", 0)}},
		{name: "a token", queries: 1, past: 4, lengths: []int64{4, 4}, total: 5},
		{name: "a token each, ragged", queries: 1, past: 4, lengths: []int64{4, 2}, total: 5},
		{name: "a token each in a buffer, window", queries: 1, past: 9, lengths: []int64{4, 2}, total: 5,
			attrs: []*onnx.Attribute{i("local_window_size", 2)}},
		{name: "tokens behind a past", queries: 3, past: 4, lengths: []int64{6}, total: 7},
		{name: "tokens behind a part of a past", queries: 3, past: 4, lengths: []int64{5}, total: 7},
		{name: "packed", queries: 3, lengths: []int64{2, 2}, total: 3, packed: true},
		{name: "packed and rotated", queries: 1, past: 4, lengths: []int64{4, 3}, total: 5, packed: true,
			tables: rotary, attrs: []*onnx.Attribute{rotation}},
		{name: "a prompt rotated", queries: 4, lengths: []int64{3, 1}, total: 4, tables: rotary,
			attrs: []*onnx.Attribute{rotation}},
		{name: "tokens rotated by neighbors", queries: 3, past: 4, lengths: []int64{6}, total: 7, tables: rotary,
			attrs: []*onnx.Attribute{rotation, i("rotary_interleaved", 1)}},
		{name: "a part rotated", queries: 1, past: 4, lengths: []int64{4, 2}, total: 5, tables: []int{table, 8},
			attrs: []*onnx.Attribute{rotation}},
		{name: "positions of a prompt", queries: 3, lengths: []int64{2, 2}, total: 3, tables: rotary,
			more: []*onnx.Tensor{positions(2, 4, 5, 6, 0, 1, 2)}, attrs: []*onnx.Attribute{rotation}},
		{name: "positions of tokens", queries: 1, past: 4, lengths: []int64{4, 4}, total: 5, tables: rotary,
			more: []*onnx.Tensor{positions(2, 6, 2)}, attrs: []*onnx.Attribute{rotation}},
		{name: "a scale and a cap", queries: 1, past: 4, lengths: []int64{4, 2}, total: 5,
			attrs: []*onnx.Attribute{f("scale", 0.7), f("softcap", 1.5)}},
		{name: "smooth softmax", queries: 3, lengths: []int64{2, 2}, total: 3,
			attrs: []*onnx.Attribute{i("smooth_softmax", 1)}},
		{name: "sinks", queries: 1, past: 4, lengths: []int64{4, 2}, total: 5,
			more: []*onnx.Tensor{nil, nil, bias(heads)}, attrs: []*onnx.Attribute{i("local_window_size", 3)}},
		{name: "a bias", queries: 3, lengths: []int64{2, 2}, total: 3, more: []*onnx.Tensor{nil, bias(2, heads, 3, 3)}},
		{name: "a bias, capped, behind a past", queries: 3, past: 4, lengths: []int64{6}, total: 7,
			more: []*onnx.Tensor{nil, bias(1, 1, 3, 7)}, attrs: []*onnx.Attribute{f("softcap", 1.5)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := len(c.lengths)
			rows := func(n int) *onnx.Tensor { return normal(t, r, onnx.Float, b, c.queries, n*width) }
			inputs := []*onnx.Tensor{rows(heads), rows(kv), rows(kv), nil, nil, ints(c.lengths...), ints(c.total), nil,
				nil}
			inputs[6].Dims = nil
			if c.packed {
				inputs[0], inputs[1], inputs[2] = rows(heads+2*kv), nil, nil
			}
			for k := 3; c.past >= 0 && k < 5; k++ {
				inputs[k] = normal(t, r, onnx.Float, b, kv, c.past, width)
			}
			for k := 7; c.tables != nil && k < 9; k++ {
				inputs[k] = normal(t, r, onnx.Float, c.tables...)
			}
			likeOnnxruntime(t, "com.microsoft", "GroupQueryAttention", 21, append(inputs, c.more...), 1e-5,
				append(c.attrs, i("num_heads", heads), i("kv_num_heads", kv))...)
		})
	}
}

func TestGatedDeltaNet(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const f32, f16, batch, tokens, keys, states, dk, dv = onnx.Float, onnx.Float16, 2, 5, 2, 4, 6, 3
	i, f, s := onnx.IntAttr, onnx.FloatAttr, onnx.StringAttr
	unit := i("qk_l2_norm", 1)
	for _, c := range []struct {
		name    string
		typ     onnx.DataType
		outer   []int // of the tokens
		channel bool  // a decay for each channel of the keys
		bias    []int // of the gate; nil: no activation
		attrs   []*onnx.Attribute
	}{
		{"gated_delta", f32, []int{batch, tokens}, false, nil, []*onnx.Attribute{unit}},
		{"tokens of all sequences", f32, []int{batch * tokens}, false, nil, []*onnx.Attribute{unit, f("scale", 0.5)}},
		{"gated", f32, []int{batch, tokens}, true, nil, []*onnx.Attribute{s("update_rule", "gated")}},
		{"delta", f32, []int{batch, tokens}, false, nil, []*onnx.Attribute{s("update_rule", "delta"), unit}},
		{"linear", f32, []int{batch, tokens}, false, nil, []*onnx.Attribute{s("update_rule", "linear")}},
		{"softplus", f32, []int{batch, tokens}, false, []int{states}, []*onnx.Attribute{unit,
			s("gate_activation", "softplus"), s("beta_activation", "sigmoid")}},
		{"Kimi's", f32, []int{batch, tokens}, true, []int{states, dk}, []*onnx.Attribute{unit,
			s("gate_activation", "kda"), f("gate_lower_bound", -2)}},
		{"Kimi's, one bias a head", f16, []int{batch, tokens}, true, []int{states}, []*onnx.Attribute{unit,
			s("gate_activation", "sigmoid")}},
		{"packed", f32, []int{batch, tokens}, false, nil, []*onnx.Attribute{unit}},
		{"packed", f16, []int{batch * tokens}, false, []int{states}, []*onnx.Attribute{unit,
			s("gate_activation", "qwen")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := func(typ onnx.DataType, dims ...int) *onnx.Tensor {
				return normal(t, r, typ, append(slices.Clone(c.outer), dims...)...)
			}
			inputs := []*onnx.Tensor{of(c.typ, keys, dk), of(c.typ, keys, dk), of(c.typ, states, dv), nil,
				of(f32, states), of(f32, states), normal(t, r, f32, batch, states, dv, dk), nil, nil}
			if c.name == "packed" {
				inputs[0], inputs[1], inputs[2] = of(c.typ, 2*keys*dk+states*dv), nil, nil
			}
			if c.channel {
				inputs[4] = of(f32, states, dk)
			}
			if c.bias != nil {
				inputs[7], inputs[8] = normal(t, r, f32, states), normal(t, r, f32, c.bias...)
			}
			rule := "gated_delta"
			for _, a := range c.attrs {
				if a.Name == "update_rule" {
					rule = a.String
				}
			}
			if !strings.Contains(rule, "gated") {
				inputs[4] = nil
			}
			if !strings.Contains(rule, "delta") {
				inputs[5] = nil
			}
			precision := 1e-4
			if c.typ == f16 {
				precision = 2e-2
			}
			likeOnnxruntime(t, "com.microsoft", "GatedDeltaNet", 20, inputs, precision, c.attrs...)
		})
	}
}

// TestPagedAttentionRotates: PagedAttention rotates queries and keys by their positions, before it writes the keys, and
// takes them from one packed tensor.
func TestPagedAttentionRotates(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const tokens, heads, width, half = 5, 4, 16, 8
	list := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = r.NormFloat64()
		}
		return x
	}
	floats := func(x []float64, shape ...int) *reference.Tensor { return reference.NewFloats(onnx.Double, shape, x) }
	ints := func(x ...int64) *reference.Tensor { return reference.NewInts(onnx.Int32, []int{len(x)}, x) }
	all, keys, values := list(tokens*heads*2*width), list(3*16*2*width), list(3*16*2*width)
	cos, sin, sink := list(24*half), list(24*half), list(heads)
	positions := []int{17, 18, 0, 1, 2} // two tokens after 17, three of another sequence
	table := reference.NewInts(onnx.Int32, []int{2, 2}, []int64{2, 0, 1, -1})
	run := func(interleaved, inside bool, in ...*reference.Tensor) []*reference.Tensor {
		m := onnx.New(10, 21)
		n := m.Graph.NewNode("PagedAttention", make([]*onnx.Value, len(in)), onnx.IntAttr("num_heads", heads),
			onnx.IntAttr("kv_num_heads", 2), onnx.BoolAttr("do_rotary", inside),
			onnx.BoolAttr("rotary_interleaved", interleaved))
		n.Domain = onnx.Microsoft
		for i, x := range in {
			if x != nil {
				n.SetInput(i, m.Graph.NewValue("x"))
			}
		}
		n.Outputs = []*onnx.Value{m.Graph.NewValue("y"), m.Graph.NewValue("k"), m.Graph.NewValue("v")}
		out, err := reference.NewForOpset(21, nil, reference.Options{Exact: true}).Op(n, in)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, interleaved := range []bool{false, true} {
		var parts [3][]float64 // of all, rotated
		for i, at := range positions {
			row := slices.Clone(all[i*heads*2*width : (i+1)*heads*2*width])
			for h := range heads + 2 {
				x := row[h*width : (h+1)*width]
				y := slices.Clone(x)
				for p := range half {
					a, b := p, p+half
					if interleaved {
						a, b = 2*p, 2*p+1
					}
					c, s := cos[at*half+p], sin[at*half+p]
					y[a], y[b] = x[a]*c-x[b]*s, x[b]*c+x[a]*s
				}
				copy(x, y)
			}
			parts[0] = append(parts[0], row[:heads*width]...)
			parts[1] = append(parts[1], row[heads*width:(heads+2)*width]...)
			parts[2] = append(parts[2], row[(heads+2)*width:]...)
		}
		pools := []*reference.Tensor{floats(keys, 3, 16, 2, width), floats(values, 3, 16, 2, width), ints(0, 2, 5),
			ints(17, 0), table}
		behind := []*reference.Tensor{floats(cos, 24, half), floats(sin, 24, half), nil, floats(sink, heads)}
		apart := []*reference.Tensor{floats(parts[0], tokens, heads*width), floats(parts[1], tokens, 2*width),
			floats(parts[2], tokens, 2*width)}
		want := run(interleaved, false, append(append(apart, pools...), nil, nil, nil, behind[3])...)
		got := run(interleaved, true, append(append([]*reference.Tensor{floats(all, tokens, heads*2*width), nil, nil},
			pools...), behind...)...)
		for i := range want {
			for k, x := range want[i].F {
				if math.Abs(x-got[i].F[k]) > 1e-12 {
					t.Fatalf("interleaved %t: element %d of output %d is %g, want %g", interleaved, k, i,
						got[i].F[k], x)
				}
			}
		}
	}
}
