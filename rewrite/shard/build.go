package shard

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// ruleName is the name of this pass in the metadata of its nodes.
const ruleName = "shard"

// builder turns a copy of a model into the model of one rank. Blocks refer to the original; names connect both.
type builder struct {
	edit.Change
	model       *onnx.Model
	facts       func(*onnx.Value) onnx.DataType // of the whole model
	rank, ranks int64
	digest      string
	form        Form
	parts       map[string]*onnx.Value // parts of constants, by name and layout
	// graphs are the copies of the original's graphs. Without them, everything is in the main graph.
	graphs map[*onnx.Graph]*onnx.Graph
	graph  *onnx.Graph // of the block that is built
}

// build makes the changes of blocks to a model that has their nodes.
func (w *builder) build(blocks []*block) error {
	w.parts = map[string]*onnx.Value{}
	for _, b := range blocks {
		if err := w.block(b); err != nil {
			return err
		}
	}
	w.ImportOpset(w.model, nil, fused.Domain, fused.Version)
	w.RaiseIR(w.model, onnx.DevicesIR)
	w.model.SetDevices(configuration, w.ranks)
	if err := w.Finish(); err != nil || w.form != TensorRT {
		return err
	}
	return standardize(w.model)
}

func (w *builder) value(v *onnx.Value) *onnx.Value { return w.copyOf(v.Graph).Value(v.Name) }

// copyOf returns the graph of the model for one of the original.
func (w *builder) copyOf(g *onnx.Graph) *onnx.Graph {
	if c := w.graphs[g]; c != nil {
		return c
	}
	return w.model.Graph
}

// node returns the node of the model that writes the same values.
func (w *builder) node(n *onnx.Node) *onnx.Node {
	for _, v := range n.Outputs {
		if v != nil {
			if mine := w.value(v); mine != nil {
				return mine.Producer
			}
		}
	}
	return nil
}

// inOrder returns the nodes of a block in the order of the graph, which is the same on all ranks.
func (b *block) inOrder() []*onnx.Node {
	return slices.SortedFunc(maps.Keys(b.nodes), func(m, n *onnx.Node) int { return b.order[m] - b.order[n] })
}

func (w *builder) block(b *block) error {
	w.graph = w.copyOf(b.graph)
	nodes := b.inOrder()
	all := make([]*onnx.Node, len(nodes))
	for k, n := range nodes {
		mine := w.node(n)
		all[k] = mine
		if mine == nil {
			return fmt.Errorf("the model lacks node %q", n.Label())
		}
		for i := range n.Inputs {
			if err := w.input(b, n, mine, i); err != nil {
				return fmt.Errorf("node %q: %w", n.Label(), err)
			}
		}
		for name, l := range b.attrs[n] {
			w.SetAttr(mine, onnx.IntAttr(name, l.size(n.AttrInt(name, 0), w.rank, w.ranks)))
		}
		switch {
		case b.rows[n]:
			w.lookup(n, mine, b.weights[onnx.Use{Node: n, Index: 0}])
		case b.experts[n]:
			w.localExperts(n, mine, b.weights[onnx.Use{Node: n, Index: fused.MoEGateUp}])
		}
		if d, ok := b.shapes[n]; ok {
			v := mine.Outputs[0]
			local := w.local(v, v.Name+"_local")
			w.TakeOutput(mine, 0, local)
			w.scale("Mul", "Div", v, local, v.Name, d.count, map[int]Layout{d.at: d.layout})
		}
		for _, v := range n.Outputs {
			if v != nil {
				w.output(b, v)
			}
		}
	}
	for v, l := range b.held {
		if v.IsInput {
			w.narrow(b, v, w.value(v), l)
		} else if b.isPresent(v) {
			for _, y := range b.results(v) {
				if mine := w.value(y); mine != nil { // not in a part of the model
					w.narrow(b, v, mine, l)
				}
			}
		}
	}
	for i, n := range nodes {
		w.declare(b, n, all[i])
	}
	return nil
}

