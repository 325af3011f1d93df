package blocks

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Latents names the kind of block whose keys and values are linear maps of a latent for each token (DeepSeek's MLA),
// with a cache that patching changes to latents.
const Latents = "attention to latents"

// latentBlock is such a block as written.
type latentBlock struct {
	attention
	nope, rotated, values, latent int
	batch, queries, past          writer.Dim
}

// WriteLatent writes it with a cache of keys and values by heads, or of latents and the part that all heads share.
func WriteLatent(w *writer.Writer) []*onnx.Value {
	w.Alone, w.Square, w.Symbol, w.Place = true, false, true, writer.MainGraph
	if w.Type == onnx.Float16 {
		w.Type = onnx.Float
	}
	l := &latentBlock{nope: writer.Choose(w, 2, 4, 6), rotated: writer.Choose(w, 2, 4),
		values: writer.Choose(w, 2, 3, 5),
		latent: writer.Choose(w, 3, 5, 7), batch: writer.Dim{Name: "batch",
			Size: 2}, queries: writer.Dim{Name: "queries", Size: 5}, past: writer.Dim{Name: "past", Size: 3}}
	l.attention = attention{Writer: w, heads: writer.Choose(w, 2, 4), width: l.nope + l.rotated,
		scale: writer.Choose(w, 0.5, 0.25), order: usualOrder}
	l.keyHeads = l.heads
	in := w.Enter(w.Input("q", w.Type, l.dims(l.heads, l.queries, l.width)),
		w.Input("c", w.Type, []writer.Dim{l.batch, l.queries, {Name: "", Size: l.latent}}),
		w.Input("k_pe", w.Type, l.dims(1, l.queries, l.rotated)))
	q, c, pe := in[0], in[1], in[2]
	var k, v *onnx.Value
	var presents []*onnx.Value
	if w.Chance(2) {
		k, v = l.heads4(c, pe)
		presents = []*onnx.Value{l.join("past_k", l.heads, l.width, k), l.join("past_v", l.heads, l.values, v)}
		k, v = presents[0], presents[1]
		if w.Wrong("past keys in other places") {
			k = l.Op("Gather", k, l.Ints(l.turned()...), onnx.IntAttr("axis", 1))
		}
	} else {
		presents = []*onnx.Value{l.join("past_c", 1, l.latent, l.Op("Unsqueeze", c, l.Ints(1))),
			l.join("past_pe", 1, l.rotated, pe)}
		all := presents[0]
		if w.Wrong("an activation behind the cache") {
			all = l.Op("Sigmoid", all)
		}
		if w.Chance(2) {
			all = l.Op("Squeeze", all, l.Ints(1))
		} else {
			all = l.Op("Reshape", all, l.Ints(0, -1, int64(l.latent)))
		}
		k, v = l.heads4(all, presents[1])
	}
	mask := w.Input("mask", onnx.Int64, []writer.Dim{l.batch,
		{Name: "past + queries", Size: l.past.Size + l.queries.Size}})
	y := l.Op("MatMul", l.weights(l.scores(q, k), l.allowed(q, k, mask)), v)
	if w.Chance(2) {
		y = l.Op("Transpose", y, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	}
	return append([]*onnx.Value{y}, presents...)
}

func (l *latentBlock) dims(heads int, tokens writer.Dim, width int) []writer.Dim {
	return []writer.Dim{l.batch, {Name: "", Size: heads}, tokens, {Name: "", Size: width}}
}

// join appends new rows to a past, an input of the model without detours.
func (l *latentBlock) join(name string, heads, width int, fresh *onnx.Value) *onnx.Value {
	past := l.Input(name, l.Type, l.dims(heads, l.past, width))
	l.Bare = append(l.Bare, past)
	list := []any{past, fresh, onnx.IntAttr("axis", writer.Choose[int64](l.Writer, 2, -2))}
	if l.Wrong("the past after the new tokens") {
		list[0], list[1] = fresh, past
	}
	return l.Op("Concat", list...)
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
	if l.Wrong("an activation of keys") {
		rows = l.Op("Tanh", rows)
	}
	rows = l.Op("Reshape", rows, l.Ints(0, 0, int64(l.heads), int64(l.nope+l.values)))
	byRows := l.Chance(2) // split before heads move to the front
	turn := func(x *onnx.Value) *onnx.Value {
		return l.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	}
	if !byRows {
		rows = turn(rows)
	}
	sizes := []int{l.nope, l.values}
	valuesFirst := l.Wrong("values before keys")
	if valuesFirst {
		sizes = []int{l.values, l.nope}
	}
	parts := writer.Channels{Writer: l.Writer, Rank: 4, Size: l.nope + l.values}.Cut(rows, sizes...)
	if valuesFirst {
		slices.Reverse(parts)
	}
	if byRows {
		parts[0], parts[1] = turn(parts[0]), turn(parts[1])
	}
	nope, v := parts[0], parts[1]
	if l.Wrong("keys of other heads") {
		nope = l.Op("Gather", nope, l.Ints(l.turned()...), onnx.IntAttr("axis", 1))
	}
	if l.Wrong("values of other heads") {
		v = l.Op("Gather", v, l.Ints(l.turned()...), onnx.IntAttr("axis", 1))
	}
	shared := l.everyHead(pe)
	if l.Wrong("a factor of each head") {
		factors := make([]float64, l.heads)
		for h := range factors {
			factors[h] = float64(h + 1)
		}
		shared = l.Op("Mul", shared, l.Floats(l.Type, []int{1, l.heads, 1, 1}, factors))
	}
	if l.Wrong("shared channels first") {
		nope, shared = shared, nope
	}
	return l.Op("Concat", nope, shared, onnx.IntAttr("axis", writer.Choose[int64](l.Writer, 3, -1))), v
}

// mapped multiplies by the weights, which are stored in either order.
func (l *latentBlock) mapped(c *onnx.Value, outputs int) *onnx.Value {
	list := make([]float64, l.latent*outputs)
	for i := range list {
		list[i] = l.Rand.NormFloat64() / 2
	}
	if !l.Chance(3) {
		return l.biased(l.Op("MatMul", c, l.Floats(l.Type, []int{l.latent, outputs}, list)), outputs)
	}
	w := l.Op("Transpose", l.Floats(l.Type, []int{outputs, l.latent}, list), onnx.IntsAttr("perm", []int64{1, 0}))
	return l.biased(l.Op("MatMul", c, w), outputs)
}

func (l *latentBlock) biased(rows *onnx.Value, outputs int) *onnx.Value {
	if !l.Wrong("a bias of the map") {
		return rows
	}
	list := make([]float64, outputs)
	for i := range list {
		list[i] = float64(i%5) - 2
	}
	return l.Op("Add", rows, l.Floats(l.Type, []int{outputs}, list))
}

// everyHead repeats the shared part for all heads.
func (l *latentBlock) everyHead(pe *onnx.Value) *onnx.Value {
	h := int64(l.heads)
	switch l.Rand.IntN(3) {
	case 0:
		return l.Op("Tile", pe, l.Ints(1, h, 1, 1))
	case 1:
		return l.Op("Gather", pe, l.Ints(make([]int64, h)...), onnx.IntAttr("axis", 1))
	}
	return l.Op("Expand", pe, l.Ints(1, h, 1, 1))
}
