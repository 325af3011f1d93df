package attention

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/formula"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// The values of Reading.Empty: the result for a query that sees no key.
const (
	zero = "zero"
	mean = "mean"
)

// result runs the nodes after the scores with values of 1. It returns the sum of the weights that count in each row.
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
		err = cmp.Or(err, give(b.scores(), 0))
	}
	if err != nil {
		return nil, err
	}
	maps.Copy(given, env)
	out, err := b.world.run(n, given, b.site.Y)
	if err != nil {
		return nil, err
	}
	return out[0].F, nil
}

// readEmpty finds the result for a query that sees no key: 0, or the mean of all values.
func (b *block) readEmpty(h hypothesis) *reason.Reason {
	b.site.Empty = zero
	if !h.keyValid {
		return nil
	}
	n := b.world.at(lengths{3, 2, 2})
	env, err := b.masks(n, func(batch, key int64) bool { return true })
	if err != nil {
		return b.other(b.anchor, "the mask cannot be computed: %w", err)
	}
	sums, err := b.result(n, env)
	if err != nil {
		return b.other(b.anchor, "the result cannot be computed: %w", err)
	}
	switch {
	case !slices.ContainsFunc(sums, func(x float64) bool { return math.Abs(x) > 1e-9 }): // NaN counts as 0
	case !slices.ContainsFunc(sums, func(x float64) bool { return !(math.Abs(x-1) < 1e-6) }):
		return b.readMean(h, n, env)
	default:
		return b.other(b.anchor, "the result for a query that sees no key is neither 0 nor the mean of all values")
	}
	return nil
}

// readMean finds which values are averaged for a query that sees no key: all values or, if a padding mask is added to
// scores that are already masked by position, those at the positions that it may see. If the scores do not vanish
// beside a finite mask, the query keeps its unpadded result. Such masks become biases if possible.
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
	if isMean(random(len(equal), 37)) || b.g.Facts.DataType(b.scores()) == onnx.Float16 && isMean(equal) {
		return nil // scores are rounded away beside the least float16
	}
	h.keyValid = false
	added := slices.DeleteFunc(b.added(), func(v *onnx.Value) bool { // a mask by position stays a mask
		return b.follows(nil, v) && !slices.Contains(b.biases, v)
	})
	seen := b.seen(h)
	why := b.addsScaled(nil, added, func(batch, _, query, key int64) bool { return seen(batch, query, key) })
	if why == nil {
		if err := b.provesWithout(added, h); err != nil {
			return b.readBias()
		}
		b.site.KeyValid, b.site.Bias, b.site.Empty = nil, added, zero
	} else if isMean(equal) {
		return nil
	}
	return why
}

// provesWithout returns an error unless the hypothesis holds for the masks without those in added.
func (b *block) provesWithout(added []*onnx.Value, h hypothesis) error {
	all := b.biases
	defer func() { b.biases = all }()
	b.biases = added
	var examples []example
	for _, p := range b.examples() {
		if p.padding == nil {
			p.weights = []float64{} // as tried
			examples = append(examples, p)
		}
	}
	seen := newWitnesses(b.masksOf())
	if err := seen.gather(b, h, examples); err != nil {
		return err
	}
	return b.prove(h, seen)
}

// withoutMask adds a mask without padding, for guards after the second product.
func (b *block) withoutMask(n lengths, env values) values {
	if env == nil {
		env = values{}
	}
	if b.keyValid != nil {
		env[b.keyValid] = b.valid(b.keyValid, n, nil)
	}
	return env
}

// otherMask begins the reason for a mask that no hypothesis fits.
const otherMask = "the mask is not computed from positions"

// leastMasked is the greatest number that a mask adds to the score of a hidden key.
const leastMasked = -1e4

// findBiases finds the tensors that are added to the scores and have elements other than a mask's: 0 or leastMasked and
// less.
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
		out, err := b.world.run(n, env, v)
		if err == nil && slices.ContainsFunc(out[0].F, func(x float64) bool { return x > leastMasked && x != 0 }) {
			b.hasNumbers = true
			if !b.factors {
				b.biases = append(b.biases, v)
			}
		}
	}
}

