package spellings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// latents names the kind of block whose keys and values are linear maps of a latent for each token (DeepSeek's MLA),
// with a cache that patching changes to latents.
const latents = "attention to latents"

// latentBlock is such a block as written.
type latentBlock struct {
	attention
	nope, rotated, values, latent int
	batch, queries, past          dim
}

// writeLatent writes it with a cache of keys and values by heads, or of latents and the part that all heads share.
func writeLatent(w *writer) []*onnx.Value {
	w.alone, w.square, w.symbol, w.place = true, false, true, mainGraph
	if w.typ == onnx.Float16 {
		w.typ = onnx.Float
	}
	l := &latentBlock{nope: choose(w, 2, 4, 6), rotated: choose(w, 2, 4), values: choose(w, 2, 3, 5),
		latent: choose(w, 3, 5, 7), batch: dim{"batch", 2}, queries: dim{"queries", 5}, past: dim{"past", 3}}
	l.attention = attention{writer: w, heads: choose(w, 2, 4), width: l.nope + l.rotated,
		scale: choose(w, 0.5, 0.25), order: usualOrder}
	l.keyHeads = l.heads
	in := w.enter(w.input("q", w.typ, l.dims(l.heads, l.queries, l.width)),
		w.input("c", w.typ, []dim{l.batch, l.queries, {"", l.latent}}),
		w.input("k_pe", w.typ, l.dims(1, l.queries, l.rotated)))
	q, c, pe := in[0], in[1], in[2]
	var k, v *onnx.Value
	var presents []*onnx.Value
	if w.chance(2) {
		k, v = l.heads4(c, pe)
		presents = []*onnx.Value{l.join("past_k", l.heads, l.width, k), l.join("past_v", l.heads, l.values, v)}
		k, v = presents[0], presents[1]
		if w.wrong("past keys in other places") {
			k = l.op("Gather", k, l.ints(l.turned()...), onnx.IntAttr("axis", 1))
		}
	} else {
		presents = []*onnx.Value{l.join("past_c", 1, l.latent, l.op("Unsqueeze", c, l.ints(1))),
			l.join("past_pe", 1, l.rotated, pe)}
		all := presents[0]
		if w.wrong("an activation behind the cache") {
			all = l.op("Sigmoid", all)
		}
		if w.chance(2) {
			all = l.op("Squeeze", all, l.ints(1))
		} else {
			all = l.op("Reshape", all, l.ints(0, -1, int64(l.latent)))
		}
		k, v = l.heads4(all, presents[1])
	}
	mask := w.input("mask", onnx.Int64, []dim{l.batch, {"past + queries", l.past.size + l.queries.size}})
	y := l.op("MatMul", l.weights(l.scores(q, k), l.allowed(q, k, mask)), v)
	if w.chance(2) {
		y = l.op("Transpose", y, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	}
	return append([]*onnx.Value{y}, presents...)
}

func (l *latentBlock) dims(heads int, tokens dim, width int) []dim {
	return []dim{l.batch, {"", heads}, tokens, {"", width}}
}

// join appends new rows to a past, an input of the model without detours.
func (l *latentBlock) join(name string, heads, width int, fresh *onnx.Value) *onnx.Value {
	past := l.input(name, l.typ, l.dims(heads, l.past, width))
	l.bare = append(l.bare, past)
	list := []any{past, fresh, onnx.IntAttr("axis", choose[int64](l.writer, 2, -2))}
	if l.wrong("the past after the new tokens") {
		list[0], list[1] = fresh, past
	}
	return l.op("Concat", list...)
}

// turned lists the heads rotated by one.
func (l *latentBlock) turned() []int64 {
	list := make([]int64, l.heads)
	for h := range list {
		list[h] = int64((h + 1) % l.heads)
	}
	return list
}

// heads4 computes keys and values [batch, heads, tokens, channels] from latents [batch, tokens, channels] and the part
// that all heads share.
func (l *latentBlock) heads4(c, pe *onnx.Value) (k, v *onnx.Value) {
	outputs := l.heads * (l.nope + l.values)
	rows := l.mapped(c, outputs)
	if l.wrong("an activation of keys") {
		rows = l.op("Tanh", rows)
	}
	rows = l.op("Reshape", rows, l.ints(0, 0, int64(l.heads), int64(l.nope+l.values)))
	byRows := l.chance(2) // split before heads move to the front
	turn := func(x *onnx.Value) *onnx.Value {
		return l.op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	}
	if !byRows {
		rows = turn(rows)
	}
	sizes := []int{l.nope, l.values}
	valuesFirst := l.wrong("values before keys")
	if valuesFirst {
		sizes = []int{l.values, l.nope}
	}
	parts := channels{l.writer, 4, l.nope + l.values}.cut(rows, sizes...)
	if valuesFirst {
		slices.Reverse(parts)
	}
	if byRows {
		parts[0], parts[1] = turn(parts[0]), turn(parts[1])
	}
	nope, v := parts[0], parts[1]
	if l.wrong("keys of other heads") {
		nope = l.op("Gather", nope, l.ints(l.turned()...), onnx.IntAttr("axis", 1))
	}
	if l.wrong("values of other heads") {
		v = l.op("Gather", v, l.ints(l.turned()...), onnx.IntAttr("axis", 1))
	}
	shared := l.everyHead(pe)
	if l.wrong("a factor of each head") {
		factors := make([]float64, l.heads)
		for h := range factors {
			factors[h] = float64(h + 1)
		}
		shared = l.op("Mul", shared, l.floats(l.typ, []int{1, l.heads, 1, 1}, factors))
	}
	if l.wrong("shared channels first") {
		nope, shared = shared, nope
	}
	return l.op("Concat", nope, shared, onnx.IntAttr("axis", choose[int64](l.writer, 3, -1))), v
}

// mapped multiplies by the weights, which are stored in either order.
func (l *latentBlock) mapped(c *onnx.Value, outputs int) *onnx.Value {
	list := make([]float64, l.latent*outputs)
	for i := range list {
		list[i] = l.r.NormFloat64() / 2
	}
	if !l.chance(3) {
		return l.biased(l.op("MatMul", c, l.floats(l.typ, []int{l.latent, outputs}, list)), outputs)
	}
	w := l.op("Transpose", l.floats(l.typ, []int{outputs, l.latent}, list), onnx.IntsAttr("perm", []int64{1, 0}))
	return l.biased(l.op("MatMul", c, w), outputs)
}

func (l *latentBlock) biased(rows *onnx.Value, outputs int) *onnx.Value {
	if !l.wrong("a bias of the map") {
		return rows
	}
	list := make([]float64, outputs)
	for i := range list {
		list[i] = float64(i%5) - 2
	}
	return l.op("Add", rows, l.floats(l.typ, []int{outputs}, list))
}

// everyHead repeats the shared part for all heads.
func (l *latentBlock) everyHead(pe *onnx.Value) *onnx.Value {
	h := int64(l.heads)
	switch l.r.IntN(3) {
	case 0:
		return l.op("Tile", pe, l.ints(1, h, 1, 1))
	case 1:
		return l.op("Gather", pe, l.ints(make([]int64, h)...), onnx.IntAttr("axis", 1))
	}
	return l.op("Expand", pe, l.ints(1, h, 1, 1))
}

// sameTalk is Same for models with caches of different forms: both read the same tokens, first without a past, then
// after the past that each computed.
func sameTalk(k Kind, m, rewritten *onnx.Model) error {
	for _, exact := range []bool{true, false} {
		pasts, past := [2]map[string]*reference.Tensor{{}, {}}, 0
		for _, queries := range []int{3, 1, 2} {
			var y [2]*reference.Tensor
			var tokens map[string]*reference.Tensor
			for i, m := range []*onnx.Model{m, rewritten} {
				given := maps.Clone(pasts[i])
				for name, x := range tokens {
					if !strings.HasPrefix(name, "past") {
						given[name] = x
					}
				}
				in, err := seeded(m, 1, map[string]int{"batch": 2, "queries": queries, "past": past}, given)
				if err != nil {
					return err
				}
				tokens = in
				out, err := run(m, reference.Options{Exact: exact}, in)
				if err != nil {
					return fmt.Errorf("%d tokens behind %d: %w", queries, past, err)
				}
				y[i], pasts[i] = out[m.Graph.Outputs[0].Name], map[string]*reference.Tensor{}
				presents := m.Graph.Outputs[1:]
				for _, v := range m.Graph.Inputs {
					if strings.HasPrefix(v.Name, "past") {
						pasts[i][v.Name], presents = out[presents[0].Name], presents[1:]
					}
				}
			}
			past += queries
			d, scale := distance(y[0].F, y[1].F), magnitudeOf(y[0].F)
			if allowed := tolerance(k, y[0].DataType, exact, scale); d > allowed {
				return fmt.Errorf("%d tokens of %d differ by %.3g, their greatest magnitude being %.3g and %.3g "+
					"allowed (exact %v)", queries, past, d, scale, allowed, exact)
			}
		}
	}
	return nil
}
