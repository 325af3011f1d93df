package staticcache_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// sharedModel returns a decoder whose layers all attend to the keys and values of the first one, as in Gemma 3n. With
// each, every layer repeats the heads of the keys itself; otherwise all read the copies of the first layer. change may
// change a layer's queries, given the keys including the cached ones.
func sharedModel(t *testing.T, layers int, each bool,
	change func(b *rewritetest.Builder, layer int, q, keys *onnx.Value,
	) *onnx.Value) *onnx.Model {
	b := rewritetest.New(t, 18, onnx.Float)
	x := b.In("x", "batch", "queries", 16)
	mask := b.Input("attention_mask", onnx.Int64, "batch", "total")
	pasts := []*onnx.Value{b.In("past_key", "batch", 2, "past", 8), b.In("past_value", "batch", 2, "past", 8)}
	heads := func(v *onnx.Value, n int64) *onnx.Value {
		return b.Op("Transpose", b.Op("Reshape", v, []int64{0, 0, n, 8}), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	}
	project := func(v *onnx.Value, name string, wide int) *onnx.Value {
		return b.Op("MatMul", v, b.Op("Sub", b.Weight(name, 16, wide), 1.0))
	}
	var present [2]*onnx.Value
	for i, past := range pasts {
		present[i] = b.Op("Concat", past, heads(project(x, "kv", 16), 2), onnx.IntAttr("axis", 2))
		b.Out(present[i], "batch", 2, "total", 8)
	}
	repeat := func(v *onnx.Value) *onnx.Value {
		wide := b.Op("Expand", b.Op("Unsqueeze", v, []int64{2}), []int64{1, 1, 2, 1, 1})
		return b.Op("Reshape", wide, []int64{0, 4, -1, 8})
	}
	all := b.Op("Gather", b.Op("Shape", present[0]), 2)
	length := b.Op("Gather", b.Op("Shape", x), 1)
	j := b.Op("Range", 0, all, 1)
	i := b.Op("Range", b.Op("Sub", all, length), all, 1)
	padded := b.Op("Cast", b.Op("Unsqueeze", mask, []int64{1, 2}), onnx.IntAttr("to", int64(onnx.Bool)))
	seen := b.Op("And", b.Op("LessOrEqual", b.Op("Unsqueeze", j, []int64{0}), b.Op("Unsqueeze", i, []int64{1})), padded)
	added := b.Op("Where", seen, 0.0, -math.MaxFloat32)
	keys, values := repeat(present[0]), repeat(present[1])
	for layer := range layers {
		if each && layer > 0 {
			keys, values = repeat(present[0]), repeat(present[1])
		}
		q := heads(project(x, "q", 32), 4)
		if change != nil {
			q = change(b, layer, q, keys)
		}
		scores := b.Op("MatMul", q, b.Op("Transpose", keys, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
		scores = b.Op("Add", b.Op("Mul", scores, 0.25+0.125*float64(layer)), added)
		p := b.Op("Softmax", scores, onnx.IntAttr("axis", -1))
		y := b.Op("Transpose", b.Op("MatMul", p, values), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		y = b.Op("Reshape", y, []int64{0, 0, 32})
		x = b.Op("Add", x, b.Op("MatMul", y, b.Op("Sub", b.Weight("o", 32, 16), 1.0)))
	}
	b.Out(x, "batch", "queries", 16)
	return b.Model
}

// sharedInputs returns its inputs, with left padding and the cache in a buffer with room rows.
func sharedInputs(t *testing.T, batch, queries, past, room int) map[string]*reference.Tensor {
	left := prove.Padding{Exists: func(b, j, _ int) bool { return b == 0 || j >= 2 }}
	in := map[string]*reference.Tensor{"attention_mask": left.Tensor(onnx.Int64,
		[]int64{int64(batch), int64(past + queries)})}
	for i, name := range []string{"x", "past_key", "past_value"} {
		dims := []int64{int64(batch), int64(queries), 16}
		if i > 0 {
			dims = []int64{int64(batch), 2, int64(past), 8}
		}
		x, err := prove.MakeInput(prove.Normal, i, onnx.Float, dims)
		if err != nil {
			t.Fatal(err)
		}
		if in[name] = x; i > 0 && room > past {
			junk := make([]float64, batch*2*room*8)
			for i := range junk {
				junk[i] = math.NaN()
			}
			in[name] = reference.NewFloats(onnx.Float, []int{batch, 2, room, 8}, junk)
			prove.CopyRows(in[name], x)
		}
	}
	return in
}

// TestSharedKeys fuses layers that attend to the keys and values of the first one, with growing caches and with one
// buffer for all of them.
func TestSharedKeys(t *testing.T) {
	for _, each := range []bool{false, true} {
		original := sharedModel(t, 3, each, nil)
		for _, cache := range []*staticcache.Options{nil, {}} {
			m := sharedModel(t, 3, each, nil)
			r := applytest.Apply(t, m, rewrite.Request{StaticCache: cache})
			if p := patternOf(r, fused.AttentionName); p.Found != 3 || p.Fused != 3 {
				t.Errorf("%d found, %d fused: %+v", p.Found, p.Fused, r.Sites)
			}
			room := 0
			if cache != nil {
				if room = 12; len(r.Cache.Inputs) != 2 || r.Cache.BytesPerToken != 2*2*8*4 {
					t.Errorf("reported %+v", r.Cache)
				}
				for _, n := range m.Graph.Nodes {
					if n.OpType == fused.AttentionName && n.Input(4) != m.Graph.Value("past_key") {
						t.Errorf("%s reads no buffer", n.Text())
					}
				}
			}
			for _, at := range []struct{ batch, queries, past int }{{2, 3, 0}, {2, 1, 5}, {1, 4, 6}} {
				want := rewritetest.Run(t, original, sharedInputs(t, at.batch, at.queries, at.past, 0))
				in := sharedInputs(t, at.batch, at.queries, at.past, room)
				got := rewritetest.Run(t, m, in)
				for i, v := range original.Graph.Outputs {
					w, g := want[v.Name], got[m.Graph.Outputs[i].Name]
					if i < 2 && room > 0 {
						checkBuffer(t, in[[]string{"past_key", "past_value"}[i]], w, g)
						continue
					}
					d, scale := prove.Distance(w.F, g.F)
					if d > 16*prove.Spacing(onnx.Float, scale) {
						t.Errorf("%v, %v: %q differs by %g", at, cache != nil, v.Name, d)
					}
				}
			}
		}
	}
}

// TestSharedKeysOfOthers: a later layer reads the keys of the first one in a way that a buffer does not allow.
func TestSharedKeysOfOthers(t *testing.T) {
	m := sharedModel(t, 2, false, func(b *rewritetest.Builder, layer int, q, keys *onnx.Value) *onnx.Value {
		if layer == 0 {
			return q
		}
		return b.Op("Add", q, b.Op("ReduceMean", keys, []int64{2}, onnx.IntAttr("keepdims", 1)))
	})
	_, err := rewrite.Apply(m, rewrite.Request{StaticCache: &staticcache.Options{}})
	if err == nil || !strings.Contains(err.Error(), "and would read unused rows of the buffer") {
		t.Errorf("error is %v", err)
	}
}

// TestSmallerReading has queries that depend on the keys including the cached ones. A block that concatenates both
// would depend on itself; the same block after the Concat is fused.
func TestSmallerReading(t *testing.T) {
	change := func(b *rewritetest.Builder, _ int, q, keys *onnx.Value) *onnx.Value {
		return b.Op("Add", q, b.Op("ReduceMean", keys, []int64{2}, onnx.IntAttr("keepdims", 1)))
	}
	m, original := sharedModel(t, 1, false, change), sharedModel(t, 1, false, change)
	r := applytest.Apply(t, m)
	if p := patternOf(r, fused.AttentionName); p.Found != 1 || p.Fused != 1 || p.Refused != 0 || len(r.Sites) != 1 {
		t.Errorf("%d found, %d fused, %d refused: %+v", p.Found, p.Fused, p.Refused, r.Sites)
	}
	for _, n := range m.Graph.Nodes {
		if n.OpType == fused.AttentionName && n.Input(4) != nil {
			t.Error("the block joins the cache: the test shows nothing")
		}
	}
	rewritetest.CheckOrder(t, m)
	want, got := rewritetest.Run(t, original, sharedInputs(t, 2, 3, 4, 0)),
		rewritetest.Run(t, m, sharedInputs(t, 2, 3, 4, 0))
	for i, v := range original.Graph.Outputs {
		d, scale := prove.Distance(want[v.Name].F, got[m.Graph.Outputs[i].Name].F)
		if d > 16*prove.Spacing(onnx.Float, scale) {
			t.Errorf("%q differs by %g", v.Name, d)
		}
	}
}

// TestWhyNoBuffer has caches that no attention can write.
func TestWhyNoBuffer(t *testing.T) {
	build := func(axis int64, bias, product bool) *onnx.Model {
		b := rewritetest.New(t, 18, onnx.Float)
		dims, perm := []any{"batch", 2, "past", 8}, []int64{0, 1, 3, 2}
		if axis == 3 {
			dims, perm = []any{"batch", 2, 8, "past"}, []int64{0, 1, 2, 3}
		}
		q, k := b.In("q", "batch", 2, "queries", 8), b.In("k", "batch", 2, "queries", 8)
		pastKey, pastValue := b.In("past_key", dims...), b.In("past_value", "batch", 2, "past", 8)
		if axis == 3 {
			k = b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))
		}
		keys := b.Op("Concat", pastKey, k, onnx.IntAttr("axis", axis))
		values := b.Op("Concat", pastValue, b.In("v", "batch", 2, "queries", 8), onnx.IntAttr("axis", 2))
		scores := b.Op("MatMul", q, b.Op("Transpose", keys, onnx.IntsAttr("perm", perm)))
		if bias {
			n := b.Op("Range", 0, b.Op("Gather", b.Op("Shape", keys), 2), 1)
			n = b.Op("Cast", b.Op("Unsqueeze", n, []int64{0}), onnx.IntAttr("to", int64(onnx.Float)))
			distances := b.Op("Sin", n)
			scores = b.Op("Add", scores, distances)
		}
		p := b.Op("Softmax", scores, onnx.IntAttr("axis", -1))
		if !product {
			p = b.Op("Relu", scores)
		}
		b.Output(keys)
		b.Output(values)
		b.Output(b.Op("MatMul", p, values))
		return b.Model
	}
	for _, c := range []struct {
		m    *onnx.Model
		want string
	}{
		{build(2, true, true), "cannot write the cache \"past_key\": its bias"},
		{build(3, false, true), "new rows along axis 3 of 4"},
		{build(2, false, false), "no fused attention reads the cache \"past_key\""},
	} {
		_, err := rewrite.Apply(c.m, rewrite.Request{StaticCache: &staticcache.Options{}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, want %s", err, c.want)
		}
	}
}

// patternOf returns the counts of a pattern.
func patternOf(r *rewrite.Report, name string) rewrite.PatternReport {
	i := slices.IndexFunc(r.Patterns, func(p rewrite.PatternReport) bool { return p.Name == name })
	return r.Patterns[i]
}