// added lists the tensors that may be added to the scores.
func (b *block) added() []*onnx.Value {
	return slices.DeleteFunc(slices.Clone(b.Sides), func(v *onnx.Value) bool { return !b.isAdded(v) })
}

// isAdded reports whether a value may be added to the scores.
func (b *block) isAdded(v *onnx.Value) bool {
	_, ok := b.g.Facts.Rank(v)
	return ok && b.g.Facts.DataType(v).IsFloat() && v != b.site.QueryScale && v != b.site.HeadScale && !b.isFixed(v)
}

// readBias reads a mask that no hypothesis fits as tensors that are added to the scores, or as truth values that tell
// which keys each query sees. Nothing else may depend on lengths.
func (b *block) readBias() *reason.Reason {
	var added, choices []*onnx.Value
	b.biases = slices.DeleteFunc(slices.Clone(b.biases), func(v *onnx.Value) bool { return !denseValues(b.g)[v] })
	for _, v := range append(b.masksOf(), b.biases...) {
		rank, _ := b.g.Facts.Rank(v)
		switch {
		case slices.Contains(added, v):
		case rank > len(b.fields(rank)):
			return b.otherMask("%q has %d dimensions", v.Name, rank)
		case b.isAdded(v):
			added = append(added, v)
		case b.g.Facts.DataType(v) == onnx.Bool && len(choices) == 0:
			choices = append(choices, v)
		default:
			return b.otherMask("%q is not added to the scores", v.Name)
		}
	}
	b.biases = added
	if len(choices) > 0 {
		why := b.readChoice(choices[0], added)
		b.masksGiven = why == nil
		return why
	}
	if why := b.addsToScores(added, func(int64, int64, int64) bool { return true }); why != nil {
		return why
	}
	b.site.Bias, b.site.Empty, b.masksGiven = added, zero, true
	return nil
}

// otherMask returns the reason why a mask cannot be read.
func (b *block) otherMask(format string, args ...any) *reason.Reason {
	what := fmt.Errorf(format, args...)
	if u := (*formula.UnknownError)(nil); errors.As(b.unproved, &u) && u.Node != nil {
		return b.other(b.anchor, "%s (%w), and %w", otherMask, b.unproved, what)
	}
	return b.other(b.anchor, "%s, and %w", otherMask, what)
}

// readChoice reads a tensor of truth values that tells which keys queries see, beside the tensors added to the scores.
// It also finds the result for a query that sees no key.
func (b *block) readChoice(v *onnx.Value, added []*onnx.Value) *reason.Reason {
	n := b.few()
	shape, ok := b.world.shape(v, n)
	if !ok {
		return b.unknown("the shape of the mask")
	}
	if !b.isOnScores(shape, n) {
		return b.otherMask("it has heads and queries in one dimension")
	}
	choice := &reference.Tensor{DataType: onnx.Bool, Shape: shape}
	for _, x := range random(match.Elements(shape), 43) {
		choice.I = append(choice.I, boolToInt(x > 0))
	}
	places := b.indices(shape, n)
	keys := int64(n.keys())
	var first *reason.Reason
	for _, hides := range []bool{false, true} {
		sees := func(batch, head, query, key int64) bool {
			at := ((batch*int64(b.heads)+head)*n.queries+query)*keys + key
			return (choice.I[places[at]] != 0) != hides
		}
		given := values{v: choice}
		if why := b.addsWith(given, added, sees); why != nil {
			first = cmp.Or(first, why)
			continue
		}
		if err := b.hidesFar(given, sees); err != nil {
			return b.otherMask("%w", err)
		}
		env, err := b.masks(n, nil)
		if err != nil {
			return b.other(b.anchor, "the mask cannot be computed: %w", err)
		}
		env[v] = &reference.Tensor{DataType: onnx.Bool, Shape: shape, // every key hidden
			I: slices.Repeat([]int64{boolToInt(hides)}, len(choice.I))}
		sums, err := b.result(n, env)
		if err != nil {
			return b.other(b.anchor, "the result cannot be computed: %w", err)
		}
		empty := zero
		if !slices.ContainsFunc(sums, func(x float64) bool { return !(math.Abs(x-1) < 1e-6) }) {
			empty = mean
		} else if slices.ContainsFunc(sums, func(x float64) bool { return math.Abs(x) > 1e-9 }) { // NaN counts as 0
			return b.other(b.anchor, "the result for a query that sees no key is neither 0 nor the mean of all values")
		}
		b.site.Choice, b.site.Hides, b.site.Bias, b.site.Empty = v, hides, added, empty
		return nil
	}
	return first
}

