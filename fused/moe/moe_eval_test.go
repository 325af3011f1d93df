package moe_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/moe"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

func TestBodies(t *testing.T) { optest.RunBodies(t, optest.AddMoEBodies, optest.NaiveMoE) }

// TestMoEBodyReadsChosenExpertsAlone has experts that are computed as they are read: the definition must not ask for
// one that no token chose, so that a site of many experts is checked in the memory of a few.
func TestMoEBodyReadsChosenExpertsAlone(t *testing.T) {
	const experts, hidden, inner = 64, 64, 32
	chosen := []int64{0, 62, 5, 6, 5, -1} // the last expert is not no expert
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
