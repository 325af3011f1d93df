package prove

import (
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// sigmoidError bounds the difference between the exact sigmoid and onnxruntime's Sigmoid, which the CPU kernel of the
// router equals bit for bit. The definition calls Sigmoid, so both are correct. If scores are closer to each other, as
// for large logits, experts and weights are open.
const sigmoidError = 0x1.8p-23

// settleScores finds the tokens whose experts change, or whose weights change by more than a few units, if the scores
// change by sigmoidError. It accepts the kernel's results for these. It reports whether any token is left to compare.
func (r *KernelRun) settleScores(want, got []*reference.Tensor) (told bool, err error) {
	a := fused.Read[fused.TopKRouter](r.Site.Attributes)
	if r.Op.Name != fused.TopKRouterName || a.Score != "sigmoid" || len(want) != 2 || len(r.Want) != 2 {
		return true, nil
	}
	weights, ids := r.Want[0], r.Want[1]
	k := int(a.TopK)
	if weights == nil || ids == nil || len(ids.I) == 0 {
		return true, nil
	}
	run, err := r.definition()
	if err != nil {
		return false, err
	}
	_, scale := Distance(weights.F, weights.F)
	most := ULPs[weights.DataType] * Spacing(weights.DataType, scale)
	open := make([]bool, len(ids.I)/k)
	all := a.Order == "score_first"
	for _, sign := range scoreErrors {
		out, err := run(reference.Options{
			Override: func(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
				if !n.Is("Sigmoid") {
					return nil, nil
				}
				out, err := s.Op(n)
				if err != nil {
					return nil, err
				}
				return []*reference.Tensor{moveScores(out[0], ids.I, k, all, sign)}, nil
			}}, r.In)
		if err != nil {
			return false, err
		}
		for i, id := range out[1].I {
			if id != ids.I[i] || !(math.Abs(out[0].F[i]-weights.F[i]) <= most) {
				open[i/k] = true
			}
		}
	}
	for i, w := range want {
		if w == nil || got[i] == nil || w.Len() != got[i].Len() || w.IsFloat() != got[i].IsFloat() {
			continue // Compare reports it
		}
		want[i] = Clone(w)
		for t, o := range open {
			switch from, to := t*k, (t+1)*k; {
			case o && w.IsFloat():
				copy(want[i].F[from:to], got[i].F[from:to])
			case o:
				copy(want[i].I[from:to], got[i].I[from:to])
			}
		}
	}
	return slices.Contains(open, false), nil
}

// scoreErrors are the signs of score errors, by the place of the expert in the token's choice, or -1. One of them
// changes the choice if two neighbors in it, or the last one and another expert, are close to each other.
var scoreErrors = []func(place int) float64{
	func(place int) float64 { return pick(place < 0, 1, -1) },
	func(place int) float64 { return pick(place%2 == 1, 1, -1) },
	func(place int) float64 { return pick(place%2 == 0, 1, -1) },
}

// pick returns a if yes is true, and b otherwise.
func pick(yes bool, a, b float64) float64 {
	if yes {
		return a
	}
	return b
}

// moveScores returns the scores of all experts, or of the k that each token chose, with these errors.
func moveScores(scores *reference.Tensor, ids []int64, k int, all bool,
	sign func(place int) float64) *reference.Tensor {
	tokens := len(ids) / k
	width := scores.Len() / tokens
	v := slices.Clone(scores.F)
	for i := range v {
		token, place := i/width, i%width
		if all {
			place = slices.Index(ids[token*k:(token+1)*k], int64(place))
		}
		v[i] = RoundTo(scores.DataType, max(v[i]+sign(place)*sigmoidError, 0))
	}
	return reference.NewFloats(scores.DataType, scores.Shape, v)
}