// configuration is the name of the devices of all ranks in ONNX's metadata.
const configuration = "ranks"

// declare lists the divided inputs and outputs of a node in ONNX's metadata, which has no form for pieces of an axis
// that are divided one by one.
func (w *builder) declare(b *block, n, mine *onnx.Node) {
	var shards []onnx.Shard
	add := func(v *onnx.Value, l Layout, divided bool) {
		if divided && v != nil && l.Runs == nil && l.Units == 0 {
			shards = append(shards, onnx.Shard{Value: v.Name, Axis: l.Axis, Parts: l.parts(w.ranks),
				Copies: max(l.Copies, 1)})
		}
	}
	for i, v := range n.Inputs {
		u := onnx.Use{Node: n, Index: i}
		l, divided := b.weights[u]
		if !divided {
			l, divided = b.taken[u]
		}
		if !divided {
			l, divided = b.held[v]
		}
		add(mine.Inputs[i], l, divided)
	}
	for i, v := range n.Outputs {
		l, divided := b.held[v]
		add(mine.Outputs[i], l, divided)
	}
	if len(shards) > 0 {
		mine.SetShards(configuration, shards)
	}
}

// input makes a node read its part of an input.
func (w *builder) input(b *block, n, mine *onnx.Node, i int) error {
	u := onnx.Use{Node: n, Index: i}
	v := n.Inputs[i]
	if l, ok := b.weights[u]; ok {
		key := fmt.Sprint(v.Name, " ", l)
		part := w.parts[key]
		if part == nil {
			t, err := l.cut(v.Constant(), v.Name+"_part", w.rank, w.ranks)
			if err != nil {
				return err
			}
			part = w.AddInitializer(w.model.Graph, t)
			w.parts[key] = part
		}
		w.replace(mine, i, part)
		return nil
	}
	if b.once[u] { // the same name on every rank
		part := v.Constant().Tied(v.Name + "_part")
		if w.rank > 0 {
			var err error
			part, err = onnx.NewComputed(part.Name, part.DataType, part.Dims, func(dst []byte, _ int64) error {
				clear(dst)
				return nil
			})
			if err != nil {
				return err
			}
		}
		w.replace(mine, i, w.AddInitializer(w.model.Graph, part))
		return nil
	}
	if l, ok := b.taken[u]; ok {
		w.takePart(b, n, mine, i, l)
		return nil
	}
	if places := b.divided[u]; places != nil {
		return w.divide(b, mine, v, i, places)
	}
	return nil
}

// replace makes a node read a constant of the rank, and drops the whole one when nothing reads it.
func (w *builder) replace(n *onnx.Node, i int, part *onnx.Value) {
	old := n.Inputs[i]
	w.SetInput(n, i, part)
	w.DropConstants(old)
}

// takePart makes a node read a slice of a value that all ranks have whole.
func (w *builder) takePart(b *block, n, mine *onnx.Node, i int, l Layout) {
	size, _ := b.size(n.Inputs[i], l.Axis)
	var pieces []*onnx.Value
	for k, s := range l.slices(size, w.rank, w.ranks) {
		name := fmt.Sprintf("%s_%d_slice%d", mine.Outputs[0].Name, i, k)
		pieces = append(pieces, w.op("Slice", name, mine.Inputs[i], w.ints(name+"_start", []int64{s.start}),
			w.ints(name+"_end", []int64{s.start + s.size}), w.ints(name+"_axis", []int64{int64(l.Axis)})))
	}
	if len(pieces) > 1 {
		out := w.graph.NewValue(pieces[0].Name + "s")
		w.SetAttr(w.add("Concat", out, pieces...), onnx.IntAttr("axis", int64(l.Axis)))
		pieces[0] = out
	}
	w.SetInput(mine, i, pieces[0])
}

