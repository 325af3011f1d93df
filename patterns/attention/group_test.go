package attention_test

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// group builds a GroupQueryAttention with four heads, two key heads and a cache, like onnxruntime-genai's builder.
type group struct {
	*onnxtest.Builder
	mask, lengths, total value
	inputs               []value
	attrs                []*onnx.Attribute
	grown                string // the length of the present
}

func buildGroup(change func(g *group)) *onnx.Model {
	g := &group{Builder: onnxtest.New(21), grown: "total"}
	q, k, v := g.Input("q", onnx.Float, "batch", "queries", 32), g.Input("k", onnx.Float, "batch", "queries", 16),
		g.Input("v", onnx.Float, "batch", "queries", 16)
	g.mask = g.Input("mask", onnx.Int64, "batch", "total")
	past := []value{g.Input("past_k", onnx.Float, "batch", 2, "past", 8),
		g.Input("past_v", onnx.Float, "batch", 2, "past", 8)}
	int32s := onnx.IntAttr("to", int64(onnx.Int32))
	sum := g.Op("ReduceSum", g.mask, []int64{1}, onnx.IntAttr("keepdims", 0))
	g.lengths = g.Op("Cast", g.Op("Sub", sum, []int64{1}), int32s)
	g.total = g.Op("Cast", g.Op("Gather", g.Op("Shape", g.mask), 1), int32s)
	g.attrs = []*onnx.Attribute{onnx.IntAttr("num_heads", 4), onnx.IntAttr("kv_num_heads", 2),
		onnx.FloatAttr("scale", 0.5)}
	g.inputs = []value{q, k, v, past[0], past[1], nil, nil}
	change(g)
	g.inputs[5], g.inputs[6] = g.lengths, g.total
	args := make([]any, 0, len(g.inputs)+len(g.attrs))
	for _, v := range g.inputs {
		args = append(args, v)
	}
	for _, a := range g.attrs {
		args = append(args, a)
	}
	for i, v := range g.Ops(3, "com.microsoft:GroupQueryAttention", args...) {
		if g.Output(v); i > 0 {
			v.SetType(onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1, Param: "batch"},
				{Value: 2}, {Value: -1, Param: g.grown}, {Value: 8}}})
		}
	}
	return g.Model
}

// TestGroupQueryAttention reads forms of the op, and refuses similar ones.
func TestGroupQueryAttention(t *testing.T) {
	const usual = "scale=0.5 causal=1 zero blocked q k v mask past_k past_v"
	const unequal = "missed: the lengths of its sequences are not computed from a mask that covers its cache and the " +
		"new tokens: each sequence may have another length"
	set := func(attrs ...*onnx.Attribute) func(g *group) {
		return func(g *group) { g.attrs = append(g.attrs, attrs...) }
	}
	tables := func(g *group) {
		g.inputs = append(g.inputs, g.Input("cos", onnx.Float, 64, 4), g.Input("sin", onnx.Float, 64, 4))
		g.attrs = append(g.attrs, onnx.IntAttr("do_rotary", 1))
	}
	for _, c := range []struct {
		name   string
		change func(g *group)
		want   string
	}{
		{"plain", set(), usual},
		{"a cap", set(onnx.FloatAttr("softcap", 30)),
			"scale=0.5 causal=1 softcap=30 zero blocked q k v mask past_k past_v"},
		{"not causal", set(onnx.IntAttr("causal", 0)), "scale=0.5 zero blocked q k v mask past_k past_v"},
		{"rotated", tables, usual + " cos sin"},
		{"packed", func(g *group) {
			g.inputs[0], g.inputs[1], g.inputs[2] = g.Input("qkv", onnx.Float, "batch", "queries", 64), nil, nil
		}, "scale=0.5 causal=1 zero blocked qkv mask past_k past_v"},
		{"without a cache, a window", func(g *group) {
			g.inputs[3], g.inputs[4], g.grown = nil, nil, "queries"
			g.attrs = append(g.attrs, onnx.IntAttr("local_window_size", 4))
			g.mask = nil
			g.lengths = g.Op("Cast", g.Op("Sub", g.Op("Expand", g.Op("Gather", g.Op("Shape", g.inputs[0]), []int64{1}),
				g.Op("Gather", g.Op("Shape", g.inputs[0]), []int64{0})), []int64{1}),
				onnx.IntAttr("to", int64(onnx.Int32)))
			g.total = g.Op("Cast", g.Op("Gather", g.Op("Shape", g.inputs[0]), 1), onnx.IntAttr("to", int64(onnx.Int32)))
		}, "scale=0.5 causal=1 window=4 zero blocked q k v"},
		{"smooth", set(onnx.IntAttr("smooth_softmax", 1)), usual + " sinks of 0"},
		{"a cache whose width has but a name", func(g *group) {
			for _, v := range g.inputs[3:5] {
				decl, _ := v.Type()
				decl.Dims[3] = onnx.Dim{Value: -1, Param: "kv_cache_dim"}
				v.SetType(decl)
			}
		}, usual},
		{"sinks and a bias", func(g *group) {
			g.inputs = append(g.inputs, nil, nil, nil, g.Input("bias", onnx.Float, 1, 4, "queries", "total"),
				g.Input("sinks", onnx.Float, 4))
		}, usual + " bias sinks"},

		// Forms that compute, or may compute, something else.
		{"lengths that are given", func(g *group) {
			g.lengths, g.total = g.Input("lengths", onnx.Int32, "batch"), g.Input("length", onnx.Int32)
		}, unequal},
		{"a buffer", func(g *group) { g.grown = "past" }, unequal},
		{"one key less", func(g *group) {
			g.lengths = g.Op("Sub", g.lengths, g.Op("Cast", []int64{1}, onnx.IntAttr("to", int64(onnx.Int32))))
		}, "missed: the lengths of its sequences are [-1 -1 -1] of [1], not [0 0 0] of 1"},
		{"a window of a cache", set(onnx.IntAttr("local_window_size", 4)),
			"missed: its window counts only tokens that exist. In a batch of prompts of different lengths, " +
				"mojo.Attention would also count the padding between them"},
		{"positions", func(g *group) {
			tables(g)
			g.inputs = append(g.inputs, g.Input("ids", onnx.Int64, "batch", "queries"))
		},
			"missed: it reads only the first position of a prompt"},
		{"a cache of a window", set(onnx.IntAttr("sliding_window_cache", 1)), "missed: its cache holds only a window"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := found(t, buildGroup(c.change)); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}
