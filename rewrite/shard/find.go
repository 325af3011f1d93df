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

// finder finds the blocks of a model.
type finder struct {
	model   *onnx.Model
	facts   *infer.Facts
	options Options
	blocks  []*block
	claimed map[*onnx.Node]bool
	order   map[*onnx.Node]int
	// nodes are those of the main graph and of the branches of its nodes. owners are the nodes of branches.
	nodes  []*onnx.Node
	owners map[*onnx.Graph]*onnx.Node
	// reasons say why constants stay whole, heads why the heads of an attention are not divided with the product that
	// reads them.
	reasons map[*onnx.Value]error
	heads   map[*onnx.Node]error
}

func newFinder(m *onnx.Model, facts *infer.Facts, o Options) *finder {
	f := &finder{model: m, facts: facts, options: o, claimed: map[*onnx.Node]bool{}, order: map[*onnx.Node]int{},
		owners: map[*onnx.Graph]*onnx.Node{}, reasons: map[*onnx.Value]error{}, heads: map[*onnx.Node]error{}}
	for _, n := range m.Graph.Nodes {
		if n.Is("If") {
			for _, g := range n.Subgraphs() {
				f.owners[g] = n
				f.nodes = append(f.nodes, g.Nodes...)
			}
		}
		f.nodes = append(f.nodes, n)
	}
	for i, n := range f.nodes {
		f.order[n] = i
	}
	return f
}

// find finds blocks in the order of the graph: first those between two products, then single weights that are large.
func (f *finder) find() {
	for _, n := range f.nodes {
		switch weight := matrixOf(n); {
		case f.claimed[n]:
		case isMixture(n):
			f.try(n, n.Input(fused.MoEGateUp), Layout{}, func(b *block, _ Layout) error {
				return b.mixture(n, f.options.Experts)
			})
		case weight != nil:
			f.try(n, weight, f.unequal(n.Inputs[data], columnGrain(n)), func(b *block, l Layout) error {
				return b.before(n, l)
			})
		}
	}
	for _, n := range f.nodes {
		if f.claimed[n] {
			continue
		}
		weight, other := matrixOf(n), f.unequal(n.OutputValue(0), 1)
		divide := func(b *block, l Layout) error { return b.columns(n, l) }
		if n.Is("Gather") && n.Inputs[0].Constant() != nil {
			weight, other = n.Inputs[0], f.units(n.Inputs[0].Constant().Dims[0], 1)
			divide = func(b *block, l Layout) error { return b.lookup(n, l) }
		}
		switch {
		case weight == nil:
		case f.isLarge(n):
			f.try(n, weight, other, divide)
		case f.reasons[weight] == nil:
			f.reasons[weight] = fmt.Errorf("it has fewer than %d bytes, too few for an operation of all ranks",
				f.options.Least)
		}
	}
	f.addFirst()
	f.agree()
}

// try adds the block that divide describes: with equal parts, or else with the other layout, or with a head of keys
// that all ranks hold. Of these it prefers the block with the fewest values that ranks compute or gather whole. If all
// fail, it keeps the error as the reason.
func (f *finder) try(n *onnx.Node, weight *onnx.Value, other Layout, divide func(b *block, l Layout) error) {
	b, err := f.divided(n, Layout{}, false, divide)
	for _, holdsKey := range []bool{false, true} {
		if err == nil && b.joints() == 0 || other.Units == 0 && !holdsKey {
			continue
		}
		c, e := f.divided(n, other, holdsKey, divide)
		switch {
		case e == nil && (err != nil || c.joints() < b.joints()):
			b, err = c, nil
		case err != nil && !holdsKey:
			err = e
		}
	}
	if err != nil {
		f.reasons[weight] = fmt.Errorf("node %q: %w", n.Label(), err)
		if a := behind(n.Input(0)); a != nil && f.heads[a] == nil {
			f.heads[a] = f.reasons[weight]
		}
		return
	}
	for u := range b.weights {
		delete(f.reasons, u.Node.Inputs[u.Index])
	}
	maps.Copy(f.claimed, b.nodes)
	f.blocks = append(f.blocks, b)
}

// joints counts the readers of values that the ranks compute whole and take parts of, or gather.
func (b *block) joints() int { return len(b.taken) + len(b.gathered) }

