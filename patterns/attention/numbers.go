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

// What nodes do to lengths may show only beyond the numbers that they compute with, such as the size of a window. Where
// lengths beyond a number cost too much to be tried, smaller numbers are put in its place.

// The greatest number for which lengths beyond it are tried, and the greatest that is taken for a length at all.
const (
	maxProbed = 1 << 12
	maxLength = 1 << 24
)

// alwaysSeen is the greatest number that the usual lengths are beyond of.
const alwaysSeen = 18

// number is a constant that lengths or positions are computed with.
type number struct {
	value *onnx.Value
	size  int64 // its magnitude
}

// smaller are numbers to put in the place of a greater one.
var smaller = []int64{4, 7}

// instead is what stands for the number where it is another one.
func (c number) instead(size int64) values {
	t, err := reference.FromONNX(c.value.Constant())
	if err != nil {
		return nil
	}
	other := &reference.Tensor{DataType: t.DataType, Shape: t.Shape}
	for _, x := range t.I {
		other.I = append(other.I, int64(math.Copysign(float64(size), float64(x))))
	}
	for _, x := range t.F {
		other.F = append(other.F, math.Copysign(float64(size), x))
	}
	return values{c.value: other}
}

// sizeOf returns the magnitude of a constant that may be a length, 0 for others.
func sizeOf(c *onnx.Tensor) int64 {
	if c.Len() != 1 {
		return 0
	}
	t, err := reference.FromONNX(c)
	if err != nil {
		return 0
	}
	x := 0.0
	if len(t.I) == 1 {
		x = math.Abs(float64(t.I[0]))
	} else if len(t.F) == 1 {
		x = math.Abs(t.F[0])
	}
	if x < 2 || x != math.Trunc(x) || x > maxLength {
		return 0
	}
	return int64(x)
}

// beyond returns lengths beyond a number; ok is false where they cost too much.
func (b *block) beyond(size int64) (n lengths, ok bool) {
	n = b.lab.at(lengths{1, 2, size + 3})
	if n.past == 0 {
		n = b.lab.at(lengths{1, size + 3, 0})
	}
	return n, size <= maxProbed && !b.tooMany(n)
}

// findNumbers finds the numbers beyond the usual lengths that values are computed with, where these are no data, and
// the tables. Computations end at the values of stop.
func (b *block) findNumbers(stop values, from ...*onnx.Value) (numbers []number, tables []*onnx.Value) {
	d := denseValues(b.g)
	seen := map[*onnx.Value]bool{}
	var visit func(v *onnx.Value)
	visit = func(v *onnx.Value) {
		if v == nil || seen[v] || stop[v] != nil {
			return
		}
		seen[v] = true
		n := v.Producer
		if c := v.Constant(); c != nil {
			if square(c) {
				tables = append(tables, v)
			}
			return
		}
		if n == nil || n.Graph != b.g.Graph || n.Is("Shape") {
			return
		}
		for i, in := range b.g.Operands(n) {
			visit(in)
			c := written(in)
			if c == nil || !b.meetsLengths(n, i, d) {
				continue
			}
			size := sizeOf(c.Constant())
			if size > alwaysSeen && !slices.ContainsFunc(numbers, func(o number) bool { return o.value == c }) {
				numbers = append(numbers, number{c, size})
			}
		}
	}
	for _, v := range from {
		visit(v)
	}
	return numbers, tables
}

// square reports whether a constant has a number for each query and key.
func square(c *onnx.Tensor) bool {
	rank := len(c.Dims)
	return rank >= 2 && c.Dims[rank-1] > alwaysSeen && c.Dims[rank-2] == c.Dims[rank-1] &&
		c.Len() == c.Dims[rank-1]*c.Dims[rank-1]
}

// written returns the constant that a value is, whatever its shape and type; nil for none.
func written(v *onnx.Value) *onnx.Value {
	for range maxChain {
		if v.Constant() != nil {
			return v
		}
		n := v.Producer
		if n == nil || !slices.Contains([]string{"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape"}, n.OpType) {
			return nil
		}
		v = n.Input(0)
	}
	return nil
}

// meetsLengths reports whether an input of a node stands beside lengths or positions, and not, say, for the width of a
// head, or for what is added to the scores of hidden keys.
func (b *block) meetsLengths(n *onnx.Node, input int, d dense) bool {
	switch n.OpType {
	case "Slice", "Range", "Trilu", "TopK":
		return input > 0
	case "Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Clip", "Pow", "Less", "LessOrEqual", "Greater",
		"GreaterOrEqual", "Equal":
	default:
		return false
	}
	env := values{}
	at := b.lab.at(lengths{1, 9, 12})
	if b.keyValid != nil {
		env[b.keyValid] = b.valid(b.keyValid, at, nil)
	}
	for i, v := range b.g.Operands(n) {
		if i == input || d[v] || v.Constant() != nil {
			continue
		}
		out, err := b.lab.run(at, env, v)
		if err != nil {
			continue
		}
		if slices.ContainsFunc(out[0].F, func(x float64) bool { return math.Abs(x) >= 2 && math.Abs(x) < 1e4 }) ||
			slices.ContainsFunc(out[0].I, func(x int64) bool { return x >= 2 || x <= -2 }) {
			return true
		}
	}
	return false
}