// divide divides elements of a shape.
func (w *builder) divide(b *block, mine *onnx.Node, v *onnx.Value, i int, places map[int]Layout) error {
	if t := v.Constant(); t != nil && t.DataType == onnx.Int64 {
		known, ok := b.facts.Constant(v)
		if !ok {
			return fmt.Errorf("the numbers %q are not known", v.Name)
		}
		numbers := slices.Clone(known.I)
		for at, l := range places {
			numbers[at] = l.size(numbers[at], w.rank, w.ranks)
		}
		w.replace(mine, i, w.AddInitializer(w.model.Graph, shaped(v.Name+"_part", t.Dims, numbers)))
		return nil
	}
	known, ok := b.facts.Known(v, 0)
	if !ok {
		return fmt.Errorf("the numbers %q are not known", v.Name)
	}
	out := w.graph.NewValue(v.Name + "_part")
	w.scale("Div", "Mul", out, mine.Inputs[i], v.Name, len(known.I), places)
	w.SetInput(mine, i, out)
	return nil
}

// scale computes integers, of which some are sizes of parts, from the numbers of the whole (Div), or the other way
// round (Mul): by the number of parts, or of all units and of the rank's.
func (w *builder) scale(op, inverse string, out, in *onnx.Value, name string, n int, places map[int]Layout) {
	units, counts, uneven := slices.Repeat([]int64{1}, n), slices.Repeat([]int64{1}, n), false
	for at, l := range places {
		_, counts[at], units[at] = l.share(w.rank, w.ranks)
		uneven = uneven || l.Units > 0
	}
	if uneven {
		in = w.op(op, out.Name+"_units", in, w.ints(out.Name+"_count", units))
		op, units = inverse, counts
	}
	w.add(op, out, in, w.ints(name+"_ranks", units))
}

func shaped(name string, dims, numbers []int64) *onnx.Tensor {
	t := onnx.NewInt64s(name, numbers)
	t.Dims = slices.Clone(dims)
	return t
}

// output declares the part of a held value, and adds the collective operation of a value that is needed whole.
func (w *builder) output(b *block, v *onnx.Value) {
	l, held := b.held[v]
	value := w.value(v)
	if !b.sums[v] && !(held && b.isGathered(v)) {
		if held {
			w.narrow(b, v, value, l)
		}
		return
	}
	local := w.local(value, v.Name+"_part")
	w.TakeOutput(value.Producer, value.Output, local)
	r, _ := b.rank(v) // known if the axis is
	whole, part := value, local
	if held {
		w.narrow(b, v, local, l)
		whole, part = w.equalParts(b, v, value, local, l)
	}
	switch {
	case w.form == TensorRT:
		w.collective(whole, part, held, l.Axis, r)
	case held:
		w.join(whole, part, fused.AllGather{Rank: w.rank, Ranks: w.ranks, Plan: w.digest, Axis: int64(l.Axis - r)})
	case !w.reduceInNorm(v, value, local):
		w.join(value, local, fused.AllReduce{Rank: w.rank, Ranks: w.ranks, Plan: w.digest})
	}
	if !held {
		return
	}
	for _, u := range v.Uses() {
		if b.nodes[u.Node] {
			w.SetInput(w.node(u.Node), u.Index, local)
		}
	}
}

