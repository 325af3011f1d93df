package attention

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/formula"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// The orders of query heads that share a key head.
const (
	blocked = "blocked"
	cyclic  = "cyclic"
)

// operand is a value that may be the op's queries, keys or values, before the nodes that repeat or move it.
type operand struct {
	value *onnx.Value
	axes  Axes
	heads int
	width int
	cache *cache
}

// cache is a Concat that appends the operand to past.
type cache struct{ past, present *onnx.Value }

// maxChain bounds the nodes between an operand and the product.
const maxChain = 24

// operandAxes are the axes that operands may have, the best ones first: the op's axes, rows of all heads, and others.
var operandAxes = [][]Axes{
	{byHeads, byRows},
	{"b s nh"},
	{"s b n h", "s b nh", "s bn h", "b sn h", "b ns h", "bn s h", "n s h", "s n h", "s nh"},
}

// turnedAxes are axes of keys whose channels come before their rows, as products read them. If an exporter merged two
// transpositions into one, no value has the rows first.
var turnedAxes = []Axes{"b n h s", "bn h s"}

// operands follows a value back over nodes that move or repeat its elements or multiply them with a number. It lists
// the candidates for the op's operand; within each kind of axes, the farthest comes first. heads are the numbers of
// heads that may share a dimension with their channels.
func (b *block) operands(v *onnx.Value, heads []int, length func(lengths) int64) []operand {
	lists := make([][]operand, len(operandAxes))
	var turned []operand
	for _, a := range turnedAxes {
		turned = append(turned, b.as(v, a, nil, length, nil)...)
	}
	var c *cache
	narrowest := b.g.Facts.DataType(v)
	for range maxChain {
		kinds, t := operandAxes, b.g.Facts.DataType(v)
		if match.Widens(t, narrowest) {
			narrowest = t
		} else if match.Widens(narrowest, t) {
			kinds = nil // numbers that are rounded before the product, such as queries rotated in float32
		}
		for i, kind := range kinds {
			var list []operand
			for _, a := range kind {
				list = append(list, b.as(v, a, heads, length, c)...)
			}
			lists[i] = append(list, lists[i]...)
		}
		n := v.Producer
		if n == nil || n.Graph != b.g.Graph || !onnx.IsStandardDomain(n.Domain) {
			break
		}
		if n.Is("Concat") && c == nil && !b.joined && b.appends(n) {
			c, v = &cache{n.Inputs[0], v}, n.Inputs[1]
			length = func(n lengths) int64 { return n.queries }
			continue
		}
		if v = movedFrom(b.g, n); v == nil {
			break
		}
	}
	return append(slices.Concat(lists...), turned...)
}

// movedFrom returns the only data value whose elements the node passes on: moved, repeated, picked, or multiplied with
// a number. It returns nil for other nodes.
func movedFrom(g *match.View, n *onnx.Node) *onnx.Value {
	at := 0
	switch n.OpType {
	case "Mul", "Div":
		if len(n.Inputs) != 2 {
			return nil
		}
		if n.Is("Mul") && !g.IsData(n.Inputs[0]) {
			at = 1
		}
		if !isUniform(g, n.Inputs[1-at]) { // by positions, say
			return nil
		}
	case "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice", "Gather", "Cast",
		"Identity", "Split":
	case "Einsum":
		if len(n.Inputs) != 1 {
			return nil
		}
	default:
		return nil
	}
	for i, v := range n.Inputs {
		if i != at && g.IsData(v) {
			return nil
		}
	}
	if moving[n.OpType] && !formula.For(g).Moves(n) { // a Slice that cuts only at some lengths, say
		return nil
	}
	return n.Input(at)
}

// isUniform reports whether all elements of a value are one number, whatever the lengths.
func isUniform(g *match.View, v *onnx.Value) bool {
	c := v.Constant()
	if c == nil {
		return formula.For(g).IsNumber(v)
	}
	if c.Len() > maxProbed {
		return false
	}
	t, err := reference.FromONNX(c)
	return err == nil && !slices.ContainsFunc(t.F, func(x float64) bool { return x != t.F[0] }) &&
		!slices.ContainsFunc(t.I, func(x int64) bool { return x != t.I[0] })
}

// appends reports whether the node appends new keys or values to those of a cache [batch, heads, length, width].
func (b *block) appends(n *onnx.Node) bool {
	out := n.OutputValue(0)
	if len(n.Inputs) != 2 || !b.g.IsData(n.Inputs[0]) || !b.g.IsData(n.Inputs[1]) {
		return false
	}
	rank, ok := b.g.Facts.Rank(out)
	axis := n.AttrInt("axis", 0)
	if !ok || rank != 4 || axis != 2 && axis != -2 {
		return false
	}
	for w, at := range b.world.worlds {
		if b.g.Facts.Size(n.Inputs[0], w, 2) != at.past || b.g.Facts.Size(n.Inputs[1], w, 2) != at.queries {
			return false
		}
	}
	return len(b.as(out, byHeads, nil, lengths.keys, nil)) > 0
}