// supposeFar reads a window whose size follows from a number that no lengths are beyond of.
func (b *block) supposeFar(h *hypothesis, c number) {
	defer func() { b.replaced = nil }()
	n := b.lab.at(lengths{1, 2, 19})
	if n.past == 0 {
		n = b.lab.at(lengths{1, 21, 0})
	}
	keys := n.keys()
	var more []int64 // of the window than of the number
	for _, size := range smaller {
		b.replaced = c.instead(size)
		env, err := b.masks(n, nil)
		if err != nil {
			return
		}
		weights, err := b.weigh(n, make([]float64, b.rowsOf(n)*int(keys)), env)
		if err != nil {
			return
		}
		var other hypothesis
		b.suppose(&other, example{lengths: n}, weights)
		if other.window == 0 {
			return
		}
		more = append(more, other.window-size)
	}
	if more[0] == more[1] {
		h.window, b.windowBy = c.size+more[0], c.value
	}
}

// confirm compares the whole block with the op, on random queries, keys and values: at more lengths, beyond numbers,
// and with smaller ones in their place. What cannot be computed says nothing.
func (b *block) confirm() bool {
	s := b.site
	if n := b.lab.at(lengths{1, 13, 5}); !b.costly(n) && !b.agrees(n, s.Window) {
		return false
	}
	operands := values{}
	for _, v := range []*onnx.Value{s.Q, s.K, s.V, s.PastKey, s.PastValue, b.keyValid} {
		if v != nil {
			operands[v] = &reference.Tensor{}
		}
	}
	numbers, _ := b.findNumbers(operands, s.Y)
	if b.short && len(numbers) > 0 { // they may be beside the lengths that there are
		return false
	}
	for _, c := range numbers {
		if n, ok := b.beyond(c.size); ok && !b.costly(n) {
			if !b.agrees(n, s.Window) {
				return false
			}
			continue
		}
		n := b.lab.at(lengths{1, 9, 12})
		for _, size := range smaller {
			window := s.Window
			if window > 0 && c.value == b.windowBy {
				window += size - c.size
			}
			b.replaced = c.instead(size)
			same := b.agrees(n, window)
			if b.replaced = nil; !same {
				return false
			}
		}
	}
	return b.masksGiven || !slices.ContainsFunc(b.tables, func(v *onnx.Value) bool { return !b.tableFits(v) })
}

// maxWhole bounds the products of one run of a whole block.
const maxWhole = 1 << 24

func (b *block) costly(n lengths) bool {
	return int64(b.rowsOf(n))*n.keys() > maxWhole/max(b.site.Width, b.site.ValueWidth, 1)
}

// table returns the numbers of a square constant.
func table(v *onnx.Value) (at func(query, key int64) float64, size int64) {
	t, err := reference.FromONNX(v.Constant())
	if err != nil {
		return nil, 0
	}
	size = int64(t.Shape[len(t.Shape)-1])
	return func(query, key int64) float64 {
		if t.F != nil {
			return t.F[query*size+key]
		}
		return float64(t.I[query*size+key])
	}, size
}

// windowOf returns how many keys the last query of a table sees, as it sees itself; 0 for all.
func windowOf(v *onnx.Value) int64 {
	at, size := table(v)
	n := int64(0)
	for n < size && at(size-1, size-1-n) == at(size-1, size-1) {
		n++
	}
	return n % max(size, 1)
}

// tableFits reports whether a table has one number for keys that queries see by their positions, and another one for
// those that they do not.
func (b *block) tableFits(v *onnx.Value) bool {
	at, size := table(v)
	h := hypothesis{causal: b.site.Causal, window: b.site.Window}
	found := map[bool]float64{}
	for i := range size {
		for j := range size {
			sees, x := h.sees(example{}, 0, i, j), at(i, j)
			if want, ok := found[sees]; ok && x != want {
				return false
			}
			found[sees] = x
		}
	}
	return true
}

// agrees reports whether the block computes what the op does at these lengths.
func (b *block) agrees(n lengths, window int64) bool {
	s := b.site
	env := b.withoutMask(n, maps.Clone(b.replaced))
	if b.sink != nil {
		env[s.Sink] = b.sink
	}
	made := values{} // tensors that the op is given
	for i, v := range slices.Concat(s.Bias, []*onnx.Value{s.Choice}) {
		if v == nil {
			continue
		}
		out, err := b.lab.run(n, env, v)
		if err != nil {
			shape, ok := b.lab.shape(v, n)
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
	out, err := b.lab.run(n, env, s.Y)
	if err != nil {
		return true
	}
	p := b.formula(n, dots(q, k, s.HeadOrder), made, window)
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
func (b *block) formula(n lengths, products []float64, made values, window int64) []float64 {
	s := b.site
	keys, queries := int(n.keys()), int(n.queries)
	h, at := hypothesis{causal: s.Causal, window: window}, example{lengths: n}
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