// equalParts makes parts of a value equally large, because AllGather needs that: the part is local with elements that
// are gathered as whole, and then cut off.
func (w *builder) equalParts(b *block, v, value, local *onnx.Value, l Layout) (whole, part *onnx.Value) {
	if l.Units == 0 {
		return value, local
	}
	all, _ := b.size(v, l.Axis)
	size := l.largest(all, w.ranks)
	axis := w.ints(local.Name+"_axis", []int64{int64(l.Axis)})
	cut := func(name string, x *onnx.Value, start, end int64) *onnx.Value {
		return w.op("Slice", name, x, w.ints(name+"_start", []int64{start}), w.ints(name+"_end", []int64{end}), axis)
	}
	concat := func(out *onnx.Value, parts ...*onnx.Value) {
		w.SetAttr(w.add("Concat", out, parts...), onnx.IntAttr("axis", int64(l.Axis)))
	}
	part, whole = w.graph.NewValue(local.Name+"_padded"), w.graph.NewValue(local.Name+"_padded_all")
	concat(part, local, cut(local.Name+"_more", local, 0, size-l.size(all, w.rank, w.ranks)))
	var pieces []*onnx.Value
	for r := range w.ranks {
		name := fmt.Sprintf("%s_of_rank%d", local.Name, r)
		pieces = append(pieces, cut(name, whole, r*size, r*size+l.size(all, r, w.ranks)))
	}
	concat(value, pieces...)
	return whole, part
}

// join writes a collective operation that makes value from the parts in local.
func (w *builder) join(value, local *onnx.Value, op fused.Typed) {
	n := w.add(op.OpType(), value, local)
	w.SetAttr(n, op.Attributes()...)
	w.SetDomain(n, fused.Domain, "")
}

// reduceInNorm makes the addition and norm that are the only reader of a sum reduce it, too.
func (w *builder) reduceInNorm(v, value, local *onnx.Value) bool {
	uses := value.Uses()
	if len(uses) != 1 || v.IsOutput() || !reducesInNorm(uses[0]) {
		return false
	}
	n, i := uses[0].Node, uses[0].Index
	w.SetInput(n, 1, n.Inputs[1-i])
	w.SetInput(n, 0, local)
	w.Become(n, fused.AllReduceAddRMSNormName, append(slices.Clone(n.Attributes),
		fused.AllReduce{Rank: w.rank, Ranks: w.ranks, Plan: w.digest}.Attributes()...)...)
	w.SetDomain(n, fused.Domain, "")
	return true
}

// reducesInNorm reports whether a reader of a sum can reduce it itself.
func reducesInNorm(u onnx.Use) bool {
	n := u.Node
	return n.Domain == fused.Domain && n.OpType == fused.AddRMSNormName && u.Index <= 1 &&
		n.Graph == n.Inputs[u.Index].Graph
}

// isGathered reports whether a held value is needed whole: by nodes outside the block, or as an output that is not the
// content of a cache.
func (b *block) isGathered(v *onnx.Value) bool {
	return v.IsOutput() && !b.isPresent(v) ||
		slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return b.gathered[u] })
}

// local makes a value with the type of another.
func (w *builder) local(v *onnx.Value, name string) *onnx.Value {
	local := w.graph.NewValue(name)
	if t, ok := v.Type(); ok {
		local.SetType(t)
	}
	return local
}

// narrow declares the shape of a part of v, which the rank holds as local.
func (w *builder) narrow(b *block, v, local *onnx.Value, l Layout) {
	t, ok := local.Type()
	size, known := b.size(v, l.Axis)
	if !ok || !known || l.Axis >= len(t.Dims) {
		return
	}
	t.Dims = slices.Clone(t.Dims)
	t.Dims[l.Axis] = onnx.Dim{Value: l.size(size, w.rank, w.ranks)}
	w.SetType(local, t)
}

func (w *builder) ints(name string, v []int64) *onnx.Value {
	return w.AddInitializer(w.model.Graph, onnx.NewInt64s(name, v))
}

// add appends a node of the standard domain; Finish moves it to its place.
func (w *builder) add(op string, out *onnx.Value, inputs ...*onnx.Value) *onnx.Node {
	n := w.AddNode(w.graph, op, inputs, []*onnx.Value{out})
	n.Name, n.Metadata = out.Name+"_"+op, edit.Origin("", ruleName)
	return n
}

// op adds a node with one new output.
func (w *builder) op(op, name string, inputs ...*onnx.Value) *onnx.Value {
	out := w.graph.NewValue(name)
	w.add(op, out, inputs...)
	return out
}