// as reads a value as heads with these axes and the given number of rows. It returns nil if the sizes do not fit. If
// heads and channels share a dimension, it returns one operand for each number of heads.
func (b *block) as(v *onnx.Value, a Axes, heads []int, length func(lengths) int64, c *cache) (list []operand) {
	fields := a.Fields()
	if rank, ok := b.g.Facts.Rank(v); !ok || rank != len(fields) {
		return nil
	}
	rest := map[string]int64{} // sizes of dimensions without the batch and the rows
	for axis, f := range fields {
		for w, n := range b.world.worlds {
			known := int64(1)
			if strings.Contains(f, "b") {
				known *= n.batch
			}
			if strings.Contains(f, "s") {
				known *= length(n)
			}
			size := b.g.Facts.Size(v, w, axis)
			if size < 1 || known < 1 || size%known != 0 || w > 0 && size/known != rest[f] {
				return nil
			}
			rest[f] = size / known
		}
		if !strings.ContainsAny(f, "nh") && rest[f] != 1 {
			return nil
		}
	}
	if !a.Has("b") && b.world.at(lengths{2, 1, 1}).batch != 1 {
		return nil
	}
	o := operand{value: v, axes: a, heads: 1, cache: c}
	for f, d := range rest {
		switch {
		case strings.Contains(f, "nh"):
			for _, n := range heads {
				if n > 0 && d%int64(n) == 0 {
					o.heads, o.width = n, int(d)/n
					list = append(list, o)
				}
			}
			return list
		case strings.Contains(f, "n"):
			o.heads = int(d)
		case strings.Contains(f, "h"):
			o.width = int(d)
		}
	}
	return append(list, o)
}

// tensor has four dimensions: batch, heads, rows and channels.
type tensor struct {
	data  []float64
	batch int
	heads int
	rows  int
	width int
}

func (t *tensor) row(b, h, i int) []float64 {
	at := (b*t.heads+h)*t.rows + i
	return t.data[at*t.width : (at+1)*t.width]
}

// sizes returns the size of each letter of the axes.
func (t *tensor) sizes() sizes { return sizes{'b': t.batch, 'n': t.heads, 's': t.rows, 'h': t.width} }

// as returns the tensor with other axes.
func (t *tensor) as(a Axes, kind onnx.DataType) *reference.Tensor {
	return reference.NewFloats(kind, a.shape(t.sizes()), arranged(t.data, byHeads, a, t.sizes()))
}

// from sets the elements from a tensor with other axes.
func (t *tensor) from(a Axes, data []float64) *tensor {
	t.data = arranged(data, a, byHeads, t.sizes())
	return t
}

// random returns normally distributed numbers, the same for the same seed.
func random(n int, seed uint64) []float64 {
	if n > maxDrawn {
		return draw(n, seed)
	}
	v, ok := drawn.Load(seed)
	if !ok || n > len(v.([]float64)) {
		v = draw(min(2*n, maxDrawn), seed)
		drawn.Store(seed, v)
	}
	return slices.Clone(v.([]float64)[:n])
}

func draw(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 0x6d6f6a6f))
	v := make([]float64, n)
	for i := range v {
		v[i] = r.NormFloat64()
	}
	return v
}

// drawn holds the first numbers of each seed, up to maxDrawn: all blocks of a model are run on the same numbers.
var drawn sync.Map

const maxDrawn = 1 << 14

// sample replaces the operand, and the cache before it, by random elements. It returns the rows of both.
func (b *block) sample(o operand, n lengths, rows int64, seed uint64, env values) (whole *tensor) {
	kind := b.g.Facts.DataType(o.value)
	t := &tensor{batch: int(n.batch), heads: o.heads, rows: int(rows), width: o.width}
	t.data = random(t.batch*t.heads*t.rows*t.width, seed)
	env[o.value] = t.as(o.axes, kind)
	b.world.name(o.value, o.axes, rows == n.queries, o.heads, o.width)
	if o.cache == nil {
		return t
	}
	past := &tensor{batch: t.batch, heads: t.heads, rows: int(n.past), width: t.width}
	past.data = random(past.batch*past.heads*past.rows*past.width, seed+1)
	env[o.cache.past] = past.as(byHeads, kind)
	return behind(past, t)
}

// factorOf returns got / want if it is one number for all elements, within a tolerance; otherwise ok is false.
func factorOf(want, got []float64) (factor float64, ok bool) {
	if len(want) != len(got) || len(want) == 0 {
		return 0, false
	}
	greatest := 0
	for i, x := range want {
		if math.Abs(x) > math.Abs(want[greatest]) {
			greatest = i
		}
	}
	factor = got[greatest] / want[greatest]
	if factor == 0 || math.IsNaN(factor) || math.IsInf(factor, 0) {
		return 0, false
	}
	for i, x := range want {
		if !(math.Abs(got[i]-factor*x) <= 1e-6*math.Abs(got[greatest])) {
			return 0, false
		}
	}
	return factor, true
}
