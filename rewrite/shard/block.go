package shard

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// A block is a part of the graph whose values the ranks hold in parts.
type block struct {
	ranks int64
	facts *infer.Facts
	// graph has the nodes. owner is the node that has this graph as a branch; nil for the main graph.
	graph *onnx.Graph
	owner *onnx.Node
	// held are the values that the ranks hold in parts, except constants.
	held map[*onnx.Value]Layout
	// weights are the parts of constants, by reader. A reader whose constant only rank 0 has is in once.
	weights map[onnx.Use]Layout
	once    map[onnx.Use]bool
	// taken are whole values of which a reader takes a part.
	taken map[onnx.Use]Layout
	// divided are inputs with shapes or lengths, whose elements at some places are divided on a rank.
	divided map[onnx.Use]map[int]Layout
	// refused is the first reason why a value is computed whole and then taken, unfollowed why one is gathered.
	refused, unfollowed error
	// wholes are the inputs that nodes of the block need whole.
	wholes map[onnx.Use]bool
	// holdsKey makes a single head of keys a part that all ranks hold, because it is in one value with the queries.
	holdsKey bool
	// wants are the layouts that attention needs of its inputs.
	wants map[onnx.Use]Layout
	// attrs are attributes with sizes, such as numbers of heads, of which a rank has its part.
	attrs map[*onnx.Node]map[string]Layout
	// shapes are Shape nodes of held values, whose results are multiplied to be those of the whole.
	shapes map[*onnx.Node]dimension
	// sums are the values that the ranks compute partial sums of.
	sums map[*onnx.Value]bool
	// kept are outputs of a branch that stay in parts, because they are contents of caches in another branch.
	kept map[*onnx.Value]bool
	// gathered are held values that nodes outside the block read whole, by reader.
	gathered map[onnx.Use]bool
	// rows are lookups in tables of which each rank has some rows, experts mixtures of which it has some experts.
	rows, experts map[*onnx.Node]bool

	nodes   map[*onnx.Node]bool // that compute parts
	claimed map[*onnx.Node]bool // by other blocks
	order   map[*onnx.Node]int  // of all nodes of the graph
	queue   []onnx.Use          // readers of held values
}

// dimension is the place of a divided axis in a shape of so many axes.
type dimension struct {
	at, count int
	layout    Layout
}

func newBlock(ranks int64, facts *infer.Facts) *block {
	return &block{ranks: ranks, facts: facts,
		held: map[*onnx.Value]Layout{}, weights: map[onnx.Use]Layout{}, once: map[onnx.Use]bool{},
		taken: map[onnx.Use]Layout{}, divided: map[onnx.Use]map[int]Layout{}, attrs: map[*onnx.Node]map[string]Layout{},
		shapes: map[*onnx.Node]dimension{}, sums: map[*onnx.Value]bool{}, kept: map[*onnx.Value]bool{},
		gathered: map[onnx.Use]bool{}, wants: map[onnx.Use]Layout{},
		wholes: map[onnx.Use]bool{},
		rows:   map[*onnx.Node]bool{}, experts: map[*onnx.Node]bool{}, nodes: map[*onnx.Node]bool{}}
}

// clone returns a copy to go back to.
func (b *block) clone() *block {
	c := *b
	c.held, c.weights, c.once = maps.Clone(b.held), maps.Clone(b.weights), maps.Clone(b.once)
	c.taken = maps.Clone(b.taken)
	c.divided, c.attrs, c.shapes = maps.Clone(b.divided), maps.Clone(b.attrs), maps.Clone(b.shapes)
	c.sums, c.gathered, c.nodes = maps.Clone(b.sums), maps.Clone(b.gathered), maps.Clone(b.nodes)
	c.rows, c.experts = maps.Clone(b.rows), maps.Clone(b.experts)
	c.wholes, c.queue = maps.Clone(b.wholes), slices.Clone(b.queue)
	return &c
}

