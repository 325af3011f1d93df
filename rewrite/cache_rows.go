package rewrite

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// Sequences of a batch have buffers of their own lengths if attention is told each, and if positions are those of the
// sequences. A graph may read the positions from an input, which has a row for each. Or it computes them, the same for
// all, of the length of a past: they are found by what they are, in the worlds of package infer at several lengths,
// and computed anew of the lengths of all. Whatever else depends on the length of a past stands in the way.

// WithRowLengths is WithPastLength with a length for each sequence of a batch: past_length is [batch]. So prompts of
// different lengths are computed together with padding behind them, which the next tokens overwrite.
func WithRowLengths() Option { return func(c *config) { c.pastLength, c.rowLengths = true, true } }

// checkRows finds what would have all sequences share their positions, or what they may see.
func (c *cacheChange) checkRows() error {
	for _, s := range c.sites {
		if causal := s.node.AttrInt("causal", 0); causal == 0 && s.node.Input(fused.AttentionKeyValid) == nil {
			return fmt.Errorf("node %q sees padding behind a sequence: there is no mask for each sequence",
				nodeName(s.node))
		}
		if v := s.node.Input(fused.AttentionBias); v != nil {
			return fmt.Errorf("node %q adds %q to the scores, which is not known to be right for sequences of "+
				"different lengths", nodeName(s.node), v.Name)
		}
	}
	for _, v := range c.model.Graph.Inputs {
		rank, _ := c.facts.Rank(v)
		if v.Const != nil || !c.facts.DataType(v).IsInteger() || rank == 0 {
			continue
		}
		one, _ := c.facts.Dim(v, 0)
		for axis := range rank {
			if c.sizes(v, axis) == c.added && (rank == 1 || one == 1 && axis > 0) && c.added != [infer.Worlds]int64{1, 1, 1} {
				return fmt.Errorf("input %q has one row for all sequences, and each is to have positions of its own",
					v.Name)
			}
		}
	}
	return c.positions()
}

func (c *cacheChange) sizes(v *onnx.Value, axis int) (size [infer.Worlds]int64) {
	for w := range size {
		size[w] = c.facts.Size(v, w, axis)
	}
	return size
}

// lengthsRun is what the nodes that depend on lengths alone make of some.
type lengthsRun struct {
	world  int
	past   int64
	values map[*onnx.Value]*reference.Tensor
}

// follow evaluates the nodes that depend on values of env, as far as everything else that they read is known.
func (c *cacheChange) follow(world int, env map[*onnx.Value]*reference.Tensor) {
	e := reference.NewForOpset(c.model.Opset(""), c.model.Functions, reference.Options{})
	for _, n := range c.model.Graph.Nodes {
		known, reached := true, slices.Contains(c.nodes, n)
		in := map[*onnx.Value]*reference.Tensor{}
		for _, v := range n.Inputs {
			if v == nil {
				continue
			}
			x, ok := env[v]
			reached = reached || ok
			if !ok {
				x, ok = c.patched.Known(v, world)
			}
			if ok {
				in[v] = x
			}
			known = known && (ok || v.Constant() != nil)
		}
		if _, seeded := env[n.Outputs[0]]; seeded || !known || !reached || len(n.Subgraphs()) > 0 {
			continue
		}
		if _, err := e.EvalFor([]*onnx.Node{n}, in, n.Outputs); err != nil {
			continue // as if it read what is not known
		}
		for _, v := range n.Outputs {
			if v != nil {
				env[v] = in[v]
			}
		}
	}
}

