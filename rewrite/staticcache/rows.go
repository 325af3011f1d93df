package staticcache

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// Sequences of a batch can have buffers of different lengths if attention reads each length and positions are counted
// per sequence. A graph may read the positions from an input with a row for each sequence. Or it computes them: the
// same for all, from the length of a past, or as sums of the mask. These values are identified by their numbers, in the
// worlds of package infer at several lengths, and recomputed from the length of each sequence. Any other use of the
// length of a past is refused.

// checkRows returns an error if sequences would share their positions, or read padding.
func (c *cacheChange) checkRows() error {
	for _, s := range c.sites {
		causal := s.node.AttrInt(fused.AttrCausal, 0)
		if !c.options.Packed && causal == 0 && s.node.Input(s.op.Valid) == nil {
			return fmt.Errorf("node %q has no mask per sequence and would see the padding after shorter sequences: "+
				"use --past-length without rows", s.node.Label())
		}
		if v := s.node.Input(fused.AttentionBias); s.op.Name == fused.AttentionName && v != nil {
			return fmt.Errorf("node %q adds %q to the scores, which is not known to be right for sequences of "+
				"different lengths", s.node.Label(), v.Name)
		}
	}
	for _, v := range c.Model.Graph.Inputs {
		rank, _ := c.facts.Rank(v)
		if v.Const != nil || !c.facts.DataType(v).IsInteger() || rank == 0 {
			continue
		}
		one, _ := c.facts.Dim(v, 0)
		for axis := range rank {
			shared := rank == 1 || one == 1 && axis > 0
			if shared && c.sizes(v, axis) == c.added && c.added != [infer.Worlds]int64{1, 1, 1} {
				return fmt.Errorf("input %q has one row for all sequences, but their positions differ",
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

// lengthsRun has the values of the nodes that depend only on lengths, for one length.
type lengthsRun struct {
	world   int
	past    int64
	padding *prove.Padding // of the mask, or nil
	values  map[*onnx.Value]*reference.Tensor
}

// batchOf returns the number of sequences in a world.
func (c *cacheChange) batchOf(world int) int64 { return c.facts.Size(c.sites[0].past[0], world, 0) }

// follow evaluates the nodes that depend on values of env, if all their other inputs are known.
func (c *cacheChange) follow(world int, env map[*onnx.Value]*reference.Tensor) {
	e := reference.NewForOpset(c.Model.Opset(""), c.Model.Functions, reference.Options{})
	for _, n := range c.Model.Graph.Nodes {
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
			continue // treat it as unknown
		}
		for _, v := range n.Outputs {
			if v != nil {
				env[v] = in[v]
			}
		}
	}
}

// lengthsRuns evaluates the values that depend on the length of the past at several lengths, including lengths beyond
// the numbers in their computation.
func (c *cacheChange) lengthsRuns() (runs []lengthsRun, err error) {
	add := func(w int, past int64, p *prove.Padding) error {
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
		if c.counted != nil {
			all := p
			if p == nil {
				all = &prove.NoPadding
			}
			env[c.counted] = all.Tensor(c.facts.DataType(c.counted), []int64{c.batchOf(w), past + c.added[w]})
		}
		c.follow(w, env)
		runs = append(runs, lengthsRun{w, past, p, env})
		return nil
	}
	for w := range prove.CheckedWorlds {
		for _, past := range []int64{c.past[w], c.past[w] + 2, 0} {
			if err := add(w, past, nil); err != nil {
				return nil, err
			}
		}
		for i := range prove.Paddings[1:] {
			if c.counted == nil {
				break
			}
			if err := add(w, c.past[w], &prove.Paddings[1+i]); err != nil {
				return nil, err
			}
		}
	}
	for _, x := range c.numbers(runs[0].values) {
		if err := add(0, x+3, nil); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// maxNumber bounds the numbers of a graph beyond which lengths are tried.
const maxNumber = 1 << 16

// numbers returns the numbers in the computation of some values, sorted.
func (c *cacheChange) numbers(made map[*onnx.Value]*reference.Tensor) (list []int64) {
	for _, n := range c.Model.Graph.Nodes {
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

// positions finds the values that are positions of the new tokens, with one row for all sequences or one for each.
// Everything else that depends on the length of the past must be computed from these.
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
		if c.counts(v) && !v.IsOutput() && !c.repeated(v) {
			if len(v.Uses()) > 0 {
				c.cuts = append(c.cuts, v)
			}
			return nil
		}
		if c.isOfNew(v) {
			return nil
		}
		if v.IsOutput() {
			return fmt.Errorf("output %q depends on the length of the past, which differs between the sequences",
				v.Name)
		}
		for _, use := range v.Uses() {
			n := use.Node
			if c.isKeyValid(use) {
				continue
			}
			for _, out := range n.Outputs {
				if out == nil {
					continue
				}
				if runs[0].values[out] == nil || n.Graph != c.Model.Graph {
					return fmt.Errorf("node %q (%s) reads the length of the past (%q) for something other than the "+
						"positions of new tokens, and the length differs between the sequences", n.Label(),
						n.OpType, v.Name)
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
	if c.counted != nil {
		return follow(c.counted)
	}
	return nil
}

// counts reports whether a value is the positions of the new tokens.
func (c *cacheChange) counts(v *onnx.Value) bool {
	return c.arePositions(c.runs, v, true) || c.arePositions(c.runs, v, false)
}

// repeated reports whether all readers of positions repeat them for each sequence. Then their results are replaced.
func (c *cacheChange) repeated(v *onnx.Value) bool {
	for _, u := range v.Uses() {
		if !u.Node.Is("Tile") && !u.Node.Is("Expand") || u.Index != 0 || !c.counts(u.Node.Outputs[0]) {
			return false
		}
	}
	return len(v.Uses()) > 0
}

// depends reports whether a value changes with the length of the past.
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

// arePositions reports whether a value is [1 or batch, new tokens, 1…] and counts from the length of the past or, with
// existing, from the number of valid tokens there.
func (c *cacheChange) arePositions(runs []lengthsRun, v *onnx.Value, existing bool) bool {
	for _, r := range runs {
		x := r.values[v]
		batch, added := int(c.batchOf(r.world)), int(c.added[r.world])
		if x == nil || len(x.Shape) < 2 || x.Shape[0] != 1 && x.Shape[0] != batch || x.Shape[1] != added ||
			x.Len() != x.Shape[0]*added || existing && (c.counted == nil || x.Shape[0] != batch) {
			return false
		}
		for i := range x.Len() {
			token := int(r.past) + i%added
			want := int64(token)
			if p := r.padding; existing && p != nil {
				exists := func(j int) bool { return p.Exists(i/added, j, int(r.past)+added) }
				if want = 0; !exists(token) {
					continue // its value is masked
				}
				for j := range token {
					if exists(j) {
						want++
					}
				}
			}
			if x.IsFloat() && x.F[i] != float64(want) || !x.IsFloat() && x.I[i] != want {
				return false
			}
		}
	}
	return true
}

// tokensBefore computes the number of valid tokens before the new ones from the mask.
func (c *cacheChange) tokensBefore() *onnx.Value {
	g := c.Model.Graph
	axis := onnx.NewInt64s("axis", []int64{1})
	axis.Dims = []int64{}
	mask := c.compute(g, "Cast", g.NewValue("mask"), c.counted)
	c.edit.SetAttr(mask.Producer, onnx.IntAttr("to", int64(onnx.Int64)))
	sum := c.compute(g, "CumSum", g.NewValue("mask_sum"), mask, c.edit.AddInitializer(g, axis))
	c.edit.SetAttr(sum.Producer, onnx.IntAttr("exclusive", 1))
	x := c.compute(g, "GatherElements", g.NewValue("tokens_before"), sum, c.rows)
	c.edit.SetAttr(x.Producer, onnx.IntAttr("axis", 1))
	c.rowPositions = append(c.rowPositions, x)
	return x
}

// countRows makes each sequence count its positions from its own length.
func (c *cacheChange) countRows() error {
	c.readers = nil // nothing reads their lengths any more
	if len(c.cuts)+len(c.ofNew) == 0 {
		return nil
	}
	g := c.Model.Graph
	for v := range c.runs[0].values { // it now has one row per sequence
		if t, ok := v.Type(); ok && !v.IsInput && depends(c.runs, v) {
			c.edit.SetType(v, onnx.Type{DataType: t.DataType})
		}
	}
	number := func(name string, x int64) *onnx.Value {
		t := onnx.NewInt64s(name, []int64{x})
		t.Dims = []int64{}
		return c.edit.AddInitializer(g, t)
	}
	count := c.compute(g, "Squeeze", g.NewValue("new_length"), c.size(c.fresh, "new_length_of"))
	steps := c.compute(g, "Range", g.NewValue("new_tokens"), number("zero", 0), count, number("one", 1))
	first := c.compute(g, "Unsqueeze", g.NewValue("first_position"), c.length,
		c.edit.AddInitializer(g, onnx.NewInt64s("axis", []int64{1})))
	c.rows = c.compute(g, "Add", g.NewValue("row_positions"), first, steps)
	c.rowPositions = append(c.rowPositions, c.rows)
	for _, v := range c.cuts {
		rank, _ := c.patched.Rank(v)
		x := c.rows
		if c.arePositions(c.runs, v, true) {
			x = c.tokensBefore()
		}
		if rank > 2 {
			shape := make([]int64, rank)
			for i := 2; i < rank; i++ {
				shape[i] = 1
			}
			x = c.compute(g, "Reshape", g.NewValue(v.Name+"_of_rows"), x,
				c.edit.AddInitializer(g, onnx.NewInt64s("shape", shape)))
		}
		if t := c.patched.DataType(v); t != onnx.Int64 {
			x = c.compute(g, "Cast", g.NewValue(v.Name+"_cast"), x)
			c.edit.SetAttr(x.Producer, onnx.IntAttr("to", int64(t)))
		}
		c.edit.Reread(v, x)
		c.edit.Drop(v.Producer)
	}
	c.reshapeRows()
	c.readOfNew(func(name string) *onnx.Value {
		x := c.compute(g, "GatherElements", g.NewValue(name), c.counted, c.rows)
		c.edit.SetAttr(x.Producer, onnx.IntAttr("axis", 1))
		return x
	})
	return nil
}

// reshapeRows makes a Reshape of values computed from positions keep their rows. An export in which all sequences share
// one row may have written that number as a constant: [1, -1, 12] for angles that are repeated for neighbors, or for
// embeddings of positions that were read as one list.
func (c *cacheChange) reshapeRows() {
	g := c.Model.Graph
	var count *onnx.Value // the number of rows
	for _, n := range slices.Clone(g.Nodes) {
		if !n.Is("Reshape") || len(n.Inputs) != 2 || n.Inputs[1].Constant() == nil || !depends(c.runs, n.Outputs[0]) {
			continue
		}
		x, y := c.runs[0].values[n.Inputs[0]], c.runs[0].values[n.Outputs[0]]
		shape, err := reference.FromONNX(n.Inputs[1].Constant())
		if err != nil || x == nil || len(x.Shape) == 0 || len(shape.I) < 2 || shape.I[0] != 1 {
			continue
		}
		sizes, name := shape.I, n.Outputs[0].Name+"_rows"
		if x.Shape[0] == 1 && (n.AttrInt("allowzero", 0) == 0 || !slices.Contains(sizes, 0)) {
			sizes = slices.Clone(sizes)
			sizes[0] = 0 // as many as in the input
			c.edit.SetInput(n, 1, c.edit.AddInitializer(g, onnx.NewInt64s(name, sizes)))
			c.edit.SetAttr(n, onnx.IntAttr("allowzero", 0))
		} else if sizes[1] == -1 && int64(y.Shape[1]) == c.added[0] {
			if count == nil {
				shape := c.compute(g, "Shape", g.NewValue("rows_shape"), c.rows)
				zero := c.edit.AddInitializer(g, onnx.NewInt64s("first_axis", []int64{0}))
				count = c.compute(g, "Gather", g.NewValue("rows"), shape, zero)
			}
			rest := c.edit.AddInitializer(g, onnx.NewInt64s(name+"_rest", sizes[1:]))
			joined := c.compute(g, "Concat", g.NewValue(name), count, rest)
			c.edit.SetAttr(joined.Producer, onnx.IntAttr("axis", 0))
			c.edit.SetInput(n, 1, joined)
		}
	}
}
