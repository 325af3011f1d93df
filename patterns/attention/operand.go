package attention

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
)

// The orders of the dimensions of heads, and of the heads of queries that share one of keys.
const (
	bnsh    = "bnsh"
	bsnh    = "bsnh"
	blocked = "blocked"
	cyclic  = "cyclic"
)

// operand is a value that may be the queries, keys or values of the op, behind what repeats or moves them.
type operand struct {
	value  *onnx.Value
	layout string
	heads  int
	width  int
	cache  *cache
	merged bool // the last two dimensions, of bsnh, are one
	turned bool // the last two dimensions, of bnsh, are exchanged
}

// cache says that a Concat has put the operand behind what was there before.
type cache struct{ past, present *onnx.Value }

// maxChain bounds the nodes between an operand and the product.
const maxChain = 24

// operands follows a value back over nodes that move its elements, repeat them or multiply them with a number, and
// lists what may be the operand of the op, the farthest first; those with so many heads in one dimension come last.
func (b *block) operands(v *onnx.Value, heads int, length func(lengths) int64) []operand {
	var list, merged []operand
	var c *cache
	for range maxChain {
		list = append(list, b.asHeads(v, length, c)...)
		merged = append(merged, b.asRows(v, heads, length, c)...)
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
	slices.Reverse(list)
	slices.Reverse(merged)
	return append(list, merged...)
}

// movedFrom returns the one value whose elements the node hands on, repeated, picked or multiplied with others that are
// no data; nil for other nodes.
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
	return n.Input(at)
}

// appends reports whether the node puts new keys or values behind those of a cache: [batch, heads, length, width].
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
	for w, at := range b.lab.worlds {
		if b.g.Facts.Size(n.Inputs[0], w, 2) != at.past || b.g.Facts.Size(n.Inputs[1], w, 2) != at.queries {
			return false
		}
	}
	return len(b.asHeads(out, lengths.keys, nil)) > 0
}

// asHeads reads a value as heads of so many rows, in one layout or, where numbers leave it open, in both.
func (b *block) asHeads(v *onnx.Value, length func(lengths) int64, c *cache) []operand {
	if rank, ok := b.g.Facts.Rank(v); !ok || rank != 4 {
		return nil
	}
	width, ok := b.g.Facts.Dim(v, 3)
	if !ok || width < 1 {
		return nil
	}
	var list []operand
	for _, l := range []struct {
		name        string
		heads, rows int
	}{{bsnh, 2, 1}, {bnsh, 1, 2}} { // turned round with the rest of the chain
		heads, ok := b.g.Facts.Dim(v, l.heads)
		for w, n := range b.lab.worlds {
			ok = ok && b.g.Facts.Size(v, w, 0) == n.batch && b.g.Facts.Size(v, w, l.rows) == length(n)
		}
		if ok && heads > 0 {
			list = append(list, operand{value: v, layout: l.name, heads: int(heads), width: int(width), cache: c})
		}
	}
	return list
}

// turnedKeys reads a value as keys whose channels stand before their rows, as products take them: no value has them the
// other way round where an exporter made one transposition of two.
func (b *block) turnedKeys(v *onnx.Value) []operand {
	rank, ok := b.g.Facts.Rank(v)
	heads, known := b.g.Facts.Dim(v, 1)
	width, fixed := b.g.Facts.Dim(v, 2)
	ok = ok && rank == 4 && known && fixed && heads > 0 && width > 0
	for w, n := range b.lab.worlds {
		ok = ok && b.g.Facts.Size(v, w, 0) == n.batch && b.g.Facts.Size(v, w, 3) == n.keys()
	}
	if !ok {
		return nil
	}
	return []operand{{value: v, layout: bnsh, heads: int(heads), width: int(width), turned: true}}
}

// asRows reads a value as rows of so many heads.
func (b *block) asRows(v *onnx.Value, heads int, length func(lengths) int64, c *cache) []operand {
	if rank, ok := b.g.Facts.Rank(v); !ok || rank != 3 {
		return nil
	}
	width, ok := b.g.Facts.Dim(v, 2)
	for w, n := range b.lab.worlds {
		ok = ok && b.g.Facts.Size(v, w, 0) == n.batch && b.g.Facts.Size(v, w, 1) == length(n)
	}
	if !ok || width < 1 || width%int64(heads) != 0 {
		return nil
	}
	return []operand{{value: v, layout: bsnh, heads: heads, width: int(width) / heads, cache: c, merged: true}}
}

// tensor is one of four dimensions, batch, heads, rows and channels, in any layout.
type tensor struct {
	data    []float64
	batch   int
	heads   int
	rows    int
	width   int
	byHeads bool // bnsh
}

func (t *tensor) row(b, h, i int) []float64 {
	at := (b*t.heads+h)*t.rows + i
	if !t.byHeads {
		at = (b*t.rows+i)*t.heads + h
	}
	return t.data[at*t.width : (at+1)*t.width]
}

// turned is t with rows and channels exchanged.
func (t *tensor) turned() *tensor {
	other := &tensor{data: make([]float64, 0, len(t.data)), batch: t.batch, heads: t.heads, rows: t.width,
		width: t.rows, byHeads: true}
	for b := range t.batch {
		for h := range t.heads {
			for c := range t.width {
				for i := range t.rows {
					other.data = append(other.data, t.row(b, h, i)[c])
				}
			}
		}
	}
	return other
}

// random returns numbers like those of a normal distribution, the same for the same seed.
func random(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 0x6d6f6a6f))
	v := make([]float64, n)
	for i := range v {
		v[i] = r.NormFloat64()
	}
	return v
}

// sample puts random elements in the place of the operand, and of the cache before it; it returns the rows of both.
func (b *block) sample(o operand, n lengths, rows int64, seed uint64, env values) (whole *tensor) {
	kind := b.g.Facts.DataType(o.value)
	t := &tensor{batch: int(n.batch), heads: o.heads, rows: int(rows), width: o.width, byHeads: o.layout == bnsh}
	t.data = random(t.batch*t.heads*t.rows*t.width, seed)
	env[o.value] = t.tensor(kind)
	if o.turned {
		env[o.value] = t.turned().tensor(kind)
	}
	if o.merged {
		env[o.value].Shape = []int{t.batch, t.rows, t.heads * t.width}
	}
	if o.cache == nil {
		return t
	}
	past := &tensor{batch: t.batch, heads: t.heads, rows: int(n.past), width: t.width, byHeads: true}
	past.data = random(past.batch*past.heads*past.rows*past.width, seed+1)
	env[o.cache.past] = past.tensor(kind)
	return behind(past, t)
}

// keyHead returns the head of keys that a head of queries reads.
func keyHead(order string, h, heads, keyHeads int) int {
	if order == cyclic {
		return h % keyHeads
	}
	return h / (heads / keyHeads)
}

// factorOf returns the number that want, times it, is got; ok is false where there is none.
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
