package rewrite

import (
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// throughAll is a model that sends tokens through every expert, with gates that are zero for experts that were not
// chosen: the sigmoids of the chosen logits scattered over fill. The gates multiply the tokens before the experts, or,
// times 1 + spoil, their results.
func throughAll(t *testing.T, fill, spoil float64, before bool) *onnx.Model {
	const experts, hidden, inner = 5, 8, 6
	b := rewritetest.New(t, 18, onnx.Float)
	x := b.In("x", "tokens", hidden)
	logits := b.Op("MatMul", x, b.Weight("router", hidden, experts))
	values, ids := b.Graph.NewValue("values"), b.Graph.NewValue("ids")
	b.Graph.AddNode("TopK", []value{logits, b.Ints(2)}, []value{values, ids})
	others := b.Op("Expand", b.Tensor(reference.NewFloats(onnx.Float, []int{}, []float64{fill}), "fill"),
		b.Op("Shape", logits))
	gates := b.Op("Sigmoid", b.Op("ScatterElements", others, ids, values, onnx.IntAttr("axis", 1)))
	gates = b.Op("Unsqueeze", b.Op("Transpose", gates), b.Ints(-1))
	in := b.Op("Unsqueeze", x, b.Ints(0))
	if before {
		in = b.Op("Mul", in, gates)
	}
	gate := b.Op("MatMul", in, b.Weight("gate", experts, hidden, inner))
	act := b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", gate)),
		b.Op("MatMul", in, b.Weight("up", experts, hidden, inner)))
	y := b.Op("MatMul", act, b.Weight("down", experts, inner, hidden))
	if !before {
		y = b.Op("Mul", y, b.Op("Add", gates, b.Op("Mul", gates, b.Scalar(onnx.Float, spoil))))
	}
	b.Out(b.Op("ReduceSum", y, b.Ints(0), onnx.IntAttr("keepdims", 0)), "tokens", hidden)
	return b.Model
}

func TestGates(t *testing.T) {
	none := math.Inf(-1)
	for _, test := range []struct {
		name        string
		fill, spoil float64
		before      bool
		want        string // why the experts are not fused, or ""
	}{
		{"after the experts", none, 0, false, ""},
		{"before the experts", none, 0, true, ""},
		{"a hundredth too great", none, 0.01, false, "not the weighted sum of its experts' results"},
		{"not zero for the others", 0, 0, false, "not known to be zero"},
		{"not zero for the others, before", 0, 0, true, "not known to be zero"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := throughAll(t, test.fill, test.spoil, test.before)
			want := rewritetest.Evaluate(t, m)
			r, err := Apply(m, Request{AssumeAvailable: true})
			if err != nil {
				t.Fatal(err)
			}
			var why string
			for _, s := range r.Sites {
				if s.Pattern == "MoE" && s.Status != Fused {
					why = s.Reason
				}
			}
			if fused := rewritetest.CountOps(m)["MoE"] == 1; fused != (test.want == "") || !strings.Contains(why,
				test.want) {
				t.Fatalf("fused: %v, %q, expected %q", fused, why, test.want)
			}
			for name, got := range rewritetest.Evaluate(t, m) {
				for i, x := range got.F {
					if w := want[name].F[i]; math.Abs(x-w) > 1e-5*(1+math.Abs(w)) {
						t.Fatalf("element %d is %v, was %v", i, x, w)
					}
				}
			}
		})
	}
}
