package target

import (
	"cmp"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// attend is a site of Attention: 2 sequences of 3 tokens, 4 heads of 8 channels, 2 heads of keys.
type attend struct {
	typ                    onnx.DataType
	layouts                string // of q, k, v and y: h is heads first, t tokens first
	causal, window, keys   int64  // keys: size of the cache
	before                 int    // number of keys in k and v before those of the queries
	softcap                float32
	empty, order           string
	valid, bias, sink, set bool  // inputs; set: past_length
	mask                   []int // dims of the bias; nil: all of batch and queries
}

func (a attend) site() site {
	const heads, keyHeads, width, tokens = 4, 2, 8, 3
	s := site{op: "Attention", types: make([]onnx.DataType, 9), dims: make([][]int64, 9), run: make([][]int, 9)}
	give := func(i int, t onnx.DataType, free []int, dims ...int) {
		s.types[i], s.run[i] = t, dims
		for k, d := range dims {
			known := int64(d)
			if slices.Contains(free, k) {
				known = -1
			}
			s.dims[i] = append(s.dims[i], known)
		}
	}
	t := cmp.Or(a.typ, f32)
	s.attrs = []*onnx.Attribute{onnx.FloatAttr("scale", 0.25), onnx.IntAttr("causal", a.causal),
		onnx.IntAttr("window", a.window), onnx.FloatAttr("softcap", a.softcap),
		onnx.StringAttr("empty", cmp.Or(a.empty, "zero")), onnx.StringAttr("head_order", cmp.Or(a.order, "blocked"))}
	for i, name := range []string{"q", "k", "v", "y"} {
		layout, n := "bnsh", keyHeads
		if i == fused.AttentionQ {
			n = heads
		}
		dims, free := []int{2, n, tokens, width}, []int{0, 2}
		if name == "k" || name == "v" {
			dims[2] += a.before
		}
		if a.layouts[i] == 't' {
			layout, dims, free = "bsnh", []int{dims[0], dims[2], dims[1], dims[3]}, []int{0, 1}
		}
		s.attrs = append(s.attrs, onnx.StringAttr(name+"_layout", layout))
		if name != "y" {
			give(i, t, free, dims...)
		}
	}
	length := tokens + a.before + int(a.keys)
	if a.valid {
		give(fused.AttentionKeyValid, onnx.Int64, []int{0, 1}, 2, length)
	}
	if a.keys > 0 {
		give(fused.AttentionPastKey, t, []int{0, 2}, 2, keyHeads, int(a.keys), width)
		give(fused.AttentionPastValue, t, []int{0, 2}, 2, keyHeads, int(a.keys), width)
	}
	if a.set {
		give(fused.AttentionPastLength, onnx.Int64, nil, 1)
	}
	if a.bias {
		dims, free := a.mask, []int(nil)
		if dims == nil {
			dims, free = []int{2, 1, tokens, length}, []int{0, 2, 3}
		}
		give(fused.AttentionBias, f32, free, dims...)
	}
	if a.sink {
		give(fused.AttentionSink, f32, nil, heads)
	}
	last := len(s.types)
	for s.types[last-1] == onnx.Undefined {
		last--
	}
	s.types, s.dims, s.run = s.types[:last], s.dims[:last], s.run[:last]
	return s
}

func TestAttention(t *testing.T) {
	for _, c := range []struct {
		name string
		site attend
		ops  string
	}{
		{"heads first", attend{layouts: "hhhh", causal: 1}, "Attention"},
		{"tokens first", attend{layouts: "tttt", causal: 1}, "Reshape Reshape Reshape Attention Reshape"},
		{"values and result tokens first", attend{layouts: "hhtt"}, "Transpose Attention Transpose"},
		{"queries and keys tokens first", attend{layouts: "tthh"}, "Transpose Transpose Attention"},
		{"with a cache", attend{layouts: "hhhh", causal: 1, keys: 5}, "Attention"},
		{"with a cache, tokens first", attend{layouts: "tttt", causal: 1, keys: 5},
			"Reshape Reshape Reshape Attention Reshape"},
		{"capped", attend{layouts: "hhhh", causal: 1, softcap: 1.5}, "Attention"},
		{"padded", attend{layouts: "hhhh", causal: 1, keys: 5, valid: true},
			"Shape Shape Add Concat Reshape Cast Unsqueeze Shape Concat Expand Attention"},
		{"padded, tokens first", attend{layouts: "tttt", valid: true},
			"Reshape Reshape Reshape Cast Unsqueeze Shape Concat Expand Attention Reshape"},
		{"with a bias", attend{layouts: "hhhh", keys: 5, bias: true}, "Equal Where Attention"},
		{"with a bias, float16", attend{layouts: "hhhh", typ: f16, keys: 5, bias: true}, "Equal Where Cast Attention"},
		{"with a bias of keys alone", attend{layouts: "hhhh", bias: true, mask: []int{3}},
			"Equal Where Shape Concat Expand Attention"},
		{"with a bias of each sequence's keys", attend{layouts: "tthh", bias: true, mask: []int{2, 1, 1, 3}},
			"Transpose Transpose Equal Where Shape Concat Expand Attention"},
		{"with a bias of each head", attend{layouts: "hhhh", keys: 5, bias: true, mask: []int{4, 1, 1}},
			"Equal Where Shape Shape Shape Add Concat Expand Attention"},
		{"with a bias of queries alone", attend{layouts: "hhhh", bias: true, mask: []int{3, 1}},
			"Equal Where Shape Shape Concat Expand Attention"},
		{"a bias that is one number", attend{layouts: "hhhh", bias: true, mask: []int{}},
			"Equal Where Shape Shape Concat Expand Attention"},
		{"padded, with a bias", attend{layouts: "hhhh", valid: true, bias: true, mask: []int{4, 3, 3}},
			"Cast Unsqueeze Equal Where Where Attention"},
		{"behind a cache that is not its own", attend{layouts: "hhhh", causal: 1, before: 5},
			"Shape Shape Concat Expand Sub Squeeze Trilu Attention"},
		{"padded, behind a cache that is not its own", attend{layouts: "hhhh", causal: 1, before: 5, valid: true},
			"Shape Concat Reshape Cast Unsqueeze Shape Shape Concat Expand Sub Squeeze Trilu And Attention"},
		{"with a bias, behind a cache that is not its own",
			attend{layouts: "tthh", typ: f16, causal: 1, before: 5, bias: true, mask: []int{8}},
			"Transpose Transpose Shape Shape Concat Expand Sub Squeeze Trilu Equal Where Cast Cast Where Attention"},
	} {
		for _, to := range []*Target{standard, ort} {
			t.Run(to.Name+": "+c.name, func(t *testing.T) { taken(t, to, c.site.site(), c.ops) })
		}
	}
	for _, c := range []struct {
		reason string
		site   attend
	}{
		{"Attention has no sinks", attend{layouts: "hhhh", sink: true}},
		{"does not write into its cache", attend{layouts: "hhhh", keys: 5, set: true}},
		{"has no windows", attend{layouts: "hhhh", causal: 1, window: 3}},
		{"does not return the mean of the values", attend{layouts: "hhhh", valid: true, empty: "mean"}},
		{"needs adjacent heads", attend{layouts: "hhhh", order: "cyclic"}},
	} {
		t.Run("open: "+c.reason, func(t *testing.T) { open(t, standard, c.site.site(), c.reason) })
	}
	t.Run("open: bfloat16", func(t *testing.T) {
		open(t, ort, attend{layouts: "hhhh", typ: bf16}.site(), "takes float32 and float16 on the CPU, not bfloat16")
	})
	old := attend{layouts: "hhhh"}.site()
	_, n, _ := old.graph(t, 22)
	if _, err := old.write(standard, n, 22); err == nil {
		t.Error("Attention is written for opset 22")
	}
}
