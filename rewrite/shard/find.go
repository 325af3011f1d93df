package shard

import (
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
	// reasons say why constants stay whole.
	reasons map[*onnx.Value]error
}

func newFinder(m *onnx.Model, facts *infer.Facts, o Options) *finder {
	f := &finder{model: m, facts: facts, options: o, claimed: map[*onnx.Node]bool{}, order: map[*onnx.Node]int{},
		owners: map[*onnx.Graph]*onnx.Node{}, reasons: map[*onnx.Value]error{}}
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
			f.try(n, n.Input(fused.MoEGateUp), 0, func(b *block, _ int64) error {
				return b.mixture(n, f.options.Experts)
			})
		case weight != nil:
			f.try(n, weight, f.units(n.Inputs[data], columnGrain(n)), func(b *block, units int64) error {
				return b.before(n, units)
			})
		}
	}
	for _, n := range f.nodes {
		if f.claimed[n] {
			continue
		}
		weight, units := matrixOf(n), f.units(n.OutputValue(0), 1)
		divide := func(b *block, units int64) error { return b.columns(n, units) }
		if n.Is("Gather") && n.Inputs[0].Constant() != nil {
			weight, units = n.Inputs[0], n.Inputs[0].Constant().Dims[0]
			divide = func(b *block, units int64) error { return b.lookup(n, units) }
		}
		switch {
		case weight == nil:
		case f.isLarge(n):
			f.try(n, weight, units, divide)
		case f.reasons[weight] == nil:
			f.reasons[weight] = fmt.Errorf("it has fewer than %d bytes, too few for an operation of all ranks",
				f.options.Least)
		}
	}
	f.addFirst()
	f.agree()
}

// try adds the block that divide describes: with equal parts, or else with so many units. If that fails, it keeps the
// error as the reason.
func (f *finder) try(n *onnx.Node, weight *onnx.Value, units int64, divide func(b *block, units int64) error) {
	b, err := f.divided(n, 0, divide)
	if err != nil && units > f.options.Ranks && units%f.options.Ranks != 0 {
		b, err = f.divided(n, units, divide)
	}
	if err != nil && units > 1 && units < f.options.Ranks {
		err = fmt.Errorf("its %d units are too few for %d ranks, and %w", units, f.options.Ranks, err)
	}
	if err != nil {
		f.reasons[weight] = fmt.Errorf("node %q: %w", n.Label(), err)
		return
	}
	for u := range b.weights {
		delete(f.reasons, u.Node.Inputs[u.Index])
	}
	maps.Copy(f.claimed, b.nodes)
	f.blocks = append(f.blocks, b)
}

// divided returns the block with a node that divide describes.
func (f *finder) divided(n *onnx.Node, units int64, divide func(b *block, units int64) error) (*block, error) {
	b := newBlock(f.options.Ranks, f.facts)
	b.claimed, b.order, b.graph, b.owner = f.claimed, f.order, n.Graph, f.owners[n.Graph]
	if err := divide(b, units); err != nil {
		return nil, err
	}
	if err := b.follow(); err != nil {
		return nil, err
	}
	if len(b.weights) == 0 {
		return nil, errors.New("no weight would be divided")
	}
	return b, b.settle()
}

// units returns the number of units into which a value can be divided unevenly: the heads of attention, by keys if
// several share one, or grains of the last axis, which are not smaller than a panel if the value's product is
// quantized. It is 0 if the value is nil or the number is unknown.
func (f *finder) units(v *onnx.Value, grain int64) int64 {
	if v == nil {
		return 0
	}
	for p, depth := v.Producer, 0; p != nil && depth < between; depth++ {
		if attends(p) {
			return f.headUnits(p)
		}
		if matrixOf(p) != nil {
			grain = max(grain, rowGrain(p))
		}
		if matrixOf(p) != nil || len(p.Inputs) == 0 || p.Inputs[0] == nil {
			break
		}
		p = p.Inputs[0].Producer
	}
	if size, _ := f.facts.Dim(v, -1); size%grain == 0 {
		return size / grain
	}
	return 0
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

// headUnits returns the number of heads of keys of attention, or of queries if all share one head of keys; of linear
// attention, the least number of heads of an input that not all heads share.
func (f *finder) headUnits(n *onnx.Node) int64 {
	if n.OpType == fused.LinearAttentionName {
		return linearUnits(n)
	}
	queryAxis, keyAxis := headAxis(n, fused.AttrQLayout), headAxis(n, fused.AttrKLayout)
	if n.OpType == fused.PagedAttentionName || n.OpType == fused.QPagedAttentionName {
		queryAxis, keyAxis = 1, 1
	}
	heads, _ := f.facts.Dim(n.Inputs[0], queryAxis)
	if n.OpType == fused.LatentAttentionName {
		return heads
	}
	if keys, _ := f.facts.Dim(n.Inputs[1], keyAxis); keys > 1 {
		return keys
	}
	return heads
}

func attends(n *onnx.Node) bool {
	return n.Domain == fused.Domain && slices.Contains(attentions, n.OpType)
}

var attentions = []string{fused.AttentionName, fused.PagedAttentionName, fused.QPagedAttentionName,
	fused.LatentAttentionName, fused.LinearAttentionName}

// before divides the sum of a product, and the nodes that compute its rows.
func (b *block) before(n *onnx.Node, units int64) error {
	v := n.Inputs[data]
	r, err := b.rank(v)
	if err != nil {
		return err
	}
	if err := b.hold(v, Layout{Axis: r - 1, Units: units}); err != nil {
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
func (b *block) columns(n *onnx.Node, units int64) error {
	r, err := b.rank(n.Outputs[0])
	if err != nil {
		return err
	}
	return b.hold(n.Outputs[0], Layout{Axis: r - 1, Units: units})
}

// lookup divides the rows of a table.
func (b *block) lookup(n *onnx.Node, units int64) error {
	t := n.Inputs[0].Constant()
	if len(t.Dims) != 2 || axisOf(n, 2, 0) != 0 || !t.DataType.IsFloat() {
		return errors.New("it does not look up rows of a table")
	}
	if err := b.take(n, 0, Layout{Units: units}); err != nil {
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
		if v.IsOutput() && b.isGathered(v) && (l.Runs != nil || l.Copies > 1) {
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
	isHeldInput := func(in *onnx.Value) bool { return in != nil && in.IsInput && b.isHeld(in) }
	return slices.ContainsFunc(v.Producer.Inputs, isHeldInput)
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
	left := map[ends]int{}
	for _, b := range edited.Blocks {
		left[ends{b.First, b.Last}]++
	}
	for _, b := range f.blocks {
		nodes := b.inOrder()
		key := ends{nodes[0].Label(), nodes[len(nodes)-1].Label()}
		if left[key] > 0 {
			left[key]--
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