// divided returns the block with a node that divide describes, for a layout of its last axis.
func (f *finder) divided(n *onnx.Node, l Layout, holdsKey bool, divide func(b *block, l Layout) error) (*block, error) {
	b := newBlock(f.options.Ranks, f.facts)
	b.claimed, b.order, b.graph, b.owner = f.claimed, f.order, n.Graph, f.owners[n.Graph]
	b.holdsKey = holdsKey
	err := divide(b, l)
	if err == nil {
		err = b.follow()
	}
	switch {
	case err != nil && b.refused != nil:
		return nil, fmt.Errorf("%w; before, %w", err, b.refused)
	case err != nil:
		return nil, err
	}
	if len(b.weights) == 0 {
		return nil, errors.New("no weight would be divided")
	}
	return b, b.settle()
}

// unequal returns the layout of a value's last axis with unequal parts: of the heads of attention, or of grains, which
// are not smaller than a panel if the value's product is quantized. Its units are 0 if the parts can be equal, or if it
// is unknown.
func (f *finder) unequal(v *onnx.Value, grain int64) Layout {
	if v == nil {
		return Layout{}
	}
	switch p := behind(v); {
	case p != nil && attends(p):
		return f.headsOf(p)
	case p != nil:
		grain = max(grain, rowGrain(p))
	}
	size, _ := f.facts.Dim(v, -1)
	return f.units(size, grain)
}

// units returns the layout of unequal numbers of grains.
func (f *finder) units(size, grain int64) Layout {
	if n := size / grain; size%grain == 0 && n > f.options.Ranks && n%f.options.Ranks != 0 {
		return Layout{Units: n}
	}
	return Layout{}
}

// isLarge reports whether a node's constants are worth an additional collective operation.
func (f *finder) isLarge(n *onnx.Node) bool {
	var size int64
	for _, v := range n.Inputs {
		for v != nil && v.Constant() == nil && isWeight(v, casts) {
			v = v.Producer.Inputs[0]
		}
		if v != nil && v.Constant() != nil {
			size += v.Constant().Size()
		}
	}
	return size >= f.options.Least
}

// between is the number of nodes between attention and the product that reads its heads, at most.
const between = 6

// behind returns the attention that computes v a few nodes before, perhaps as a factor, or else the product that
// computes it; nil without both.
func behind(v *onnx.Value) *onnx.Node {
	p := nearest(v, between)
	for depth := 0; p == nil && v != nil && v.Producer != nil && depth < between; depth++ {
		if matrixOf(v.Producer) != nil {
			return v.Producer
		}
		v = v.Producer.Input(0)
	}
	return p
}

// nearest returns the first attention, at most so many nodes before v, with no product between.
func nearest(v *onnx.Value, depth int) *onnx.Node {
	if v == nil || v.Producer == nil || depth == 0 || matrixOf(v.Producer) != nil {
		return nil
	}
	if attends(v.Producer) {
		return v.Producer
	}
	for _, in := range v.Producer.Inputs {
		if p := nearest(in, depth-1); p != nil {
			return p
		}
	}
	return nil
}

// undivided returns the reason why attention is in no block, or nil for another node.
func (f *finder) undivided(n *onnx.Node, blocks []*block) error {
	has := func(b *block) bool { return b.nodes[n] }
	if !attends(n) || slices.ContainsFunc(blocks, has) {
		return nil
	}
	if i := slices.IndexFunc(f.blocks, has); i >= 0 { // which was refused
		for u := range f.blocks[i].weights {
			if err := f.reasons[u.Node.Inputs[u.Index]]; err != nil {
				return err
			}
		}
	}
	return cmp.Or(f.heads[n], f.unread(n))
}

// unread returns the reason why no product reads the heads of an attention in parts.
func (f *finder) unread(n *onnx.Node) error {
	b := newBlock(f.options.Ranks, f.facts)
	b.graph, b.owner, b.claimed = n.Graph, f.owners[n.Graph], f.claimed
	axis := 1 // of pools
	switch n.OpType {
	case fused.LinearAttentionName:
		axis = 2
	case fused.AttentionName, fused.LatentAttentionName:
		axis = headAxis(n, fused.AttrYLayout)
	}
	err := b.hold(n.Outputs[0], f.headsOf(n).at(axis))
	if err == nil {
		err = b.follow()
	}
	if err = cmp.Or(err, b.unfollowed); err == nil {
		return errors.New("no product that can be divided reads it")
	}
	return fmt.Errorf("no product that can be divided reads it: %w", err)
}

