package linear

import (
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference"
)

// farEnough is the smallest factor that rates are read from. Rounded factors of tokens that are far apart show a rate
// best, until they are subnormal numbers of float32.
const farEnough = 1e-30

// typedNumbers is knownSizes with numbers of half types, which are rounded.
func typedNumbers(lab *probe.Lab) probe.Known {
	sizes, facts := knownSizes(lab), lab.View.Facts
	return func(v *onnx.Value) (*reference.Tensor, error) {
		if t, ok := facts.Known(v, lab.World); ok && v.Constant() == nil && facts.DataType(v).IsHalf() {
			return t, nil
		}
		return sizes(v)
	}
}

// rated reads the rates of a state whose decay is constant: lightning attention has a rate for each head. Only the
// first token has a key, so the rows show the factor of its update after each token.
func (s *span) rated() bool {
	for _, world := range []int{1, 0} {
		if world >= s.worlds {
			continue
		}
		r := s.trialOf(17, world, false, s.factor, func(v *onnx.Value, list []float64) {
			if v != s.k.Value {
				return
			}
			places := make([]float64, len(list))
			for i := range places {
				places[i] = float64(i)
			}
			of := sizes{s.batch[world], s.tokens[world], s.k.heads, s.key}
			for i, at := range s.k.layout.rows(places, of) {
				if i/(s.k.heads*s.key)%s.tokens[world] > 0 {
					list[int(at)] = 0
				}
			}
		})
		if r == nil {
			continue
		}
		if s.rates = s.ratesIn(r); s.rates != nil {
			return true
		}
	}
	return false
}

// ratesIn reads the logarithm of the decay of each head from rows of the first sequence.
func (s *span) ratesIn(r *run) []float64 {
	out := s.out.layout.rows(r.rows, sizes{r.batch, r.tokens, s.heads, s.val})
	q, k, v := s.q.in(r), s.k.in(r), s.v.in(r)
	rates := make([]float64, s.heads)
	for h := range rates {
		found := false
		first := v[h*s.val : (h+1)*s.val]
		at := h * s.k.heads / s.heads * s.key
		key := k[at : at+s.key]
		for t := r.tokens - 1; t > 0 && !found; t-- {
			at := (t*s.q.heads + h*s.q.heads/s.heads) * s.key
			y := out[(t*s.heads+h)*s.val : (t*s.heads+h+1)*s.val]
			share := s.scale * dot(q[at:at+s.key], key)
			if s.beta != nil {
				share *= s.beta.in(r)[h]
			}
			factor := dot(y, first) / dot(first, first) / share
			if s.skip != nil {
				skip := s.skip.in(r)[(t*s.heads+h)*s.val : (t*s.heads+h+1)*s.val]
				factor -= s.skips[h] * dot(skip, first) / dot(first, first) / share
			}
			if found = factor > farEnough; found && math.Abs(factor-1) > agree/1e3 { // else a state without a decay
				rates[h] = math.Log(factor) / float64(t)
			}
		}
		if !found {
			return nil
		}
	}
	return rates
}

// constantDecay returns the op's decay for rates that all tokens share: the rates of each row of q.
func constantDecay(made *site.Site, rates []float64, q *site.Operand) *site.Operand {
	list := make([]float32, len(rates))
	for i, x := range rates {
		list[i] = float32(x)
	}
	sizes := q.Then("Shape", "rates_of", nil)
	sizes = sizes.Then("Slice", "rates_rows", []*site.Operand{made.Integers("from", 0), made.Integers("to", 2),
		made.Integers("axis", 0)})
	sizes = sizes.Then("Concat", "rates_shape", []*site.Operand{made.Integers("one", 1)}, onnx.IntAttr("axis", 0))
	all := made.Constant("rates", onnx.NewFloat32s("", []int64{1, 1, int64(len(list))}, list))
	return all.Then("Expand", fused.Lookup(made.Op).Inputs[fused.LinearAttentionDecay].Name, []*site.Operand{sizes})
}
