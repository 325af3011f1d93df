package attention

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// findMask finds the tensor with a number for each key that the masks are computed from, if they need more than shapes.
func (b *block) findMask() {
	d := denseValues(b.g)
	seen := map[*onnx.Value]bool{}
	var leaves, perKey []*onnx.Value
	var visit func(v *onnx.Value)
	visit = func(v *onnx.Value) {
		if v == nil || seen[v] || d[v] || !b.world.Budget.Spend(lookSteps) {
			return
		}
		seen[v] = true
		if c := v.Constant(); c != nil {
			b.look(c)
			return
		}
		n := v.Producer
		if n == nil || n.Graph != b.g.Graph {
			leaves = append(leaves, v)
		} else if !n.Is("Shape") {
			for _, in := range b.g.Operands(n) {
				visit(in)
			}
		}
		if b.isPerKey(v) && b.g.IsData(v) {
			perKey = append(perKey, v)
		}
	}
	for _, v := range b.Sides {
		if visit(v); d[v] { // adds products of other values
			b.biases = append(b.biases, v)
		}
	}
	if len(leaves) == 0 && b.follows(nil, b.Sides...) {
		return
	}
	sides := slices.DeleteFunc(slices.Clone(b.Sides), func(v *onnx.Value) bool { // adds other tensors
		if d[v] {
			return true
		}
		isBias := b.isAdded(v) && !b.follows(nil, v) &&
			!slices.ContainsFunc(perKey, func(w *onnx.Value) bool { return b.follows(w, v) })
		if isBias {
			b.biases = append(b.biases, v)
		}
		return isBias
	})
	if b.follows(nil, sides...) {
		return
	}
	for _, v := range perKey { // inputs come first
		if b.follows(v, sides...) {
			b.keyValid = v
			return
		}
	}
	b.otherData, b.biases = true, nil
}

// follows reports whether the values are computed only from shapes and, if it is not nil, from. If they cannot be
// computed here, they follow from nothing.
func (b *block) follows(from *onnx.Value, list ...*onnx.Value) bool {
	env := values{}
	if from != nil {
		env[from] = b.valid(from, b.few(), nil)
	}
	_, err := b.world.run(b.few(), env, list...)
	return !errors.As(err, new(*probe.MissingError)) && !errors.Is(err, reference.ErrUnsupported)
}

// look notes the tables that masks are computed with. They may be shorter than the lengths that are tried.
func (b *block) look(c *onnx.Tensor) {
	for _, d := range c.Dims {
		b.bounded = b.bounded || c.Len() != 1 && d > 8
	}
}

// isPerKey reports whether the value has an element for each key of each batch.
func (b *block) isPerKey(v *onnx.Value) bool {
	if rank, ok := b.g.Facts.Rank(v); !ok || rank != 2 || b.g.Facts.DataType(v) == onnx.String {
		return false
	}
	for w, n := range b.world.worlds {
		if b.g.Facts.Size(v, w, 0) != n.batch || b.g.Facts.Size(v, w, 1) != n.keys() {
			return false
		}
	}
	return true
}

// valid makes the tensor that tells which keys exist: 1 for those that do and 0 for others, or the reverse.
func (b *block) valid(v *onnx.Value, n lengths, padding func(batch, key int64) bool) *reference.Tensor {
	t := &reference.Tensor{DataType: b.g.Facts.DataType(v), Shape: []int{int(n.batch), int(n.keys())}}
	for i := range n.batch {
		for j := range n.keys() {
			x := boolToInt((padding == nil || !padding(i, j)) != b.site.KeyHides)
			if t.IsFloat() {
				t.F = append(t.F, float64(x))
			} else {
				t.I = append(t.I, x)
			}
		}
	}
	return t
}