// lookup makes a rank look up its rows of a table; other rows are zeros.
func (w *builder) lookup(n, mine *onnx.Node, l Layout) {
	table := n.Inputs[0].Constant()
	rows := table.Dims[0]
	name, ids := n.Outputs[0].Name, mine.Inputs[1]
	// a negative index counts from the end
	typ := w.facts(n.Inputs[1])
	positive := w.op("Where", name+"_index", w.op("Less", name+"_negative", ids, w.integer(name+"_none", 0, typ)),
		w.op("Add", name+"_from_end", ids, w.integer(name+"_rows", rows, typ)), ids)
	local, has := w.numbered(name, positive, l.slices(rows, w.rank, w.ranks)[0], 0, typ)
	w.SetInput(mine, 1, local)
	found := w.local(mine.Outputs[0], name+"_found")
	sum := mine.Outputs[0]
	w.TakeOutput(mine, 0, found)
	axis := w.ints(name+"_axis", []int64{-1})
	w.orZero(name, sum, w.op("Unsqueeze", name+"_has", has, axis), found, table.DataType)
}

// numbered numbers ids from the rank's first one, and reports which ids the rank has. The others become other.
func (w *builder) numbered(name string, ids *onnx.Value, s slice, other int64, t onnx.DataType) (
	local, has *onnx.Value) {
	local = w.op("Sub", name+"_local", ids, w.integer(name+"_first", s.start, t))
	has = w.op("And", name+"_mine", w.op("GreaterOrEqual", name+"_after", local, w.integer(name+"_zero", 0, t)),
		w.op("Less", name+"_before", local, w.integer(name+"_count", s.size, t)))
	return w.op("Where", name+"_ids", has, local, w.integer(name+"_other", other, t)), has
}

// integer adds a constant of an integer type without dimensions.
func (w *builder) integer(name string, x int64, t onnx.DataType) *onnx.Value {
	bytes := binary.LittleEndian.AppendUint64(nil, uint64(x))
	c, err := onnx.NewTensor(name, t, nil, bytes[:t.Bits()/8])
	if err != nil {
		panic(err) // ids have 32 or 64 bits
	}
	return w.AddInitializer(w.model.Graph, c)
}

// orZero computes v where has is true, and zeros elsewhere. onnxruntime's CPU provider selects no bfloat16 numbers, so
// these take the way through float32.
func (w *builder) orZero(name string, out, has, v *onnx.Value, t onnx.DataType) {
	chosen := t
	if t == onnx.BFloat16 {
		chosen = onnx.Float
		v = w.cast(w.graph.NewValue(name+"_wide"), v, chosen)
	}
	zero, err := onnx.NewTensor(name+"_zeros", chosen, nil, make([]byte, chosen.Bits()/8))
	if err != nil {
		panic(err) // every type of weights has whole bytes
	}
	zeros := w.AddInitializer(w.model.Graph, zero)
	if chosen == t {
		w.add("Where", out, has, v, zeros)
		return
	}
	w.cast(out, w.op("Where", name+"_chosen", has, v, zeros), t)
}

func (w *builder) cast(out, v *onnx.Value, t onnx.DataType) *onnx.Value {
	w.SetAttr(w.add("Cast", out, v), onnx.IntAttr("to", int64(t)))
	return out
}

// localExperts numbers the experts of a rank from 0. The others become -1, no expert.
func (w *builder) localExperts(n, mine *onnx.Node, l Layout) {
	name, count := n.Outputs[0].Name, n.Inputs[fused.MoEGateUp].Constant().Dims[0]
	own := l.slices(count, w.rank, w.ranks)[0]
	local, _ := w.numbered(name, mine.Inputs[fused.MoEIDs], own, -1, onnx.Int64)
	w.SetInput(mine, fused.MoEIDs, local)
}