// hold makes the ranks hold parts of v: its producer computes parts, and its readers read them.
func (b *block) hold(v *onnx.Value, l Layout) error {
	if old, ok := b.held[v]; ok {
		if !old.equal(l) && !(old.isWhole(b.ranks) && l.isWhole(b.ranks)) {
			return fmt.Errorf("%q is divided in two ways", v.Name)
		}
		return nil
	}
	if b.sums[v] {
		return fmt.Errorf("%q is a partial sum", v.Name)
	}
	needsAll := func(u onnx.Use) bool {
		_, taken := b.taken[u] // a part of the whole value
		return taken || b.wholes[u]
	}
	if u := slices.IndexFunc(v.Uses(), needsAll); u >= 0 {
		return fmt.Errorf("node %q needs all of %q", v.Uses()[u].Node.Label(), v.Name)
	}
	size, ok := b.facts.Dim(v, l.Axis)
	if !ok {
		return fmt.Errorf("axis %d of %q has no fixed size", l.Axis, v.Name)
	}
	if err := l.fits(size, b.ranks); err != nil {
		return fmt.Errorf("axis %d of %q: %w", l.Axis, v.Name, err)
	}
	b.held[v] = l
	switch p := v.Producer; {
	case p == nil && !isCache(v):
		return fmt.Errorf("%q is an input of the graph", v.Name)
	case p != nil && !b.nodes[p]:
		if err := b.visit(p); err != nil {
			return err
		}
	}
	b.queue = append(b.queue, v.Uses()...)
	return nil
}

// isCache reports whether v is an input with the past of attention or of a state, which has heads or channels. The past
// may be cast to another type.
func isCache(v *onnx.Value) bool { return v.IsInput && leadsToPast(v, casts) }

func leadsToPast(v *onnx.Value, depth int) bool {
	return slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool {
		switch {
		case u.Node.Domain == fused.Domain:
			return slices.Contains(pasts[u.Node.OpType], u.Index)
		case u.Node.Is("Cast"):
			return depth > 0 && leadsToPast(u.Node.Outputs[0], depth-1)
		}
		return u.Node.Is("Concat")
	})
}

// pasts are the inputs of ops that hold the past.
var pasts = map[string][]int{
	fused.AttentionName:      {fused.AttentionPastKey, fused.AttentionPastValue},
	fused.PagedAttentionName: {fused.PagedAttentionKeyCache, fused.PagedAttentionValueCache},
	fused.QPagedAttentionName: {fused.QPagedAttentionKeyCache, fused.QPagedAttentionValueCache,
		fused.QPagedAttentionKeyScale, fused.QPagedAttentionValueScale},
	fused.LinearAttentionName: {fused.LinearAttentionPast},
	fused.CausalConvName:      {fused.CausalConvPast},
}

// visit makes a node compute parts.
func (b *block) visit(n *onnx.Node) error {
	if n.Graph != b.graph {
		return fmt.Errorf("node %q is in another graph", n.Label())
	}
	if b.claimed[n] {
		return fmt.Errorf("node %q is in another block", n.Label())
	}
	b.nodes[n] = true
	r := ruleOf(n)
	if r == nil {
		return fmt.Errorf("node %q: %s has no rule", n.Label(), onnx.OpName(n.Domain, n.OpType))
	}
	if err := r(b, n); err != nil {
		return fmt.Errorf("node %q (%s): %w", n.Label(), n.OpType, err)
	}
	return nil
}

// follow makes the readers of held values read parts. If a reader cannot, the parts are gathered for it.
func (b *block) follow() error {
	for len(b.queue) > 0 {
		u := b.queue[0]
		b.queue = b.queue[1:]
		if b.nodes[u.Node] || u.Node.Graph != b.graph && u.Node.Inputs[u.Index].IsInput { // agree compares the latter
			continue
		}
		before := b.clone()
		if err := b.visit(u.Node); err != nil {
			*b = *before
			v := u.Node.Inputs[u.Index]
			l := b.held[v]
			if v.Producer == nil || l.Runs != nil || l.isShared() {
				return fmt.Errorf("%q cannot be gathered: %w", v.Name, err)
			}
			b.gathered[u] = true
			b.unfollowed = cmp.Or(b.unfollowed, err)
		}
	}
	return nil
}

// take makes input i of a node a part. A constant is cut, and a value that can be computed in parts is; another one is
// computed whole, and the node takes its part.
func (b *block) take(n *onnx.Node, i int, l Layout) error {
	v := n.Input(i)
	if v == nil {
		return nil
	}
	if t := v.Constant(); t != nil {
		if l.Axis >= len(t.Dims) {
			return fmt.Errorf("%q has no axis %d", v.Name, l.Axis)
		}
		if err := l.fits(t.Dims[l.Axis], b.ranks); err != nil {
			return fmt.Errorf("axis %d of %q: %w", l.Axis, v.Name, err)
		}
		b.weights[onnx.Use{Node: n, Index: i}] = l
		return nil
	}
	if b.sums[v] {
		return fmt.Errorf("%q is a partial sum", v.Name)
	}
	before := b.clone()
	err := b.hold(v, l)
	if err == nil {
		return nil
	}
	*b = *before
	if _, held := b.held[v]; held {
		return err
	}
	if size, ok := b.facts.Dim(v, l.Axis); !ok || l.fits(size, b.ranks) != nil {
		return err
	}
	b.taken[onnx.Use{Node: n, Index: i}] = l
	if b.refused == nil {
		b.refused = err
	}
	return nil
}

