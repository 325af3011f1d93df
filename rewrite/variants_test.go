package rewrite

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// applyNorm patches a norm with x and scale computed differently, and compares the results.
func applyNorm(t *testing.T, x func(b *rewritetest.Builder, x value) value,
	scale func(b *rewritetest.Builder, w value) value) *Report {
	t.Helper()
	b := rewritetest.New(t, 18, onnx.Float)
	v := x(b, b.In("x", "batch", "seq", 16))
	b.Out(b.Norm(v, scale(b, b.Weight("norm_weight", 16)), 1e-6), "batch", "seq", 16)
	want := rewritetest.Evaluate(t, b.Model)
	r := apply(t, b.Model)
	got := rewritetest.Evaluate(t, b.Model)
	for name, w := range want {
		if d, s := prove.Distance(w.F, got[name].F); d > 16*prove.Spacing(onnx.Float, s) {
			t.Errorf("%s differs by %g", name, d)
		}
	}
	rewritetest.CheckOrder(t, b.Model)
	return r
}

func plain(_ *rewritetest.Builder, v value) value { return v }

// A weight so small that its elements are known is still an input of the op, even after nodes that pass it on.
func TestKnownWeightBehindNodes(t *testing.T) {
	for name, scale := range map[string]func(b *rewritetest.Builder, w value) value{
		"identity": func(b *rewritetest.Builder, w value) value { return b.Op("Identity", w) },
		"cast": func(b *rewritetest.Builder, w value) value {
			return b.Op("Cast", w, onnx.IntAttr("to", int64(onnx.Float)))
		},
		"casts": func(b *rewritetest.Builder, w value) value {
			wide := b.Op("Cast", w, onnx.IntAttr("to", int64(onnx.Double)))
			return b.Op("Cast", wide, onnx.IntAttr("to", int64(onnx.Float)))
		},
		"computed": func(b *rewritetest.Builder, w value) value {
			return b.Op("Add", w, b.Scalar(onnx.Float, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if r := applyNorm(t, plain, scale); r.Fused() != 1 || r.Refused() != 0 {
				t.Errorf("%+v", r.Sites)
			}
		})
	}
}

// The exporter repeats the computation of x, with nodes that change nothing: the check ignores them as the matcher
// does.
func TestRepeatedWithDetours(t *testing.T) {
	b := rewritetest.New(t, 18, onnx.Float)
	x := b.In("x", "batch", 8)
	chain := func(detour bool) value {
		v := x
		for range 8 {
			if v = b.Op("Sin", v); detour {
				v = b.Op("Identity", v)
			}
		}
		return v
	}
	gate := chain(false)
	b.Out(b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", chain(true))), b.Op("Cos", x)), "batch", 8)
	want := rewritetest.Evaluate(t, b.Model)
	if r := apply(t, b.Model); r.Fused() != 1 {
		t.Fatalf("%+v", r.Sites)
	}
	got := rewritetest.Evaluate(t, b.Model)
	for name, w := range want {
		if d, _ := prove.Distance(w.F, got[name].F); d > 1e-6 {
			t.Errorf("%s differs by %g", name, d)
		}
	}
}

// Before IR version 4 every initializer is listed as an input, but is still a constant.
func TestInitializersListedAsInputs(t *testing.T) {
	listed := func(ir int64) *onnx.Model {
		m := rewritetest.Block(t, 18, onnx.Float)
		m.IRVersion = ir
		for _, v := range m.Graph.Initializers() {
			v.IsInput = true
			v.SetType(onnx.Type{DataType: v.Const.DataType, HasShape: true, Dims: []onnx.Dim{{Value: -1}}})
			m.Graph.Inputs = append(m.Graph.Inputs, v)
		}
		return m
	}
	m := listed(3)
	before := modelBytes(t, m)
	if r := planned(t, m).Report; r.Fused() != 6 || !bytes.Equal(before, modelBytes(t, m)) {
		t.Errorf("a dry run fuses %d and must change nothing", r.Fused())
	}
	if r := apply(t, m); r.Fused() != 6 {
		t.Errorf("%d fused", r.Fused())
	}
	if slices.ContainsFunc(m.Graph.Inputs, func(v value) bool { return v.Const != nil }) {
		t.Error("constants are inputs of the patched model, where callers may override them")
	}
	if r := apply(t, listed(8)); r.pattern("RMSNorm").Fused != 0 { // epsilon is not constant if callers may override it
		t.Errorf("%+v", r.Sites)
	}
}

// Tensors without elements allow no comparison.
func TestNoElements(t *testing.T) {
	b := rewritetest.New(t, 18, onnx.Float)
	b.Out(b.Norm(b.In("x", 0, "seq", 16), b.Weight("w", 16), 1e-6), 0, "seq", 16)
	r := apply(t, b.Model)
	if r.Fused() != 0 || len(r.Sites) != 1 || !strings.Contains(r.Sites[0].Reason, "no elements") {
		t.Errorf("%+v", r.Sites)
	}
}
