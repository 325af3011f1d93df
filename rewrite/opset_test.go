package rewrite

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// olderBlock is a SwiGLU between ops that opset 13 changed.
func olderBlock(t *testing.T, opset int64) *rewritetest.Builder {
	b := rewritetest.New(t, opset, onnx.Float)
	x := b.In("x", "n", 3, 8)
	p := b.Op("Softmax", x, onnx.IntAttr("axis", 1)) // over 3 x 8 elements
	y := b.Op("Unsqueeze", p, onnx.IntsAttr("axes", []int64{0}))
	y = b.Op("Squeeze", b.Op("ReduceSum", y, onnx.IntsAttr("axes", []int64{0})), onnx.IntsAttr("axes", []int64{0}))
	parts := b.Ops(2, "Split", y, onnx.IntAttr("axis", 2), onnx.IntsAttr("split", []int64{4, 4}))
	b.Out(b.Op("Mul", b.Op("Mul", parts[0], b.Op("Sigmoid", parts[0])), parts[1]), "n", 3, 4)
	return b
}

func TestRaiseOpset(t *testing.T) {
	for _, opset := range []int64{11, 12} {
		before := rewritetest.Evaluate(t, olderBlock(t, opset).Model)
		m := olderBlock(t, opset).Model
		r := apply(t, m)
		if r.Fused() != 1 || r.Opset == nil || *r.Opset != (OpsetReport{Before: opset, After: 13}) ||
			m.Opset("") != 13 || r.Input.Opset != opset {
			t.Errorf("opset %d: %+v, %+v, now of opset %d", opset, r.Opset, r.Sites, m.Opset(""))
		}
		for name, got := range rewritetest.Evaluate(t, m) {
			for i, v := range got.F {
				if math.Abs(v-before[name].F[i]) > 1e-6 {
					t.Errorf("opset %d: %s[%d] is %v, was %v", opset, name, i, v, before[name].F[i])
				}
			}
		}
	}
}

// TestRaiseOpsetForNothing demands that an unpatched model keeps its opset and every byte.
func TestRaiseOpsetForNothing(t *testing.T) {
	build := func() *onnx.Model {
		b := rewritetest.New(t, 12, onnx.Float)
		b.Out(b.Op("Softmax", b.In("x", "n", 3, 8), onnx.IntAttr("axis", 1)), "n", 3, 8)
		return b.Model
	}
	m := build()
	r := apply(t, m)
	if r.Opset != nil || r.Changed || m.Opset("") != 12 || m.IRVersion != 8 || m.Graph.Text() != build().Graph.Text() {
		t.Errorf("%+v, opset %d:\n%s", r.Opset, m.Opset(""), m.Graph.Text())
	}
}

// TestRaiseOpsetErrs demands that a model that cannot be raised, or is too old, stays, and that the report says why.
func TestRaiseOpsetErrs(t *testing.T) {
	b := olderBlock(t, 12)
	x := b.In("image", 1, 1, 4, 4)
	b.Out(b.Op("Resize", x, b.Weight("roi", 0), b.Weight("scales", 4),
		onnx.StringAttr("coordinate_transformation_mode", "tf_half_pixel_for_nn")), 1, 1, 4, 4)
	old := olderBlock(t, 10)
	for _, c := range []struct {
		m    *onnx.Model
		want string
	}{{b.Model, "tf_half_pixel_for_nn"}, {old.Model, ""}} {
		opset := c.m.Opset("")
		r := apply(t, c.m)
		if r.Fused() != 0 || r.Changed || c.m.Opset("") != opset || (r.Opset == nil) != (c.want == "") ||
			r.Opset != nil && !strings.Contains(r.Opset.Text(), c.want) {
			t.Errorf("opset %d: %+v", opset, r.Opset)
		}
		if !slices.ContainsFunc(r.Sites, func(s SiteReport) bool {
			return s.Status == Refused && strings.Contains(s.Reason, "opset 13 or newer")
		}) {
			t.Errorf("opset %d: no site is refused for its opset: %+v", opset, r.Sites)
		}
	}
}
