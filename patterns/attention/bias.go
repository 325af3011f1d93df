package attention

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// What a query gets that sees no key.
const (
	zero = "zero"
	mean = "mean"
)

// result runs everything from the scores on, with values of ones: it returns the sum of the weights of each row, as
// far as they count in the end.
func (b *block) result(n lengths, env values) ([]float64, error) {
	given := values{}
	give := func(v *onnx.Value, x float64) error {
		t, ok := b.constant(v, n, x)
		if !ok {
			return b.unknown("the shape of the values")
		}
		given[v] = t
		return nil
	}
	err := give(b.sum.Inputs[b.operand], 1)
	if b.op != nil {
		err = cmp.Or(err, give(b.product.Inputs[0], 0), give(b.product.Inputs[1], 0))
		for i, v := range []*onnx.Value{b.product.Input(b.op.past), b.product.Input(b.op.past + 1)} {
			if v != nil {
				err = cmp.Or(err, give(v, float64(i)))
			}
		}
	} else {
		err = cmp.Or(err, give(b.scores, 0))
	}
	if err != nil {
		return nil, err
	}
	maps.Copy(given, env)
	out, err := b.lab.run(n, given, b.site.Y)
	if err != nil {
		return nil, err
	}
	return out[0].F, nil
}

// readEmpty finds what a query gets that sees no key: 0, or the mean of all values.
func (b *block) readEmpty(h hypothesis) *reason.Reason {
	b.site.Empty = zero
	if !h.keyValid {
		return nil
	}
	n := b.lab.at(lengths{3, 2, 2})
	env, err := b.masks(n, func(batch, key int64) bool { return true })
	if err != nil {
		return b.other(b.anchor, "the mask cannot be computed: %w", err)
	}
	sums, err := b.result(n, env)
	if err != nil {
		return b.other(b.anchor, "the result cannot be computed: %w", err)
	}
	switch {
	case !slices.ContainsFunc(sums, func(x float64) bool { return math.Abs(x) > 1e-9 }): // or no number
	case !slices.ContainsFunc(sums, func(x float64) bool { return !(math.Abs(x-1) < 1e-6) }):
		return b.readMean(h, n, env)
	default:
		return b.other(b.anchor, "a query that sees no key gets neither 0 nor the mean of all values")
	}
	return nil
}

// readMean finds which values a query gets the mean of that sees no key. They are all of them or, where a mask of
// padding is added to scores that are masked by position before, those of its positions. A mask of numbers that scores
// do not vanish beside leaves it what it would get without one. Such masks are biases, if they can be.
func (b *block) readMean(h hypothesis, n lengths, env values) *reason.Reason {
	keys := int(n.keys())
	isMean := func(scores []float64) bool {
		weights, err := b.weigh(n, scores, env)
		return err == nil && !slices.ContainsFunc(weights, func(w float64) bool {
			return !(math.Abs(w*float64(keys)-1) < 1e-6)
		})
	}
	b.site.Empty = mean
	equal := make([]float64, b.rowsOf(n)*keys)
	if isMean(random(len(equal), 37)) || b.g.Facts.DataType(b.scores) == onnx.Float16 && isMean(equal) {
		return nil // scores vanish beside the least number of float16 by rounding
	}
	h.keyValid = false
	added := slices.DeleteFunc(b.added(), func(v *onnx.Value) bool { // a mask by position stays one
		return b.follows(nil, v) && !slices.Contains(b.biases, v)
	})
	why := b.addsToScores(added, b.seen(h))
	switch {
	case why == nil:
		b.site.KeyValid, b.site.Bias, b.site.Empty = nil, added, zero
	case isMean(equal):
		return nil
	}
	return why
}

// withoutMask adds what guards behind the second product are computed from.
func (b *block) withoutMask(n lengths, env values) values {
	if b.keyValid != nil {
		env[b.keyValid] = b.valid(b.keyValid, n, nil)
	}
	return env
}

// otherMask begins what is said of a mask that no hypothesis fits.
const otherMask = "the mask is none of those that follow from positions"

// leastMasked is what masks add at most to the score of a key that a query does not see.
const leastMasked = -1e4