func boolToInt(x bool) int64 {
	if x {
		return 1
	}
	return 0
}

// addsToScores returns a reason unless the tensors are added to the scores of visible keys, after scale and cap.
func (b *block) addsToScores(added []*onnx.Value, sees func(batch, query, key int64) bool) *reason.Reason {
	return b.addsWith(nil, added, func(batch, _, query, key int64) bool { return sees(batch, query, key) })
}

// addsWith is addsToScores with some values given; hidden keys must have no weight. The tensors may also be added
// before the scores are scaled.
func (b *block) addsWith(given values, added []*onnx.Value,
	sees func(batch, head, query, key int64) bool) *reason.Reason {
	b.site.BiasScale = 0
	why := b.addsScaled(given, added, sees)
	if why != nil && len(added) > 0 && b.site.Softcap == 0 {
		if b.site.BiasScale = b.site.Scale / b.scale; b.addsScaled(given, added, sees) == nil {
			return nil
		}
		b.site.BiasScale = 0
	}
	return why
}

// addsScaled is addsWith with the scale of the biases. more are further tensors with the shape of the scores.
func (b *block) addsScaled(given values, added []*onnx.Value, sees func(batch, head, query, key int64) bool,
	more ...*reference.Tensor) *reason.Reason {
	n := b.few()
	env, err := b.masks(n, nil)
	if err != nil {
		return b.other(b.anchor, "the mask cannot be computed: %w", err)
	}
	maps.Copy(env, given)
	tensors, at := make([]*reference.Tensor, len(added)), make([][]int, len(added))
	for i, v := range added {
		t, ok := b.tensorOf(v, n, uint64(13+i))
		if !ok {
			return b.unknown("the shape of the mask")
		}
		if !b.isOnScores(t.Shape, n) || !b.isOnAll(v) {
			return b.otherMask("it is added to scores with heads and queries in one dimension")
		}
		tensors[i], env[v], at[i] = t, t, b.indices(t.Shape, n)
	}
	for _, t := range more {
		tensors, at = append(tensors, t), append(at, b.places(n))
	}
	keys, queries := int(n.keys()), int(n.queries)
	scores := random(b.rowsOf(n)*keys, 31)
	p, err := b.weigh(n, scores, env)
	if err != nil {
		return b.other(b.anchor, "the weights cannot be computed: %w", err)
	}
	factor := b.site.Scale / b.scale
	score := func(i int) float64 {
		x := scores[i] * factor
		if b.headScale != nil {
			x *= b.headScale[i/(keys*queries)%b.heads]
		}
		x = b.site.capped(x)
		for k, t := range tensors {
			x += t.F[at[k][i]] * cmp.Or(b.site.BiasScale, 1)
		}
		return x
	}
	for row := range b.rowsOf(n) {
		batch, head, query := row/queries/b.heads, row/queries%b.heads, row%queries
		first := -1
		for j := range keys {
			i := row*keys + j
			if !sees(int64(batch), int64(head), int64(query), int64(j)) {
				continue
			}
			if first < 0 {
				first = i
			}
			if got, want := math.Log(p[i])-math.Log(p[first]), score(i)-score(first); !(math.Abs(got-want) < 1e-5) {
				return b.otherMask("other nodes change it before it is added")
			}
		}
		for j := range keys {
			if i := row*keys + j; given != nil && first >= 0 && p[i] != 0 &&
				!sees(int64(batch), int64(head), int64(query), int64(j)) {
				return b.otherMask("it does not hide keys")
			}
		}
	}
	return nil
}

