package linear

import (
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference"
)

// maxWide bounds the nodes before a state and between it and its row.
const maxWide = 48

// wide is one token of Mamba as transformers writes it: the state is [batch, heads, value, key], and its factor is
// computed for every element of it, from a gate of each head. Mamba-1 has heads of one channel without an axis for it:
// [batch, heads, key].
type wide struct {
	*span
	add              *onnx.Node
	state, next, row *onnx.Value
	log              *onnx.Value // the logarithm of the factor, as large as the state
	heads, val, key  int
	channels         int         // decays of each head
	gate, shared     *onnx.Value // a number of each head; the same for each channel of the values
	q, k, x          part
	narrow           []*onnx.Value // operands that are smaller than a state
	made             map[*onnx.Node]bool
	sequences        int
}

// part is an operand of one token with a number of heads.
type part struct {
	*onnx.Value
	heads int
}

// WideSteps finds decode steps of Mamba whose factors are as large as the state.
func WideSteps(g *match.View, others site.Others) (sites []*site.Site, _ []*match.Miss) {
	for _, n := range g.Graph.Nodes {
		if !n.Is("Add") || others.Have(n) {
			continue
		}
		for i := range 2 {
			w := &wide{span: &span{g: g, budget: g.Budget(fused.LinearAttentionName, limits), others: others}, add: n}
			if !w.begins(n.Input(i)) {
				continue
			}
			w.budget.Begin(n)
			found := w.ends() && w.operate() && w.assign()
			if found {
				w.budget.Found()
			}
			w.budget.End()
			if !found {
				continue
			}
			if s := w.site(); s != nil {
				sites = append(sites, s)
				break
			}
		}
	}
	return sites, nil
}

// begins reads the state and its factor.
func (w *wide) begins(decayed *onnx.Value) bool {
	w.next = w.add.OutputValue(0)
	decayed = w.uncast(decayed)
	if decayed == nil || w.next == nil || decayed.Producer == nil || !decayed.Producer.Is("Mul") {
		return false
	}
	shape, ok := w.shapeIn(w.next, 0)
	if !ok || len(shape) != 3 && len(shape) != 4 || !isSingle(w.g.Facts.DataType(w.next)) {
		return false
	}
	for axis := 1; axis < len(shape); axis++ {
		if _, ok := w.g.Facts.Dim(w.next, axis); !ok {
			return false
		}
	}
	w.sequences, w.heads, w.val, w.key = shape[0], shape[1], 1, shape[len(shape)-1]
	if len(shape) == 4 {
		w.val = shape[2]
	}
	for i := range 2 {
		state, factor := decayed.Producer.Input(i), w.uncast(decayed.Producer.Input(1-i))
		if state == nil || factor == nil || factor.Producer == nil || !factor.Producer.Is("Exp") ||
			!w.g.Facts.SameShape(state, w.next) {
			continue
		}
		if log := factor.Producer.Input(0); log != nil && w.g.Facts.SameShape(log, w.next) && w.g.IsData(log) {
			w.state, w.log = state, log
			return min(w.heads, w.val, w.key) > 0
		}
	}
	return false
}

// uncast follows a value back through casts to its own type.
func (w *wide) uncast(v *onnx.Value) *onnx.Value {
	for v != nil && v.Producer != nil && v.Producer.Is("Cast") && v.Producer.Input(0) != nil &&
		w.g.Facts.DataType(v.Producer.Input(0)) == w.g.Facts.DataType(v) {
		v = v.Producer.Input(0)
	}
	return v
}

// isSingle reports whether float32 holds all numbers of a type of floats.
func isSingle(t onnx.DataType) bool { return t == onnx.Float || t.IsHalf() }

// elements returns the number of elements of a value for each sequence, or 0.
func (w *wide) elements(v *onnx.Value) int {
	shape, ok := w.shapeIn(v, 0)
	if !ok || w.sequences == 0 || match.Elements(shape)%w.sequences != 0 {
		return 0
	}
	return match.Elements(shape) / w.sequences
}

