package attention

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
)

// confirm compares the whole block with the op, on random queries, keys and values at lengths that no other step tried.
// If the nodes cannot be run, it returns true.
func (b *block) confirm() bool {
	n := b.world.at(lengths{1, 13, 5})
	return b.costly(n) || b.agrees(n)
}

// maxWhole bounds the products of one run of a whole block.
const maxWhole = 1 << 24

func (b *block) costly(n lengths) bool {
	return int64(b.rowsOf(n))*n.keys() > maxWhole/max(b.site.Width, b.site.ValueWidth, 1)
}

// agrees reports whether the block computes the same as the op at these lengths.
func (b *block) agrees(n lengths) bool {
	s := b.site
	env := b.withoutMask(n, nil)
	if b.straighten(n, env) != nil {
		return true
	}
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
	made := values{} // tensors given to the op
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
	y, ok := b.evaluate(n, q, k, v, made)
	if !ok || len(out[0].F) != len(y) {
		return true
	}
	of := sizes{'b': q.batch, 'n': b.heads, 's': q.rows, 'h': v.width}
	f, ok := factorOf(arranged(y, byHeads, s.YAxes, of), out[0].F)
	return ok && math.Abs(f-1) < 1e-6
}

// sampled replaces the queries, keys and values of the site by random ones; it returns nil if two of them are one
// value.
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

// evaluate returns the result of the op, by heads. made has the tensors of its biases. ok is false if the op rejects
// its inputs.
func (b *block) evaluate(n lengths, q, k, v *tensor, made values) (y []float64, ok bool) {
	s := b.site
	inputs := make([]*reference.Tensor, fused.AttentionSink+1)
	for i, t := range []*tensor{q, k, v} {
		inputs[i] = t.as(byHeads, onnx.Float)
	}
	if b.headScale != nil {
		heads := int(n.queries) * q.width
		for i := range inputs[fused.AttentionQ].F {
			inputs[fused.AttentionQ].F[i] *= b.headScale[i/heads%b.heads]
		}
	}
	if b.sinks != nil {
		inputs[fused.AttentionSink] = reference.NewFloats(onnx.Float, []int{b.heads}, b.sinks)
	}
	if len(made) > 0 {
		bias := make([]float64, b.rowsOf(n)*int(n.keys()))
		for v, t := range made {
			for i, at := range b.indices(t.Shape, n) {
				switch {
				case v != s.Choice:
					bias[i] += t.F[at] * cmp.Or(s.BiasScale, 1)
				case (t.I[at] != 0) == s.Hides:
					bias[i] = math.Inf(-1)
				}
			}
		}
		inputs[fused.AttentionBias] = reference.NewFloats(onnx.Float,
			[]int{int(n.batch), b.heads, int(n.queries), int(n.keys())}, bias)
	}
	out, err := probe.Fused(s.op(byHeads, byHeads, byHeads, byHeads), nil, inputs...)
	if err != nil {
		return nil, false
	}
	return out[0].F, true
}
