package moe_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/moe"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestMixtureBodiesInTheEvaluator evaluates the definitions of TopKRouter and MoE with the built-in evaluator, without
// roundings, and compares them with the formulas written out.
func TestMixtureBodiesInTheEvaluator(t *testing.T) {
	for _, opset := range []int64{13, 15, 18, 24} {
		for _, bodies := range []func(optest.AddCase, int64){optest.AddRouterBodies, optest.AddMoEBodies} {
			r := rand.New(rand.NewPCG(3, 5))
			bodies(func(o *op.Op, attrs []*onnx.Attribute, types []onnx.DataType, dims ...[]int64) {
				s := op.Site{Attributes: attrs, Types: types, Dims: dims, Opset: opset}
				name := fmt.Sprintf("%s.%s at opset %d on %v", o.Name, o.Overload(s), opset, dims)
				in := optest.RandomInputs(r, s)
				got, err := optest.Evaluate(o, s, in)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				want := optest.NaiveRouter
				if o == moe.Op {
					want = optest.NaiveMoE
				}
				for i, w := range want(s, in) {
					if len(got[i].F)+len(got[i].I) != len(w) {
						t.Fatalf("%s: output %s has %v, want %d elements", name, o.Outputs[i].Name, got[i], len(w))
					}
					for j, x := range w {
						y := math.NaN()
						if got[i].F != nil {
							y = got[i].F[j]
						} else if got[i].I != nil {
							y = float64(got[i].I[j])
						}
						if !(math.Abs(x-y) <= 1e-6*(1+math.Abs(x))) { // attributes are float32
							t.Fatalf("%s: output %s, element %d is %v, want %v", name, o.Outputs[i].Name, j, y, x)
						}
					}
				}
			}, opset)
		}
	}
}

// TestMoEBodyReadsChosenExpertsAlone has experts that are computed as they are read: the definition must not ask for
// one that no token chose, so that a site of many experts is checked in the memory of a few.
func TestMoEBodyReadsChosenExpertsAlone(t *testing.T) {
	const experts, hidden, inner = 64, 64, 32
	chosen := []int64{0, 63, 5, 6, 5, 40}
	for _, layout := range []string{op.LayoutOutIn, op.LayoutInOut} {
		weights := func(shape ...int) *reference.Tensor {
			size := shape[1] * shape[2]
			v, err := reference.NewLazy(onnx.Float, shape, func(dst []float64, at int) error {
				for i := range dst {
					if e := int64((at + i) / size); !slices.Contains(chosen, e) {
						return fmt.Errorf("expert %d is read, which nothing chose", e)
					}
					dst[i] = float64((at+i)%7) / 64
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		up, down := weights(experts, 2*inner, hidden), weights(experts, hidden, inner)
		if layout == op.LayoutInOut {
			up, down = weights(experts, hidden, 2*inner), weights(experts, inner, hidden)
		}
		x := reference.NewFloats(onnx.Float, []int{3, hidden}, slices.Repeat([]float64{0.5}, 3*hidden))
		w := reference.NewFloats(onnx.Float, []int{3, 2}, []float64{1, 2, 3, 4, 5, 6})
		ids := reference.NewInts(onnx.Int64, []int{3, 2}, chosen)
		s := op.Site{Attributes: optest.MoeForm{Up: layout, Down: layout}.Attrs(),
			Types: []onnx.DataType{onnx.Float, onnx.Float, onnx.Int64, onnx.Float, onnx.Float}, Opset: 18}
		if _, err := optest.Evaluate(moe.Op, s, []*reference.Tensor{x, w, ids, up, down}); err != nil {
			t.Errorf("%s: %v", layout, err)
		}
	}
}