// headsOf returns the layout of the heads of an attention's output.
func (f *finder) headsOf(n *onnx.Node) Layout {
	b := newBlock(f.options.Ranks, f.facts)
	q, err := (*Layout)(nil), error(nil)
	switch n.OpType {
	case fused.LinearAttentionName:
		var layouts map[string]*Layout
		layouts, err = linearGroups(b.ranks, n)
		q = layouts[fused.AttrVHeads]
	case fused.LatentAttentionName:
		heads, _ := f.facts.Dim(n.Inputs[0], headAxis(n, fused.AttrQLayout))
		q, _, err = groups(b.ranks, heads, 1, false)
	case fused.AttentionName:
		q, _, err = b.groupsOf(n, headAxis(n, fused.AttrQLayout), headAxis(n, fused.AttrKLayout))
	default: // pools
		q, _, err = b.groupsOf(n, 1, 1)
	}
	if err != nil {
		return Layout{} // the rule of the op reports it
	}
	return *q
}

func attends(n *onnx.Node) bool {
	return n.Domain == fused.Domain && slices.Contains(attentions, n.OpType)
}

var attentions = []string{fused.AttentionName, fused.PagedAttentionName, fused.QPagedAttentionName,
	fused.LatentAttentionName, fused.LinearAttentionName}

// before divides the sum of a product, and the nodes that compute its rows.
func (b *block) before(n *onnx.Node, l Layout) error {
	v := n.Inputs[data]
	r, err := b.rank(v)
	if err != nil {
		return err
	}
	if err := b.hold(v, l.at(r-1)); err != nil {
		return err
	}
	b.queue = slices.DeleteFunc(b.queue, func(u onnx.Use) bool { return u.Node == n })
	for p := range b.nodes {
		if matrixOf(p) != nil {
			return b.visit(n)
		}
	}
	return fmt.Errorf("no product computes %q in parts", v.Name)
}

// columns divides the outputs of a product.
func (b *block) columns(n *onnx.Node, l Layout) error {
	r, err := b.rank(n.Outputs[0])
	if err != nil {
		return err
	}
	return b.hold(n.Outputs[0], l.at(r-1))
}

// lookup divides the rows of a table.
func (b *block) lookup(n *onnx.Node, l Layout) error {
	t := n.Inputs[0].Constant()
	if len(t.Dims) != 2 || axisOf(n, 2, 0) != 0 || !t.DataType.IsFloat() {
		return errors.New("it does not look up rows of a table")
	}
	if err := b.take(n, 0, l); err != nil {
		return err
	}
	b.nodes[n], b.rows[n] = true, true
	return b.sum(n.Outputs[0])
}

// settle errs if a held output of the main graph cannot be gathered. Whether a branch's outputs are depends on others.
func (b *block) settle() error {
	if b.owner != nil {
		return nil
	}
	return b.settled()
}

func (b *block) settled() error {
	for v, l := range b.held {
		if v.IsOutput() && b.isGathered(v) && (l.Runs != nil || l.isShared()) {
			return fmt.Errorf("output %q cannot be gathered", v.Name)
		}
	}
	return nil
}

// isPresent reports whether v is the new content of a cache that is divided, and so is an output that stays in parts.
func (b *block) isPresent(v *onnx.Value) bool {
	if b.kept[v] {
		return true
	}
	if !v.IsOutput() || v.Producer == nil {
		return false
	}
	if v = uncast(v); v.Producer == nil {
		return b.isHeldInput(v)
	}
	return slices.ContainsFunc(v.Producer.Inputs, b.isHeldInput)
}

// isHeldInput reports whether v is an input of which the ranks have parts, perhaps cast to another type.
func (b *block) isHeldInput(v *onnx.Value) bool {
	v = uncast(v)
	return v != nil && v.IsInput && b.isHeld(v)
}

// uncast returns the value before some Casts.
func uncast(v *onnx.Value) *onnx.Value {
	for depth := 0; depth < casts && v != nil && v.Producer != nil && v.Producer.Is("Cast"); depth++ {
		v = v.Producer.Inputs[0]
	}
	return v
}

// addFirst adds partial sums before they are reduced, so that one reduction serves both.
func (f *finder) addFirst() {
	of := map[*onnx.Value]*block{}
	for _, b := range f.blocks {
		for v := range b.sums {
			of[v] = b
		}
	}
	sole := func(v *onnx.Value) *onnx.Node {
		if u := v.Uses(); len(u) == 1 && !v.IsOutput() && u[0].Node.Graph == v.Graph {
			return u[0].Node
		}
		return nil
	}
	for _, n := range f.nodes {
		if f.claimed[n] || len(n.Inputs) == 0 || n.Inputs[0] == nil {
			continue
		}
		first := of[n.Inputs[0]]
		if first == nil || sole(n.Inputs[0]) != n && !n.Is("Add") {
			continue
		}
		switch {
		case reshapes(n):
			if next := sole(n.Outputs[0]); next == nil || !leadsToAdd(next, n, of, sole) && !readsSum(next, n) {
				continue
			}
		case n.Is("Add"):
			second := of[n.Inputs[1]]
			if second == nil || sole(n.Inputs[0]) != n || sole(n.Inputs[1]) != n ||
				!f.facts.SameShape(n.Inputs[0], n.Inputs[1]) {
				continue
			}
			if first != second {
				first.join(second)
				for v, b := range of {
					if b == second {
						of[v] = first
					}
				}
				f.blocks = slices.DeleteFunc(f.blocks, func(b *block) bool { return b == second })
			}
			delete(first.sums, n.Inputs[1])
		default:
			continue
		}
		delete(first.sums, n.Inputs[0])
		first.sums[n.Outputs[0]], first.nodes[n], f.claimed[n] = true, true, true
		of[n.Outputs[0]] = first
	}
}

