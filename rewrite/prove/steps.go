package prove

import (
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Steps bounds the numbers that an op rounds to the 8 bits of its first output (fused.Op.Steps). Two correct
// computations may round a number to different neighbors only if the middle between them lies within its bounds.
type Steps struct {
	least, most []float64 // of the magnitude, with the sign; not finite if any result is correct
	// scales holds the ratio of the greatest to the least correct scale of each row. It is nil if scales differ only as
	// other results do, not by a rounding to a half type.
	scales []float64
}

// StepsOf evaluates the bounds on the inputs of a site; omitted inputs are nil. It returns nil for ops without such a
// rounding. It evaluates the op with the least and the greatest norm that float32 may compute. A rounding to a half
// type widens the bounds only if it takes the two to different numbers.
func StepsOf(op *fused.Op, s fused.Site, in []*reference.Tensor, o reference.Options) (*Steps, error) {
	f := op.Steps(s)
	if f == nil {
		return nil, nil
	}
	width := in[0].Shape[in[0].Rank()-1]
	off := StructuralTolerance
	if !o.Exact {
		off = AllowedULPs(onnx.Float, int64(width)) * Spacing(onnx.Float, 1)
	}
	run := Op(s.Opset, &onnx.Node{Domain: fused.Domain, OpType: op.Name, Overload: f.Overload, Attributes: s.Attributes,
		Outputs: make([]*onnx.Value, len(f.Body.Outputs))}, f)
	nudged := make([]*reference.Tensor, len(f.Body.Inputs))
	copy(nudged, in)
	var v, scales [2][]float64
	for i, nudge := range []float64{1 - off, 1 + off} {
		nudged[len(nudged)-1] = reference.NewFloats(onnx.Float, []int{}, []float64{nudge})
		out, err := run(o, nudged)
		if err != nil {
			return nil, err
		}
		v[i], scales[i] = out[0].F, out[1].F
	}
	steps := &Steps{least: v[0], most: v[1]}
	for i := range v[0] {
		steps.least[i] *= (1 - off) / scales[1][i/width]
		steps.most[i] *= (1 + off) / scales[0][i/width]
	}
	if !o.Exact && fused.Read[fused.NormQuantize](s.Attributes).ScaleAfterCast {
		for i, least := range scales[0] {
			steps.scales = append(steps.scales, scales[1][i]/least)
		}
	}
	return steps, nil
}

// Settle copies numbers of want to got if both are correct: numbers of 8 bits in the output at an index, and scales of
// rows, their multiples and inverses in other outputs.
func (s *Steps) Settle(at int, want, got []*reference.Tensor) {
	for i, w := range want {
		g := got[i]
		switch {
		case w == nil || g == nil || w.DataType != g.DataType || w.Len() != g.Len():
		case i == at && w.Len() == len(s.least):
			got[i] = s.settle(w, g)
		case i != at && w.DataType == onnx.Float && w.Len() == len(s.scales):
			got[i] = Clone(g)
			for k, x := range w.F {
				if math.Abs(g.F[k]-x) <= (s.scales[k]-1)*math.Abs(x) {
					got[i].F[k] = x
				}
			}
		}
	}
}

func (s *Steps) settle(want, got *reference.Tensor) *reference.Tensor {
	got = Clone(got)
	for i := range s.least {
		switch {
		case !got.IsFloat() && s.allows(i, float64(want.I[i]), toInt8) && s.allows(i, float64(got.I[i]), toInt8):
			got.I[i] = want.I[i]
		case got.IsFloat() && s.allows(i, want.F[i], toFloat8) && s.allows(i, got.F[i], toFloat8):
			got.F[i] = want.F[i]
		}
	}
	return got
}

// allows reports whether number i may be rounded to y. Exact evaluations do not round y to float8.
func (s *Steps) allows(i int, y float64, round func(float64) float64) bool {
	if !IsFinite(s.least[i]) || !IsFinite(s.most[i]) {
		return true
	}
	a, b := round(s.least[i]), round(s.most[i])
	y = round(y)
	return y >= min(a, b) && y <= max(a, b)
}

func toInt8(x float64) float64 { return min(max(math.RoundToEven(x), -128), 127) }

func toFloat8(x float64) float64 {
	f := FloatType{greatest: 448, leastNormal: 0x1p-6, Bits: 4}
	return f.round(x)
}
