package attention

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// weigh runs the nodes between the products: it returns the weights that keys get for the scores. env holds the masks.
func (b *block) weigh(n lengths, list []float64, env values) ([]float64, error) {
	if b.op != nil {
		return b.standardWeights(n, list, env)
	}
	shape, ok := b.world.shape(b.scores(), n)
	if !ok {
		return nil, b.unknown("the shape of the scores")
	}
	given := values{b.scores(): reference.NewFloats(b.g.Facts.DataType(b.scores()), shape,
		arranged(list, scores, b.scoreAxes, b.sizes(n)))}
	maps.Copy(given, env)
	out, err := b.world.run(n, given, b.weights())
	if err != nil {
		return nil, err
	}
	weights := arranged(out[0].F, b.weightAxes[0], scores, b.sizes(n))
	if len(b.joins) > 0 {
		factors, err := b.rowFactors(n, given)
		if err != nil {
			return nil, err
		}
		keys := int(n.keys())
		weights = slices.Clone(weights)
		for i := range weights {
			weights[i] *= factors[i/keys]
		}
	}
	return weights, nil
}

// rowFactors returns the factors that nodes after the second product multiply its rows with.
func (b *block) rowFactors(n lengths, given values) ([]float64, error) {
	given = maps.Clone(given)
	one, ok := b.constant(b.sum.Outputs[0], n, 1)
	if !ok {
		return nil, b.unknown("the shape of the result")
	}
	given[b.sum.Outputs[0]] = one
	out, err := b.world.run(n, b.withoutMask(n, given), b.site.Y)
	if err != nil {
		return nil, err
	}
	y := &tensor{batch: int(n.batch), heads: b.heads, rows: int(n.queries), width: int(b.site.ValueWidth)}
	y.from(b.site.YAxes, out[0].F)
	factors := make([]float64, b.rowsOf(n))
	for i := range factors {
		factors[i] = y.data[i*y.width]
	}
	return factors, nil
}

// rowsOf returns the number of rows of scores.
func (b *block) rowsOf(n lengths) int { return int(n.batch) * b.heads * int(n.queries) }

// readWeights finds how the weights follow from the scores: the scale, the cap, and the sink's share. A scale that
// depends on lengths or positions is applied to the queries.
func (b *block) readWeights() *reason.Reason {
	for _, v := range b.Sides {
		if !b.isOfQueries(v) || b.isFixed(v) {
			continue
		}
		biases := b.biases
		b.site.QueryScale = v
		b.biases = slices.DeleteFunc(slices.Clone(biases), func(w *onnx.Value) bool { return v == w })
		if b.readWeightsOf() == nil && b.scalesQueries() {
			return nil
		}
		b.site.QueryScale, b.biases = nil, biases
	}
	return b.readWeightsOf()
}

// isOfQueries reports whether a value holds floats that do not depend on the key.
func (b *block) isOfQueries(v *onnx.Value) bool {
	rank, ok := b.g.Facts.Rank(v)
	if !ok || !b.g.Facts.DataType(v).IsFloat() || denseValues(b.g)[v] {
		return false
	}
	fields := b.fields(rank)
	for axis := range rank {
		i := axis + len(fields) - rank
		if d, known := b.g.Facts.Dim(v, axis); !(known && d == 1) && (i < 0 || strings.Contains(fields[i], "l")) {
			return false
		}
	}
	return true
}

// scalesQueries reports whether the scores are multiplied or divided by the scale of the queries.
func (b *block) scalesQueries() bool {
	n, s := b.few(), b.site
	t, ok := b.tensorOf(s.QueryScale, n, 91)
	env, err := b.masks(n, nil)
	if !ok || err != nil || !b.isOnScores(t.Shape, n) {
		return false
	}
	for i, x := range t.F {
		t.F[i] = 0.5 + math.Abs(x)
	}
	env[s.QueryScale] = t
	keys := int(n.keys())
	list := random(b.rowsOf(n)*keys, 93)
	p, err := b.weigh(n, list, env)
	if err != nil {
		return false
	}
	at := b.indices(t.Shape, n)
	is := func(divides bool) bool {
		for row := range b.rowsOf(n) {
			first := -1
			for i := row * keys; i < (row+1)*keys; i++ {
				if p[i] == 0 {
					continue
				}
				if first < 0 {
					first = i
				}
				factor := t.F[at[i]]
				if divides {
					factor = 1 / factor
				}
				if b.headScale != nil {
					factor *= b.headScale[row/int(n.queries)%b.heads]
				}
				logit := func(i int) float64 { return s.capped(list[i] * factor * s.Scale / b.scale) }
				got, want := math.Log(p[i])-math.Log(p[first]), logit(i)-logit(first)
				if !(math.Abs(got-want) < 1e-5) {
					return false
				}
			}
		}
		return true
	}
	s.QueryDivides = !is(false)
	return !s.QueryDivides || is(true)
}

