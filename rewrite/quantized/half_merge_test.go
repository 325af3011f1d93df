package quantized_test

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestMergedHalves merges products of one value whose weights have the same layout, and leaves the others.
func TestMergedHalves(t *testing.T) {
	backend, err := registry.ParseBackend("+CPU")
	if err != nil {
		t.Fatal(err)
	}
	for _, turned := range []bool{false, true} {
		b := rewritetest.New(t, 21, onnx.Float16)
		x := b.In("x", 3, 48)
		for _, n := range []int{40, 24, 8} {
			dims := []int{48, n}
			if turned {
				dims = []int{n, 48}
			}
			w := b.Weight("w", dims...)
			if turned {
				w = b.Op("Transpose", w, onnx.IntsAttr("perm", []int64{1, 0}))
			}
			b.Out(b.Op("Add", b.Op("MatMul", x, w), b.Weight("bias", n)))
		}
		b.Out(b.Op("MatMul", x, b.Weight("alone", 48, 16)))
		want := rewritetest.Evaluate(t, applied(t, b.Model, rewrite.Request{Backend: backend}))
		r := applytest.Apply(t, b.Model, rewrite.Request{Backend: backend, Merge: rewrite.MergeAll})
		if n := rewritetest.CountOps(b.Model); r.Merged == nil || r.Merged.Products != 3 || r.Merged.Merged != 1 ||
			n["HalfLinear"] != 2 || n["Split"] != 1 {
			t.Errorf("turned %t: %+v, %v", turned, r.Merged, n)
		}
		for name, x := range rewritetest.Evaluate(t, b.Model) {
			if !slices.Equal(want[name].F, x.F) {
				t.Errorf("turned %t: %s is something else", turned, name)
			}
		}
	}
}

// applied returns a patched copy of a model.
func applied(t *testing.T, m *onnx.Model, request rewrite.Request) *onnx.Model {
	t.Helper()
	copied, err := m.Clone()
	if err != nil {
		t.Fatal(err)
	}
	applytest.Apply(t, copied, request)
	return copied
}