// ends finds the row behind the next state: the first value that sums it over the channels of keys.
func (w *wide) ends() bool {
	w.from = map[*onnx.Value]bool{w.next: true}
	for _, n := range w.g.Graph.Nodes[w.g.Position(w.add)+1:] {
		if !w.budget.Spend(4) || len(w.from) > maxWide {
			return false
		}
		if !slices.ContainsFunc(w.operands(n), func(v *onnx.Value) bool { return w.from[v] }) || n.Is("Shape") ||
			len(n.Outputs) != 1 || n.OutputValue(0) == nil {
			continue
		}
		v := n.OutputValue(0)
		if w.from[v] = true; w.elements(v) == w.heads*w.val {
			w.row = v
			return true
		}
	}
	return false
}

// operate follows the row and the next state back to operands that are smaller than a state.
func (w *wide) operate() bool {
	w.made = map[*onnx.Node]bool{}
	if !w.back(w.row) {
		return false
	}
	for next := w.castNext(); next != nil; next = w.castNext() {
		w.next = next
	}
	return w.back(w.next) && len(w.narrow) <= maxGiven
}

// castNext returns the next state as its readers cast it, or nil if they do not all cast it to one type, or if several
// of them are not before the row.
func (w *wide) castNext() (cast *onnx.Value) {
	if w.next.IsOutput() {
		return nil
	}
	for _, n := range w.g.Readers(w.next) {
		v := n.OutputValue(0)
		switch {
		case !n.Is("Cast") || !w.views(n) || cast != nil && w.g.Facts.DataType(cast) != w.g.Facts.DataType(v):
			return nil
		case cast == nil || w.made[cast.Producer]:
			cast = v
		case !w.made[n]:
			return nil
		}
	}
	return cast
}

func (w *wide) back(v *onnx.Value) bool {
	n := v.Producer
	switch {
	case v == w.state || v.Constant() != nil || !w.g.IsData(v):
		return true
	case !w.from[v] && w.elements(v) < w.heads*w.val*w.key:
		if v = w.viewed(v); !slices.Contains(w.narrow, v) {
			w.narrow = append(w.narrow, v)
		}
		return true
	case n == nil || n.Graph != w.g.Graph || w.others.Have(n) || len(w.made) > maxWide || len(n.Subgraphs()) > 0:
		return false
	case w.made[n]:
		return true
	}
	w.made[n] = true
	for _, in := range w.operands(n) {
		if !w.back(in) {
			return false
		}
	}
	return true
}

// views reports whether a node returns the elements of its input in their order. The op computes in float32, so casts
// of floats are looked through too.
func (w *wide) views(n *onnx.Node) bool {
	if n.Is("Cast") && n.Input(0) != nil {
		return isSingle(w.g.Facts.DataType(n.Input(0))) && isSingle(w.g.Facts.DataType(n.OutputValue(0)))
	}
	return slices.Contains([]string{"Unsqueeze", "Squeeze", "Reshape", "Identity"}, n.OpType) && n.Input(0) != nil &&
		w.elements(n.Input(0)) > 0 && w.elements(n.Input(0)) == w.elements(n.OutputValue(0))
}

// viewed follows a value back through views.
func (w *wide) viewed(v *onnx.Value) *onnx.Value {
	for n := v.Producer; n != nil && n.Graph == w.g.Graph && !w.others.Have(n) && w.views(n); n = v.Producer {
		v = n.Input(0)
	}
	return v
}

// base follows an operand through views, and through an Expand that repeats heads for all that share them.
func (w *wide) base(v *onnx.Value, width int) part {
	for range maxSteps {
		n := v.Producer
		if n == nil || n.Graph != w.g.Graph || n.Input(0) == nil || w.others.Have(n) {
			break
		}
		switch from := w.elements(n.Input(0)); {
		case w.views(n):
		case n.Is("Expand") && from < w.elements(v) && w.divides(n.Input(0), width):
		default:
			return part{v, w.elements(v) / width}
		}
		v = n.Input(0)
	}
	return part{v, w.elements(v) / width}
}