// readWeightsOf is readWeights with a known scale of the queries. The last query must see the last two keys: masks that
// hide them are replaced.
func (b *block) readWeightsOf() *reason.Reason {
	n := b.few()
	b.findHiding(n)
	env, err := b.masks(n, nil)
	if err != nil {
		return b.other(b.anchor, "the mask cannot be computed: %w", err)
	}
	read := func(env values) *reason.Reason {
		if why := b.readSink(n, env); why != nil {
			return why
		}
		return b.readScale(n, env)
	}
	why := read(env)
	for _, hides := range []bool{false, true} {
		if why == nil {
			break
		}
		was := b.hides
		if b.hides = hides; b.opened(n, env, read) != nil {
			b.hides = was
			continue
		}
		why = nil
	}
	b.weighs = why == nil
	return why
}

// opened calls read with masks that hide nothing.
func (b *block) opened(n lengths, env values, read func(values) *reason.Reason) *reason.Reason {
	open, err := b.open(n, env)
	if err != nil {
		return b.other(b.anchor, "the mask cannot be computed: %w", err)
	}
	return read(open)
}

// findHiding finds out whether the tensor that masks are computed from holds 1 for keys that exist or for the others: a
// query that sees all keys must have weights.
func (b *block) findHiding(n lengths) {
	if b.keyValid == nil {
		return
	}
	for _, b.site.KeyHides = range []bool{false, true} {
		env, err := b.masks(n, nil)
		if err != nil {
			continue
		}
		p, err := b.weigh(n, make([]float64, b.rowsOf(n)*int(n.keys())), env)
		if err == nil && !slices.ContainsFunc(p, math.IsNaN) && slices.Max(p[len(p)-int(n.keys()):]) > 0 {
			return
		}
	}
	b.site.KeyHides = false
}

// notSoftmax is the reason for scores that are multiplied by more than one number, or changed otherwise.
const notSoftmax = "the weights are not the softmax of scores times one number plus a mask"

// readScale finds the scale and the cap, with masks that let the last query see the last two keys.
func (b *block) readScale(n lengths, env values) *reason.Reason {
	keys := int(n.keys())
	if keys < 2 {
		return b.other(b.anchor, "the queries see one key at every length, so its weight does not show the scale")
	}
	equal := make([]float64, b.rowsOf(n)*keys)
	flat, err := b.weigh(n, equal, env)
	if err != nil {
		return b.other(b.anchor, "the weights cannot be computed: %w", err)
	}
	// ratios returns one number for each head: the log of a key's weight at score x, relative to the last key at score
	// 0, minus the same at equal scores. It reads the last query's row, which sees the last two keys. The key is the
	// second to last: no other arrangement of the scores takes it for a last key.
	rows := int(n.queries)
	ratios := func(x float64) []float64 {
		scores := slices.Clone(equal)
		for row := rows - 1; row < b.rowsOf(n); row += rows {
			scores[row*keys+keys-2] = x
		}
		p, err := b.weigh(n, scores, env)
		if err != nil {
			return nil
		}
		list := make([]float64, 0, b.heads)
		for k := range b.rowsOf(n) / rows {
			one := (k*rows+rows-1)*keys + keys - 2
			d := math.Log(p[one]) - math.Log(p[one+1]) - math.Log(flat[one]) + math.Log(flat[one+1])
			if b.headScale != nil {
				d /= b.headScale[k%b.heads]
			}
			switch {
			case k < b.heads:
				list = append(list, d)
			case !(math.Abs(d-list[k%b.heads]) <= 1e-6*max(1, math.Abs(d))):
				return nil
			}
		}
		return list
	}
	ratio := func(x float64) (float64, bool) { // the same for all heads
		list := ratios(x)
		if list == nil || slices.ContainsFunc(list, func(d float64) bool {
			return !(math.Abs(d-list[0]) <= 1e-6*max(1, math.Abs(list[0])))
		}) {
			return 0, false
		}
		return list[0], true
	}
	unit := 1 / math.Abs(b.scale) // the score that becomes 1 with the scale of the operands
	near, ok := ratio(unit)
	if !ok && b.headScale == nil && b.findHeadScale(n, env, func() []float64 { return ratios(unit) }) {
		near, ok = ratio(unit)
	}
	s := b.site
	s.Softcap = 0
	if !ok || near == 0 || math.IsInf(near, 0) {
		return b.other(b.anchor, notSoftmax)
	}
	s.Scale = near / unit
	if cap, ok := ratio(math.Copysign(1e9*unit, near)); ok && b.headScale == nil && !math.IsInf(cap, 0) && cap < 1e6 {
		s.Softcap = cap
		s.Scale = cap * math.Atanh(near/cap) / unit
	}
	for _, x := range []float64{-3 * unit, 20 * unit} {
		want := s.capped(s.Scale * x) // for one head as for all: the cap comes after their scales
		if got, ok := ratio(x); !ok || math.Abs(got-want) > 1e-5*math.Abs(want) {
			return b.other(b.anchor, notSoftmax)
		}
	}
	far := b.farScore()
	for _, base := range []float64{-far, -1e3, 1e3, far} { // equal scores change nothing, unless they are clipped
		for i := range equal {
			equal[i] = base * unit
		}
		if b.sink != nil { // a fixed sink would take all of the weight or nothing
			env = maps.Clone(env)
			far := &reference.Tensor{DataType: b.sink.DataType, Shape: b.sink.Shape}
			far.F = slices.Repeat([]float64{base * near}, len(b.sink.F))
			env[s.Sink] = far
		}
		got, ok := ratio((base + 1) * unit)
		if ok && s.Softcap == 0 && math.Abs(got-near) > 1e-5*math.Abs(near) {
			return b.other(b.anchor, "it clips scores")
		}
	}
	s.Scale *= b.scale
	return nil
}