// hidesFar returns an error unless masks hide keys with the highest scores from queries that see only the lowest ones.
func (b *block) hidesFar(given values, sees func(batch, head, query, key int64) bool) error {
	n := b.few()
	env, err := b.masks(n, nil)
	if err != nil {
		return err
	}
	maps.Copy(env, given)
	keys, queries := int(n.keys()), int(n.queries)
	far := b.farScore() / (b.site.Scale / b.scale)
	list, seen := make([]float64, b.rowsOf(n)*keys), make([]int, b.rowsOf(n))
	is := func(i int) bool {
		row := i / keys
		return sees(int64(row/queries/b.heads), int64(row/queries%b.heads), int64(row%queries), int64(i%keys))
	}
	for i := range list {
		if list[i] = far; is(i) {
			list[i] = -far
			seen[i/keys]++
		}
	}
	p, err := b.weigh(n, list, env)
	if err != nil {
		return err
	}
	for i, x := range p {
		row := p[i/keys*keys:][:keys]
		none := !slices.ContainsFunc(row, func(x float64) bool { return x != 0 }) // all exponentials underflow
		switch count := seen[i/keys]; {
		case count == 0 || none || math.IsNaN(x): // NaN: the nodes cannot compute such scores
		case !is(i) && x != 0:
			return b.tooHigh()
		case is(i) && b.sinks == nil && math.Abs(x*float64(count)-1) > 1e-6:
			return b.tooHigh()
		}
	}
	return nil
}

// tooHigh returns the error for masked scores that are not low enough.
func (b *block) tooHigh() error {
	for _, n := range b.Nodes {
		for _, v := range n.Inputs {
			if x, ok := greatest(b.g, v); n.Is("Where") && ok && x != 0 {
				return fmt.Errorf("a masked score is %g: other scores may be lower, so masked keys are seen", x)
			}
		}
	}
	return fmt.Errorf("keys that it hides are seen if scores differ by %g", 2*b.farScore())
}

// places returns the index of each score in the graph's tensor of scores.
func (b *block) places(n lengths) []int {
	list := make([]float64, b.rowsOf(n)*int(n.keys()))
	for i := range list {
		list[i] = float64(i)
	}
	places := make([]int, len(list))
	for i, x := range arranged(list, b.scoreAxes, scores, b.sizes(n)) {
		places[i] = int(x)
	}
	return places
}

// indices returns for each score the index of the element of a tensor of this shape that is broadcast to it.
func (b *block) indices(shape []int, n lengths) []int {
	list, to := b.places(n), b.onScores(len(shape), n)
	for i, place := range list {
		list[i] = broadcastIndex(shape, to, place)
	}
	return list
}

// isOnScores reports whether a tensor is broadcast to the scores and can be given the op's axes, for which its heads
// and queries must be separate.
func (b *block) isOnScores(shape []int, n lengths) bool {
	to := b.onScores(len(shape), n)
	if len(shape) > len(to) {
		return false
	}
	for i, d := range shape {
		if d != 1 && d != to[len(to)-len(shape)+i] {
			return false
		}
	}
	fields := b.fields(len(shape))
	from := len(fields) - len(shape)
	for i, f := range fields {
		_, part := headPart(f)
		if len(f) > 1 && !part && !strings.Contains(f, "b") && i >= from && shape[i-from] > 1 {
			return false
		}
	}
	return true
}

// isOnAll reports whether a value is broadcast to the scores in all worlds: a fixed dimension may be the batch of one.
func (b *block) isOnAll(v *onnx.Value) bool {
	rank, _ := b.g.Facts.Rank(v)
	for w, n := range b.lengths {
		to := b.onScores(rank, n)
		for axis := range rank {
			d, i := b.g.Facts.Size(v, w, axis), len(to)-rank+axis
			if d > 1 && (i < 0 || d != int64(to[i])) {
				return false
			}
		}
	}
	return true
}

// broadcastIndex returns the index in shape from of the element that is broadcast to element i of shape to.
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