// whole errs if the ranks hold parts of an input that the node needs whole.
func (b *block) whole(n *onnx.Node, inputs ...int) error {
	for _, i := range inputs {
		v := n.Input(i)
		if v == nil {
			continue
		}
		if _, held := b.held[v]; held {
			return fmt.Errorf("it needs all of %q", v.Name)
		}
		if b.sums[v] {
			return fmt.Errorf("%q is a partial sum", v.Name)
		}
		b.wholes[onnx.Use{Node: n, Index: i}] = true
	}
	return nil
}

// sum makes an output of a node a partial sum.
func (b *block) sum(v *onnx.Value) error {
	if _, held := b.held[v]; held {
		return fmt.Errorf("%q is divided and a partial sum", v.Name)
	}
	b.sums[v] = true
	return nil
}

// only lets rank 0 alone have an input, such as a bias of a partial sum; the others have zeros.
func (b *block) only(n *onnx.Node, i int) error {
	v := n.Input(i)
	if v == nil {
		return nil
	}
	if v.Constant() == nil {
		return fmt.Errorf("%q is added to a partial sum and is not a constant", v.Name)
	}
	b.once[onnx.Use{Node: n, Index: i}] = true
	return nil
}

// divide makes element at of an integer input, such as a shape, the rank's part of it. A size that follows from others
// (-1 or 0) stays.
func (b *block) divide(n *onnx.Node, i, at int, l Layout) error {
	v := n.Input(i)
	if v == nil {
		return errors.New("its shape is left out")
	}
	known, ok := b.facts.Known(v, 0)
	if !ok || at >= len(known.I) {
		return fmt.Errorf("the numbers %q are not known", v.Name)
	}
	if known.I[at] <= 0 {
		return nil
	}
	if l.Pieces != nil && v.Constant() == nil {
		return fmt.Errorf("pieces of %q are divided in different ways", v.Name)
	}
	if l.Units > 0 && known.I[at]%l.Units != 0 {
		return fmt.Errorf("%d of %q is not a multiple of %d", known.I[at], v.Name, l.Units)
	}
	u := onnx.Use{Node: n, Index: i}
	places := maps.Clone(b.divided[u]) // a block to go back to may have the same map
	if places == nil {
		places = map[int]Layout{}
	}
	places[at] = l
	b.divided[u] = places
	return nil
}

// set makes the size in an attribute of a node the rank's part of it.
func (b *block) set(n *onnx.Node, name string, l Layout) {
	sizes := maps.Clone(b.attrs[n]) // a block to go back to may have the same map
	if sizes == nil {
		sizes = map[string]Layout{}
	}
	sizes[name] = l
	b.attrs[n] = sizes
}

// known returns the layout of the first held value among the outputs, then the inputs of a node.
func (b *block) known(n *onnx.Node) (l Layout, output bool, index int) {
	for i, v := range n.Outputs {
		if l, ok := b.held[v]; ok && v != nil {
			return l, true, i
		}
	}
	for i, v := range n.Inputs {
		if l, ok := b.held[v]; ok && v != nil {
			return l, false, i
		}
	}
	return Layout{}, false, -1
}

func (b *block) rank(v *onnx.Value) (int, error) {
	r, ok := b.facts.Rank(v)
	if t := v.Constant(); !ok && t != nil {
		return len(t.Dims), nil
	}
	if !ok {
		return 0, fmt.Errorf("the rank of %q is not known", v.Name)
	}
	return r, nil
}

func (b *block) size(v *onnx.Value, axis int) (int64, bool) {
	if t := v.Constant(); t != nil {
		if axis < 0 {
			axis += len(t.Dims)
		}
		if axis < 0 || axis >= len(t.Dims) {
			return 0, false
		}
		return t.Dims[axis], true
	}
	return b.facts.Dim(v, axis)
}