// divides reports whether a value is rows of a width for a number of heads that all heads can share.
func (w *wide) divides(v *onnx.Value, width int) bool {
	n := w.elements(v)
	return n > 0 && n%width == 0 && w.heads%(n/width) == 0
}

// assign searches for the gate, the values, the key and the query.
func (w *wide) assign() bool {
	var rest []*onnx.Value
	for _, v := range w.narrow {
		for _, u := range append(w.before(v), v) {
			if w.gate == nil && w.elements(v) == w.heads*w.val && w.elements(u) == w.heads && w.inLog(v) {
				w.gate, w.shared = u, v
			}
		}
		if v != w.shared {
			rest = append(rest, v)
		}
	}
	if w.gate == nil || len(rest) != 3 {
		return false
	}
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		x, k, q := rest[order[0]], rest[order[1]], rest[order[2]]
		if w.elements(x) != w.heads*w.val || !w.divides(k, w.key) || !w.divides(q, w.key) {
			continue
		}
		if w.x, w.k, w.q = w.base(x, w.val), w.base(k, w.key), w.base(q, w.key); w.x.heads == w.heads && w.computes() {
			return true
		}
	}
	return false
}

// inLog reports whether the logarithm of the factor is computed from a value.
func (w *wide) inLog(v *onnx.Value) bool {
	open := []*onnx.Value{w.log}
	for at := 0; at < len(open) && at < maxWide; at++ {
		if open[at] == v {
			return true
		}
		if n := open[at].Producer; n != nil {
			open = append(open, w.operands(n)...)
		}
	}
	return false
}

// computes reports whether the nodes compute the op on random numbers.
func (w *wide) computes() bool {
	lab := probe.NewLab(w.g, 4*maxWide, w.budget)
	r := rand.New(rand.NewPCG(7, 9))
	given := probe.Values{}
	for _, v := range []*onnx.Value{w.state, w.gate, w.x.Value, w.k.Value, w.q.Value} {
		shape, ok := lab.Shape(v)
		if !ok || !w.budget.Spend(8*match.Elements(shape)) {
			return false
		}
		given[v] = reference.NewFloats(w.g.Facts.DataType(v), shape, normal(r, match.Elements(shape)))
	}
	got, err := lab.Run(given, knownSizes(lab), w.row, w.next, w.log, w.shared)
	if err != nil {
		return false
	}
	row := func(list []float64) *reference.Tensor {
		return reference.NewFloats(onnx.Float, []int{w.sequences, 1, len(list) / w.sequences}, list)
	}
	values := slices.Clone(given[w.x.Value].F)
	for i := range values {
		values[i] *= got[3].F[i]
	}
	decay := w.decays(got[2].F)
	inputs := make([]*reference.Tensor, fused.LinearAttentionDecay+1)
	inputs[fused.LinearAttentionQ], inputs[fused.LinearAttentionK] = row(given[w.q.Value].F), row(given[w.k.Value].F)
	inputs[fused.LinearAttentionV], inputs[fused.LinearAttentionDecay] = row(values), row(decay)
	inputs[fused.LinearAttentionPast] = reference.NewFloats(onnx.Float,
		[]int{w.sequences, w.heads, w.key, w.val}, turned(given[w.state].F, w.val, w.key))
	want, err := probe.Fused(w.op(), w.budget.SpendOrFail, inputs...)
	return err == nil && near(got[0].F, want[0].F) && near(turned(got[1].F, w.val, w.key), want[1].F)
}

// decays returns the decay of each head, or of each channel of its keys if these differ.
func (w *wide) decays(logs []float64) (list []float64) {
	w.channels = 1
	for i, x := range logs {
		if x != logs[i-i%w.key] {
			w.channels = w.key
		}
	}
	for i, x := range logs {
		if i/w.key%w.val == 0 && i%w.key < w.channels {
			list = append(list, x)
		}
	}
	return list
}

func (w *wide) op() fused.LinearAttention {
	return fused.LinearAttention{QHeads: int64(w.q.heads), KHeads: int64(w.k.heads), VHeads: int64(w.heads), Scale: 1}
}
