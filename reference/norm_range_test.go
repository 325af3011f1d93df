package reference

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// RMSNormalization computes in float32 (stash_type 1): squares beyond its range result in 0, as in the standard's
// function body.
func TestRMSNormalizationRange(t *testing.T) {
	g := onnx.NewFunction("", "", "", 23).Body
	n := g.AddNode("RMSNormalization", []*onnx.Value{g.AddInput("x", onnx.Type{}), g.AddInput("w", onnx.Type{})},
		[]*onnx.Value{g.NewValue("y")})
	in := []*Tensor{NewFloats(onnx.Float, []int{1, 2}, []float64{1e30, -1e30}),
		NewFloats(onnx.Float, []int{2}, []float64{1, 1})}
	for exact, want := range map[bool]float64{false: 0, true: 1} {
		out, err := NewForOpset(23, nil, Options{Exact: exact}).Op(n, in)
		if err != nil || math.Abs(out[0].F[0]-want) > 1e-12 {
			t.Errorf("exact %v: %v %v, want %v", exact, out, err, want)
		}
	}
}
