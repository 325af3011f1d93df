package attention

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// confirm compares the whole block with the op, on random queries, keys and values at lengths that nothing else was
// tried at. What cannot be computed says nothing.
func (b *block) confirm() bool {
	n := b.world.at(lengths{1, 13, 5})
	return b.costly(n) || b.agrees(n)
}

// maxWhole bounds the products of one run of a whole block.
const maxWhole = 1 << 24

func (b *block) costly(n lengths) bool {
	return int64(b.rowsOf(n))*n.keys() > maxWhole/max(b.site.Width, b.site.ValueWidth, 1)
}

// agrees reports whether the block computes what the op does at these lengths.
func (b *block) agrees(n lengths) bool {
	s := b.site
	env := b.withoutMask(n, nil)
	if b.sink != nil {
		env[s.Sink] = b.sink
	}
	if s.QueryScale != nil {
		one, ok := b.constant(s.QueryScale, n, 1)
		if !ok {
			return true
		}
		env[s.QueryScale] = one
	}
	made := values{} // tensors that the op is given
	for i, v := range slices.Concat(s.Bias, []*onnx.Value{s.Choice}) {
		if v == nil {
			continue
		}
		out, err := b.world.run(n, env, v)
		if err != nil {
			shape, ok := b.world.shape(v, n)
			if !ok {
				return true
			}
			out = []*reference.Tensor{b.unmasked(v, shape)}
			if v != s.Choice {
				out[0].F = random(match.Elements(shape), uint64(51+i))
			} else if s.Hides {
				out[0].I = make([]int64, match.Elements(shape))
			}
		}
		made[v] = out[0]
	}
	maps.Copy(env, made)
	q, k, v := b.sampled(n, env)
	if q == nil {
		return true
	}
	out, err := b.world.run(n, env, s.Y)
	if err != nil {
		return true
	}
	p := b.formula(n, dots(q, k, s.HeadOrder), made)
	y := weighted(p, v, b.heads, int(n.queries), s.HeadOrder)
	if len(out[0].F) != len(y.data) {
		return true
	}
	f, ok := factorOf(arranged(y.data, byHeads, s.YAxes, y.sizes()), out[0].F)
	return ok && math.Abs(f-1) < 1e-6
}

// sampled puts random queries, keys and values in the place of those of the site; nil where two of them are one value.
func (b *block) sampled(n lengths, env values) (q, k, v *tensor) {
	s := b.site
	if s.Q == s.K || s.Q == s.V || s.K == s.V {
		return nil, nil, nil
	}
	of := func(value, past *onnx.Value, axes Axes, heads int, width int64, rows int64, seed uint64) *tensor {
		o := operand{value: value, axes: axes, heads: heads, width: int(width)}
		if past != nil {
			o.cache = &cache{past: past}
			rows = n.queries
		}
		return b.sample(o, n, rows, seed, env)
	}
	q = of(s.Q, nil, s.QAxes, b.heads, s.Width, n.queries, 61)
	k = of(s.K, s.PastKey, s.KAxes, b.keyHeads, s.Width, n.keys(), 63)
	v = of(s.V, s.PastValue, s.VAxes, b.keyHeads, s.ValueWidth, n.keys(), 65)
	return q, k, v
}

// formula returns the weights that the op gives keys whose rows and those of queries have these products.
func (b *block) formula(n lengths, products []float64, made values) []float64 {
	s := b.site
	keys, queries := int(n.keys()), int(n.queries)
	h, at := hypothesis{causal: s.Causal, window: s.Window}, example{lengths: n}
	places := b.places(n)
	for row := range b.rowsOf(n) {
		head := row / queries % b.heads
		greatest, sum := math.Inf(-1), 0.0
		p := products[row*keys:][:keys]
		for j := range p {
			x := p[j] * s.Scale
			if b.headScale != nil {
				x *= b.headScale[head]
			}
			if s.Softcap > 0 {
				x = s.Softcap * math.Tanh(x/s.Softcap)
			}
			for v, t := range made {
				at := broadcastIndex(t.Shape, b.onScores(len(t.Shape), n), places[row*keys+j])
				switch {
				case v != s.Choice:
					x += t.F[at] * cmp.Or(s.BiasScale, 1)
				case (t.I[at] != 0) == s.Hides:
					x = math.Inf(-1)
				}
			}
			if !h.sees(at, 0, int64(row%queries), int64(j)) {
				x = math.Inf(-1)
			}
			p[j], greatest = x, max(greatest, x)
		}
		if b.sinks != nil {
			greatest = max(greatest, b.sinks[head])
			sum = math.Exp(b.sinks[head] - greatest)
		}
		for j, x := range p {
			if p[j] = math.Exp(x - greatest); math.IsInf(greatest, -1) { // no key is seen
				p[j] = float64(boolToInt(s.Empty == mean))
			}
			sum += p[j]
		}
		sum = cmp.Or(sum, 1)
		for j := range p {
			p[j] /= sum
		}
	}
	return products
}