// lengthsRuns evaluates what depends on the length of the past, at several of them: those beyond the numbers that it is
// computed with are among them.
func (c *cacheChange) lengthsRuns() (runs []lengthsRun, err error) {
	add := func(w int, past int64) error {
		env := map[*onnx.Value]*reference.Tensor{}
		for _, r := range c.readers {
			shape, ok := c.facts.Shape(r.shape.Inputs[0], w)
			if !ok {
				return fmt.Errorf("cannot be checked: the shape of %q is not known", r.shape.Inputs[0].Name)
			}
			shape = slices.Clone(shape)
			if shape[r.axis] = past; r.total {
				shape[r.axis] += c.added[w]
			}
			shape = shape[r.from:r.to]
			env[r.shape.Outputs[0]] = reference.NewInts(onnx.Int64, []int{len(shape)}, shape)
		}
		c.follow(w, env)
		runs = append(runs, lengthsRun{w, past, env})
		return nil
	}
	for w := range checkedWorlds {
		for _, past := range []int64{c.past[w], c.past[w] + 2, 0} {
			if err := add(w, past); err != nil {
				return nil, err
			}
		}
	}
	for _, x := range c.numbers(runs[0].values) {
		if err := add(0, x+3); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// maxNumber is the greatest number in a graph that lengths beyond it are tried for.
const maxNumber = 1 << 16

// numbers are those that some values are computed with, in their order.
func (c *cacheChange) numbers(made map[*onnx.Value]*reference.Tensor) (list []int64) {
	for _, n := range c.model.Graph.Nodes {
		if n.Outputs[0] == nil || made[n.Outputs[0]] == nil {
			continue
		}
		for _, v := range n.Inputs {
			if v == nil {
				continue
			}
			t, known := c.patched.Constant(v)
			if k := v.Constant(); !known && k != nil && k.Len() == 1 {
				t, _ = reference.FromONNX(k)
			}
			x := 0.0
			switch {
			case t == nil || t.Len() != 1:
			case t.IsFloat():
				x = t.F[0]
			case len(t.I) == 1:
				x = float64(t.I[0])
			}
			if x = math.Abs(x); x > float64(c.past[0]) && x <= maxNumber {
				list = append(list, int64(x))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// positions finds the values that are positions of the new tokens, with one row for all sequences or one for each, so
// that nothing but what is made of them depends on the length of the past.
func (c *cacheChange) positions() (err error) {
	if c.runs, err = c.lengthsRuns(); err != nil {
		return err
	}
	runs := c.runs
	seen := map[*onnx.Value]bool{}
	var follow func(v *onnx.Value) error
	follow = func(v *onnx.Value) error {
		if seen[v] || !depends(runs, v) {
			return nil
		}
		seen[v] = true
		if c.arePositions(runs, v) && !v.IsOutput() {
			c.cuts = append(c.cuts, v)
			return nil
		}
		if v.IsOutput() {
			return fmt.Errorf("output %q depends on the length of the past, which each sequence has its own of", v.Name)
		}
		for _, use := range v.Uses() {
			n := use.Node
			for _, out := range n.Outputs {
				if out == nil {
					continue
				}
				if runs[0].values[out] == nil || n.Graph != c.model.Graph {
					return fmt.Errorf("node %q (%s) reads the length of the past (%q), and not as positions of the "+
						"new tokens: each sequence has its own", nodeName(n), n.OpType, v.Name)
				}
				if err := follow(out); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, r := range c.readers {
		if err := follow(r.shape.Outputs[0]); err != nil {
			return err
		}
	}
	return nil
}

// depends reports whether a value is another one at another length of the past.
func depends(runs []lengthsRun, v *onnx.Value) bool {
	for _, r := range runs {
		for _, s := range runs {
			x, y := r.values[v], s.values[v]
			if r.world == s.world && x != nil && y != nil && !sameElements(x, y) {
				return true
			}
		}
	}
	return false
}

func sameElements(x, y *reference.Tensor) bool {
	return slices.Equal(x.Shape, y.Shape) && slices.Equal(x.I, y.I) && slices.Equal(x.F, y.F)
}

// arePositions reports whether a value is [1 or batch, new tokens, 1…] and counts on from the length of the past.
func (c *cacheChange) arePositions(runs []lengthsRun, v *onnx.Value) bool {
	for _, r := range runs {
		x := r.values[v]
		batch, added := int(c.facts.Size(c.sites[0].past[0], r.world, 0)), int(c.added[r.world])
		if x == nil || len(x.Shape) < 2 || x.Shape[0] != 1 && x.Shape[0] != batch || x.Shape[1] != added ||
			x.Len() != x.Shape[0]*added {
			return false
		}
		for i := range x.Len() {
			want := r.past + int64(i%added)
			if x.F != nil && x.F[i] != float64(want) || x.F == nil && x.I[i] != want {
				return false
			}
		}
	}
	return true
}

// countRows has each sequence count its positions from its own length.
func (c *cacheChange) countRows() error {
	c.readers = nil // what they give of lengths is read no more
	if len(c.cuts) == 0 {
		return nil
	}
	g := c.model.Graph
	for v := range c.runs[0].values { // has as many rows as there are sequences now
		if t, ok := v.Type(); ok && depends(c.runs, v) {
			v.SetType(onnx.Type{DataType: t.DataType})
		}
	}
	number := func(name string, x int64) *onnx.Value {
		t := onnx.NewInt64s(name, []int64{x})
		t.Dims = []int64{}
		return g.AddInitializer(t)
	}
	count := c.compute(g, "Squeeze", g.NewValue("new_length"), c.size(c.fresh, "new_length_of"))
	steps := c.compute(g, "Range", g.NewValue("new_tokens"), number("zero", 0), count, number("one", 1))
	first := c.compute(g, "Unsqueeze", g.NewValue("first_position"), c.length,
		g.AddInitializer(onnx.NewInt64s("axis", []int64{1})))
	c.rows = c.compute(g, "Add", g.NewValue("row_positions"), first, steps)
	var old []*onnx.Node
	for _, v := range c.cuts {
		rank, _ := c.patched.Rank(v)
		x := c.rows
		if rank > 2 {
			shape := make([]int64, rank)
			for i := 2; i < rank; i++ {
				shape[i] = 1
			}
			x = c.compute(g, "Reshape", g.NewValue(v.Name+"_of_rows"), x,
				g.AddInitializer(onnx.NewInt64s("shape", shape)))
		}
		if t := c.patched.DataType(v); t != onnx.Int64 {
			x = c.compute(g, "Cast", g.NewValue(v.Name+"_cast"), x)
			x.Producer.SetAttr(onnx.IntAttr("to", int64(t)))
		}
		for _, use := range slices.Clone(v.Uses()) {
			use.Node.SetInput(use.Index, x)
		}
		old = append(old, v.Producer)
	}
	dead, _ := convert.Unread(old)
	return g.RemoveNodes(dead)
}

// checkUnequal compares attention on sequences of different lengths, from a trial with as many inputs, with attention on
// each of them.
func (c *cacheChange) checkUnequal(n *onnx.Node, run func([]*reference.Tensor) ([]*reference.Tensor, error),
	t cacheTrial, in []*reference.Tensor) error {
	if !c.config.rowLengths || t.past == 0 || t.batch < 2 {
		return nil
	}
	lengths := make([]int64, t.batch)
	for b := range lengths {
		lengths[b] = max(0, t.past-int64(b))
	}
	in = slices.Clone(in)
	in[fused.AttentionPastLength] = reference.NewInts(onnx.Int64, []int{len(lengths)}, lengths)
	for _, i := range []int{fused.AttentionPastKey, fused.AttentionPastValue} {
		in[i] = withJunk(in[i], lengths, t.junk)
	}
	all, err := run(in)
	if err != nil {
		return &evalError{err}
	}
	for b := range lengths {
		alone := make([]*reference.Tensor, len(in))
		for i, x := range in {
			if alone[i] = x; i != fused.AttentionSink && x != nil {
				alone[i] = rowOf(x, b)
			}
		}
		want, err := run(alone)
		if err != nil {
			return &evalError{err}
		}
		for i, w := range want {
			if got := rowOf(all[i], b); !slices.EqualFunc(w.F, got.F,
				func(x, y float64) bool { return x == y || x != x && y != y }) {
				return fmt.Errorf("sequence %d is not what it is alone", b)
			}
		}
	}
	return c.checkKernel(n, t, in, all)
}

// withJunk returns a buffer that holds tokens up to a length of each sequence, and junk behind them.
func withJunk(buffer *reference.Tensor, lengths []int64, junk float64) *reference.Tensor {
	out := reference.NewFloats(buffer.DataType, buffer.Shape, slices.Clone(buffer.F))
	heads, room, width := buffer.Shape[1], buffer.Shape[cacheAxis], buffer.Shape[3]
	for b, n := range lengths {
		for h := range heads {
			at := (b*heads + h) * room * width
			for i := at + int(n)*width; i < at+room*width; i++ {
				out.F[i] = junk
			}
		}
	}
	return out
}

// rowOf returns a row of a tensor, as a batch of one.
func rowOf(x *reference.Tensor, b int) *reference.Tensor {
	n, shape := x.Len()/max(x.Shape[0], 1), slices.Clone(x.Shape)
	shape[0] = 1
	if x.IsFloat() {
		return reference.NewFloats(x.DataType, shape, x.F[b*n:(b+1)*n])
	}
	return reference.NewInts(x.DataType, shape, x.I[b*n:(b+1)*n])
}

// checkRowPositions compares what is made of the positions of sequences of different lengths with what is made of
// those of each sequence alone, and has nodes read it that take a row for each.
func (c *cacheChange) checkRowPositions() error {
	if c.rows == nil || c.config.verify == VerifyOff {
		return nil
	}
	for w := range checkedWorlds {
		lengths := make([]int64, c.facts.Size(c.sites[0].past[0], w, 0))
		for b := range lengths {
			lengths[b] = max(0, c.past[w]-2*int64(b))
		}
		all, err := c.atLengths(w, lengths)
		if err == nil {
			err = c.checkRowsAt(w, lengths, all)
		}
		if err != nil {
			return err
		}
		if w > 0 {
			continue
		}
		for _, x := range c.numbers(all) {
			lengths[0] = x + 3
			long, err := c.atLengths(w, lengths)
			if err == nil && len(long) == len(all) { // else a table of positions ends before
				err = c.checkRowsAt(w, lengths, long)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRowsAt is checkRowPositions in a world, for sequences of some lengths and all that is made of their positions.
func (c *cacheChange) checkRowsAt(w int, lengths []int64, all map[*onnx.Value]*reference.Tensor) error {
	batch := len(lengths)
	for b, length := range lengths {
		alone, err := c.atLengths(w, []int64{length})
		if err != nil {
			return err
		}
		for v, x := range all {
			if c.leaves(all, v) && !isRow(x, alone[v], b, batch) {
				return fmt.Errorf("%q, which is made of positions, is not for each sequence what it is alone", v.Name)
			}
		}
	}
	for v, x := range all {
		for _, use := range v.Uses() {
			if all[use.Node.Outputs[0]] == nil && !c.takesRows(use, len(x.Shape), int64(batch), w) {
				return fmt.Errorf("node %q (%s) reads %q, and is not known to take a row of it for each sequence",
					nodeName(use.Node), use.Node.OpType, v.Name)
			}
		}
	}
	return nil
}

// atLengths evaluates what is made of positions, where sequences have some lengths.
func (c *cacheChange) atLengths(w int, lengths []int64) (map[*onnx.Value]*reference.Tensor, error) {
	env := map[*onnx.Value]*reference.Tensor{c.length: reference.NewInts(onnx.Int64, []int{len(lengths)}, lengths)}
	if v := c.fresh.input; v != nil {
		shape, ok := c.facts.Shape(v, w)
		if !ok {
			return nil, fmt.Errorf("cannot be checked: the shape of input %q is not known", v.Name)
		}
		for _, n := range c.nodes {
			if n.Is("Shape") && n.Inputs[0] == v {
				env[n.Outputs[0]] = reference.NewInts(onnx.Int64, []int{len(shape)}, slices.Clone(shape))
			}
		}
	}
	c.follow(w, env)
	made := map[*onnx.Value]*reference.Tensor{c.rows: env[c.rows]}
	if made[c.rows] == nil {
		return nil, fmt.Errorf("cannot be checked: %q cannot be evaluated", c.rows.Name)
	}
	for _, n := range c.model.Graph.Nodes {
		for _, v := range n.Inputs {
			if made[v] == nil {
				continue
			}
			for _, out := range n.Outputs {
				if out != nil && env[out] != nil {
					made[out] = env[out]
				}
			}
		}
	}
	return made, nil
}

// leaves reports whether something else reads a value that is made of positions.
func (c *cacheChange) leaves(made map[*onnx.Value]*reference.Tensor, v *onnx.Value) bool {
	return v.IsOutput() || slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return made[u.Node.Outputs[0]] == nil })
}

// isRow reports whether y is row b of x, which has one for each sequence of the batch: y has as many, all equal, or one.
func isRow(x, y *reference.Tensor, b, batch int) bool {
	if y == nil || len(x.Shape) == 0 || x.Shape[0] != batch || x.Len() == 0 || len(y.Shape) != len(x.Shape) {
		return false
	}
	n, at := x.Len()/batch, 0
	switch y.Len() {
	case n:
	case x.Len():
		at = b * n
	default:
		return false
	}
	row := rowOf(x, b)
	if x.IsFloat() {
		return slices.Equal(row.F, y.F[at:at+n])
	}
	return slices.Equal(row.I, y.I[at:at+n])
}

// broadcasting are the ops that have a row of each input for each row of the output, or one for all, where the ranks are
// equal.
var broadcasting = map[string]bool{"Add": true, "Sub": true, "Mul": true, "Div": true, "Where": true}

// takesRows reports whether a node reads a row of a value of so many dimensions for each sequence of the batch.
func (c *cacheChange) takesRows(use onnx.Use, rank int, batch int64, world int) bool {
	n := use.Node
	if n.Graph != c.model.Graph || len(n.Outputs) == 0 || n.Outputs[0] == nil {
		return false
	}
	shape, ok := c.patched.Shape(n.Outputs[0], world)
	if !ok || len(shape) == 0 || shape[0] != batch {
		return false
	}
	rotates := n.Domain == fused.Domain && (n.OpType == "RotaryEmbedding" || n.OpType == "NormRotary")
	switch {
	case rotates || onnx.IsStandardDomain(n.Domain) && broadcasting[n.OpType]:
		return len(shape) == rank
	case n.Is("RotaryEmbedding"): // of the standard, whose tables are [batch, sequence, width]
		return use.Index > 0 && rank == 3
	}
	return false
}