// capped applies the cap to a score. The op's body applies it between two products and returns no scores, so this step
// is repeated here; confirm compares the whole block with the body.
func (s *Reading) capped(x float64) float64 {
	if s.Softcap > 0 {
		return s.Softcap * math.Tanh(x/s.Softcap)
	}
	return x
}

// findHeadScale finds the tensor that holds a factor of the scores for each head, by the effect of other factors on the
// ratios. Later ratios are divided by it.
func (b *block) findHeadScale(n lengths, env values, ratios func() []float64) bool {
	for _, v := range b.Sides {
		if v == b.site.Sink || !b.isFixed(v) {
			continue
		}
		t, err := b.world.run(n, nil, v)
		if err != nil || len(t[0].F) != b.heads || b.heads == 1 {
			continue
		}
		follows := func(t *reference.Tensor) bool {
			env[v] = t
			list := ratios()
			if list == nil {
				return false
			}
			_, ok := factorOf(t.F, list)
			return ok
		}
		other := &reference.Tensor{DataType: t[0].DataType, Shape: t[0].Shape}
		for _, x := range random(b.heads, 41) {
			other.F = append(other.F, 1+math.Abs(x))
		}
		if follows(other) && follows(t[0]) {
			b.site.HeadScale, b.headScale = v, t[0].F
			return true
		}
		delete(env, v)
	}
	return false
}

// readSink finds the tensor that takes a share of each head's weights, if there is one, and adds it to env.
func (b *block) readSink(n lengths, env values) *reason.Reason {
	// shares returns the exponential of each head's sink, relative to the exponential of a score of 0.
	shares := func(n lengths, env values) ([]float64, bool) {
		keys := int(n.keys())
		p, err := b.weigh(n, make([]float64, b.rowsOf(n)*keys), env)
		if err != nil {
			return nil, false
		}
		list := make([]float64, b.heads)
		for h := range list {
			row := p[((h+1)*int(n.queries)-1)*keys:][:keys] // of the first batch's last query
			sum, greatest := 0.0, 0.0
			for _, x := range row {
				sum, greatest = sum+x, max(greatest, x)
			}
			list[h] = (1 - sum) / greatest
		}
		return list, true
	}
	for _, side := range b.Sides {
		v := b.perHead(side)
		if v == nil {
			continue
		}
		t, ok := b.tensorOf(v, n, 11)
		if !ok {
			continue
		}
		given := maps.Clone(env)
		given[v] = t
		have, ok := shares(n, given)
		for h := range have {
			ok = ok && math.Abs(have[h]-math.Exp(t.F[h])) < 1e-6*have[h]
		}
		if ok {
			b.site.Sink, b.sink, b.sinks = v, t, t.F
			env[v] = t // the elements may be unknown here
			return nil
		}
	}
	have, ok := shares(n, env)
	if !ok {
		return b.other(b.anchor, "the weights cannot be computed")
	}
	more := b.world.at(lengths{2, 6, 7})
	again := have
	if env, err := b.masks(more, nil); err == nil {
		again, ok = shares(more, env)
	}
	none, all := 0, true     // heads without a sink; whether all have one
	for h, x := range have { // must not depend on the number of keys
		ok = ok && math.Abs(again[h]-x) < 1e-6*max(1, x)
		if math.Abs(x) < 1e-6 {
			none++
		}
		all = all && x > 1e-6
	}
	switch {
	case !ok || none < len(have) && !all:
		return b.other(b.anchor, "the weights of a query do not add up to 1")
	case all:
		b.sinks = make([]float64, len(have))
		for h, x := range have {
			b.sinks[h] = math.Log(x)
		}
		b.site.SinkIs = b.sinks
	}
	return nil
}

// perHead follows a value back to a constant that holds a number for each head.
func (b *block) perHead(v *onnx.Value) *onnx.Value {
	for range maxChain {
		if c := v.Constant(); c != nil {
			if c.Len() == int64(b.heads) && c.DataType.IsFloat() && (b.heads > 1 || len(c.Dims) > 0) {
				return v
			}
			return nil
		}
		if v.Producer == nil {
			return nil
		}
		if v = movedFrom(b.g, v.Producer); v == nil {
			return nil
		}
	}
	return nil
}