// findBiases finds what is added to the scores and is no mask: it holds numbers by which queries see keys more or less.
func (b *block) findBiases() {
	if b.otherData {
		return
	}
	n := b.few()
	env, err := b.masks(n, nil)
	if err != nil {
		return
	}
	for _, v := range b.added() {
		if slices.Contains(b.biases, v) {
			continue
		}
		out, err := b.lab.run(n, env, v)
		if err == nil && slices.ContainsFunc(out[0].F, func(x float64) bool { return x > leastMasked && x != 0 }) {
			b.biases = append(b.biases, v)
		}
	}
}

// added lists the tensors that may be added to the scores.
func (b *block) added() []*onnx.Value {
	return slices.DeleteFunc(slices.Clone(b.sides), func(v *onnx.Value) bool { return !b.isAdded(v) })
}

// isAdded reports whether a value may be added to the scores.
func (b *block) isAdded(v *onnx.Value) bool {
	rank, ok := b.g.Facts.Rank(v)
	return ok && rank >= 2 && rank <= 4 && b.g.Facts.DataType(v).IsFloat() && b.perHead(v) == nil &&
		(v.Constant() == nil || v.Constant().Len() != 1)
}

// readBias takes a mask that no hypothesis fits for tensors that are added to the scores.
func (b *block) readBias() *reason.Reason {
	added := b.added()
	if len(added) == 0 {
		return b.other(b.anchor, "%s, and not added to the scores", otherMask)
	}
	if why := b.addsToScores(added, func(int64, int64, int64) bool { return true }); why != nil {
		return why
	}
	b.site.Bias, b.site.Empty = added, zero
	return nil
}

// addsToScores returns a reason where the tensors are not added to the scores of keys that queries see, after the scale
// and the cap.
func (b *block) addsToScores(added []*onnx.Value, sees func(batch, query, key int64) bool) *reason.Reason {
	n := b.few()
	env, err := b.masks(n, nil)
	if err != nil {
		return b.other(b.anchor, "the mask cannot be computed: %w", err)
	}
	tensors := make([]*reference.Tensor, len(added))
	for i, v := range added {
		t, ok := b.tensorOf(v, n, uint64(13+i))
		if !ok {
			return b.unknown("the shape of the mask")
		}
		tensors[i], env[v] = t, t
	}
	keys := int(n.keys())
	scores := random(b.rowsOf(n)*keys, 31)
	p, err := b.weigh(n, scores, env)
	if err != nil {
		return b.other(b.anchor, "the weights cannot be computed: %w", err)
	}
	factor := b.site.Scale / b.scale
	byHead, merged := []int{int(n.batch), b.heads, int(n.queries), keys}, []int(nil)
	if rank, _ := b.g.Facts.Rank(b.scores); rank == 3 && b.op == nil {
		merged = []int{int(n.batch) * b.heads, int(n.queries), keys}
	}
	score := func(i int) float64 {
		x := scores[i] * factor
		if s := b.site.Softcap; s > 0 {
			x = s * math.Tanh(x/s)
		}
		for _, t := range tensors {
			shape := byHead
			if merged != nil && len(t.Shape) < len(byHead) { // else the scores had four dimensions where it is added
				shape = merged
			}
			x += t.F[broadcastIndex(t.Shape, shape, i)]
		}
		return x
	}
	for row := range b.rowsOf(n) {
		first := -1
		for j := range keys {
			if !sees(int64(row/b.heads)/n.queries, int64(row)%n.queries, int64(j)) {
				continue
			}
			i := row*keys + j
			if first < 0 {
				first = i
			}
			if got, want := math.Log(p[i])-math.Log(p[first]), score(i)-score(first); !(math.Abs(got-want) < 1e-5) {
				return b.other(b.anchor, "%s, and changed before it is added", otherMask)
			}
		}
	}
	return nil
}

// broadcastIndex returns the element of a tensor of shape from that stands at element i of one of shape to.
func broadcastIndex(from, to []int, i int) int {
	at, stride := 0, 1
	for k := len(to) - 1; k >= 0; k-- {
		d := i % to[k]
		i /= to[k]
		if f := k - (len(to) - len(from)); f >= 0 {
			if from[f] > 1 {
				at += d * stride
			}
			stride *= from[f]
		}
	}
	return at
}