// reshapes reports whether a node only gives its input another shape.
func reshapes(n *onnx.Node) bool {
	return n.Is("Reshape") || n.Is("Unsqueeze") || n.Is("Squeeze") || n.Is("Identity")
}

// readsSum reports whether next, the only reader of a partial sum in another shape, can reduce it itself.
func readsSum(next, n *onnx.Node) bool {
	return reducesInNorm(onnx.Use{Node: next, Index: slices.Index(next.Inputs, n.Outputs[0])})
}

// leadsToAdd reports whether next, the only reader of a partial sum in another shape, adds it to another one.
func leadsToAdd(next, n *onnx.Node, of map[*onnx.Value]*block, sole func(*onnx.Value) *onnx.Node) bool {
	if !next.Is("Add") {
		return false
	}
	for _, v := range next.Inputs {
		if v == n.Outputs[0] || v == nil || sole(v) != next {
			continue
		}
		for p := v; p != nil; {
			if of[p] != nil {
				return true
			}
			if p.Producer == nil || !reshapes(p.Producer) {
				break
			}
			p = p.Producer.Inputs[0]
		}
	}
	return false
}

// join adds another block, which shares no node.
func (b *block) join(c *block) {
	maps.Copy(b.held, c.held)
	maps.Copy(b.weights, c.weights)
	maps.Copy(b.once, c.once)
	maps.Copy(b.taken, c.taken)
	maps.Copy(b.divided, c.divided)
	maps.Copy(b.attrs, c.attrs)
	maps.Copy(b.shapes, c.shapes)
	maps.Copy(b.sums, c.sums)
	maps.Copy(b.gathered, c.gathered)
	maps.Copy(b.nodes, c.nodes)
	maps.Copy(b.rows, c.rows)
	maps.Copy(b.experts, c.experts)
}

// chosen returns the blocks of an edited plan, and reasons for the weights of others.
func (f *finder) chosen(edited *Plan) (list []*block, err error) {
	type ends struct{ first, last string }
	left, given := map[ends]int{}, map[ends]Block{}
	for _, b := range edited.Blocks {
		left[ends{b.First, b.Last}]++
		given[ends{b.First, b.Last}] = b
	}
	for _, b := range f.blocks {
		nodes := b.inOrder()
		key := ends{nodes[0].Label(), nodes[len(nodes)-1].Label()}
		if left[key] > 0 {
			left[key]--
			if err := b.agrees(given[key]); err != nil {
				return nil, err
			}
			list = append(list, b)
			continue
		}
		for u := range b.weights {
			f.reasons[u.Node.Inputs[u.Index]] = fmt.Errorf("the given plan lacks the block from %q to %q", key.first,
				key.last)
		}
	}
	for _, b := range edited.Blocks {
		if left[ends{b.First, b.Last}] > 0 {
			return nil, fmt.Errorf("the model has no block from node %q to %q, which the given plan names: blocks may "+
				"only be deleted from a plan", b.First, b.Last)
		}
	}
	return list, nil
}

// agrees errs if a block of a given plan lists weights that are divided in another way: an edited layout would have no
// effect.
func (b *block) agrees(given Block) error {
	for _, w := range given.Weights {
		same := false
		for u, l := range b.weights {
			same = same || u.Node.Inputs[u.Index].Name == w.Name && l.equal(w.Layout)
		}
		for u := range b.once {
			same = same || w.Once && u.Node.Inputs[u.Index].Name == w.Name
		}
		if !same {
			return fmt.Errorf("the given plan divides %q, in its block from %q to %q, in another way than shard does: "+
				"restore its axis, runs, copies, units, ranges and pieces, or delete the block's weights", w.Name,
				given.First, given.Last)
		}
	}
	return nil
}