// masks computes the values between the products that follow from masks and shapes.
func (b *block) masks(n lengths, padding func(batch, key int64) bool) (values, error) {
	env := values{}
	if b.keyValid != nil {
		env[b.keyValid] = b.valid(b.keyValid, n, padding)
	}
	if b.sink != nil {
		env[b.site.Sink] = b.sink
	}
	if err := b.straighten(n, env); err != nil {
		return nil, err
	}
	var sides []*onnx.Value
	for _, v := range b.Sides {
		isBias := slices.Contains(b.biases, v)
		if v == b.site.QueryScale {
			one, ok := b.constant(v, n, 1)
			if !ok {
				return nil, b.unknown("the shape of the scale")
			}
			env[v] = one
			continue
		}
		if v.Constant() != nil && !isBias {
			continue
		}
		if isBias || b.otherData && b.g.IsData(v) { // masks unknown keys: none, for now
			shape, ok := b.world.shape(v, n)
			if !ok {
				return nil, b.unknown("the shape of the mask")
			}
			env[v] = b.unmasked(v, shape)
			continue
		}
		if b.perHead(v) == nil {
			sides = append(sides, v)
		}
	}
	out, err := b.world.run(n, env, sides...)
	if err != nil {
		return nil, err
	}
	for i, v := range sides {
		env[v] = out[i]
	}
	return env, nil
}

// straighten makes detours add nothing.
func (b *block) straighten(n lengths, env values) error {
	for _, d := range b.detours {
		for _, v := range d.sides() {
			if !b.straight {
				return nil
			}
			zero, ok := b.constant(v, n, 0)
			if !ok {
				return b.unknown("the shape of the mask")
			}
			env[v] = zero
		}
	}
	return nil
}

// open returns the values with every mask replaced by one that hides nothing.
func (b *block) open(n lengths, env values) (values, error) {
	opened := maps.Clone(env)
	for _, v := range b.masksOf() {
		shape, ok := b.world.shape(v, n)
		if !ok {
			return nil, b.unknown("the shape of the mask")
		}
		opened[v] = b.unmasked(v, shape)
	}
	return opened, nil
}
func (b *block) unmasked(v *onnx.Value, shape []int) *reference.Tensor {
	t := &reference.Tensor{DataType: b.g.Facts.DataType(v), Shape: shape}
	n := match.Elements(shape)
	if t.IsFloat() {
		t.F = make([]float64, n)
	} else {
		t.I = slices.Repeat([]int64{boolToInt(!b.hides)}, n)
	}
	return t
}

// example is one choice of lengths and of padded keys.
type example struct {
	lengths
	padding func(batch, key int64) bool
	weights []float64 // the region's weights for equal scores
	masks   values    // the masks that hypothesis computed, or nil
}

// paddings returns kinds of padding: none, and two with a different kind in each of three rows.
func paddings(n lengths) []func(batch, key int64) bool {
	l := n.keys()
	left, right := l/3+1, l-l/4-1
	return []func(batch, key int64) bool{
		nil,
		func(b, j int64) bool { // no padding, left, right
			return b == 1 && j < left || b == 2 && j >= right
		},
		func(b, j int64) bool { // holes, all, left and right
			return b == 0 && j%3 == 1 || b == 1 || b == 2 && (j < left || j >= right)
		},
	}
}

// examples returns the lengths and paddings at which a hypothesis about the mask is tried.
func (b *block) examples() []example {
	var list []example
	add := func(n lengths, all bool) {
		n = b.world.at(n)
		if slices.ContainsFunc(list, func(p example) bool { return p.lengths == n }) {
			return
		}
		for i, padding := range paddings(n) {
			if i == 0 || b.keyValid != nil && all {
				list = append(list, example{lengths: n, padding: padding})
			}
		}
	}
	for _, n := range []lengths{{3, 1, 0}, {3, 2, 0}, {3, 7, 0}, {3, 13, 0}, {3, 21, 0},
		{3, 1, 5}, {3, 7, 1}, {3, 2, 12}, {3, 13, 5}, {3, 21, 12}} {
		add(n, n.queries+n.past < 16)
	}
	return list
}

// hypothesis describes a mask.
type hypothesis struct {
	causal   bool
	window   int64
	keyValid bool
}

// sees reports whether a query sees a key.
func (h hypothesis) sees(p example, batch, i, j int64) bool {
	return (!h.causal || j <= i+p.past) && (h.window == 0 || j > i+p.past-h.window) &&
		(!h.keyValid || p.padding == nil || !p.padding(batch, j))
}

// seen returns which keys queries see at few lengths, without padding.
func (b *block) seen(h hypothesis) func(batch, query, key int64) bool {
	p := example{lengths: b.few()}
	return func(batch, query, key int64) bool { return h.sees(p, batch, query, key) }
}

// readMask finds the mask that agrees with all examples, and the result for a query that sees no key.
func (b *block) readMask() *reason.Reason {
	s := b.site
	if b.otherData {
		return b.readBias()
	}
	h, err := b.hypothesis()
	for other := (*maskError)(nil); errors.As(err, &other) && b.isAdded(other.mask); {
		b.biases = append(b.biases, other.mask) // its numbers are added as they are; the rest may be a mask
		h, err = b.hypothesis()
	}
	if err != nil {
		b.unproved = err
		why := b.readBias()
		if r := reason.As(err); why != nil && r != nil { // its behavior at such lengths is unknown
			return r
		}
		return why
	}
	s.Causal, s.Window = h.causal, h.window
	if h.keyValid {
		s.KeyValid = b.keyValid
	}
	if len(b.biases) > 0 {
		if why := b.addsToScores(b.biases, b.seen(h)); why != nil {
			return why
		}
		s.Bias = b.biases
	}
	why := b.readEmpty(h)
	other := s.Window > 0 || s.Empty == mean
	if why == nil && (b.asBias == AllMasks && !b.guarded() || b.asBias == OtherMasks && other) && b.readBias() == nil {
		s.Causal, s.Window, s.KeyValid = false, 0, nil
	}
	return why
}

// hypothesis finds which keys queries see, by position and padding. The error tells why no hypothesis fits, or why it
// is not proven for all lengths.
func (b *block) hypothesis() (hypothesis, error) {
	h := hypothesis{keyValid: b.keyValid != nil}
	examples := b.examples()
	for i, p := range examples {
		if b.tooMany(p.lengths) {
			return h, b.tooManyScores()
		}
		env, err := b.masks(p.lengths, p.padding)
		var weights []float64
		if err == nil {
			weights, err = b.weigh(p.lengths, make([]float64, b.rowsOf(p.lengths)*int(p.keys())), env)
		}
		if err != nil {
			if b.bounded && i > 0 { // a table is too short
				continue
			}
			return h, fmt.Errorf("the mask cannot be computed: %w", err)
		}
		if p.padding == nil && p.keys() > 1 {
			b.suppose(&h, p, weights)
		}
		examples[i].weights, examples[i].masks = weights, env
	}
	seen := newWitnesses(b.masksOf())
	if err := seen.gather(b, h, examples); err != nil {
		return h, err
	}
	if err := b.supposeFar(&h, seen); err != nil {
		return h, err
	}
	for _, p := range examples {
		if p.weights == nil {
			continue
		}
		if err := b.holds(h, p); err != nil {
			return h, err
		}
	}
	if err := b.prove(h, seen); err != nil {
		return h, err
	}
	return h, b.pointwise(seen)
}

// guarded reports whether rows of the result are replaced under a mask that is not the scores' mask.
func (b *block) guarded() bool {
	for v := b.site.Y; v != b.sum.Outputs[0]; v = b.handed(b.g, v.Producer) {
		if v.Producer.Is("Where") {
			return true
		}
	}
	return false
}

// isGiven reports whether the value is an input of the model. Such a mask is taken to hold 0 and 1; a computed one may
// hold other numbers.
func isGiven(v *onnx.Value) bool {
	_, declared := v.Type() // the inputs of functions have no type
	return v.Producer == nil && v.IsInput && declared
}

// suppose reads a hypothesis from the first query and from the last one, which sees no later key.
func (b *block) suppose(h *hypothesis, p example, weights []float64) {
	keys, queries := p.keys(), p.queries
	first, last := weights[:keys], weights[(queries-1)*keys:queries*keys]
	if queries > 1 && first[keys-1] == 0 {
		h.causal = true
	}
	n := int64(0)
	for n < keys && last[keys-1-n] > 0 {
		n++
	}
	if n < keys && n > 0 {
		h.window = n
	}
}

// holds returns an error unless the weights of an example agree with a hypothesis.
func (b *block) holds(h hypothesis, p example) error {
	keys := p.keys()
	for row := range b.rowsOf(p.lengths) {
		batch, i := int64(row/(b.heads*int(p.queries))), int64(row)%p.queries
		w := p.weights[int64(row)*keys:][:keys]
		some := false
		for j := range keys {
			some = some || h.sees(p, batch, i, j)
		}
		if !some {
			continue
		}
		greatest := slices.Max(w)
		for j := range keys {
			want := 0.0
			if h.sees(p, batch, i, j) {
				want = greatest
			}
			if !(math.Abs(w[j]-want) <= 1e-6*greatest) {
				return fmt.Errorf("query %d, key %d of %d", i, j, keys)
			}
		}
	}
	return nil
}
