package staticcache

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// checkUnequal compares attention on sequences of different lengths, with the inputs of a trial, with attention on each
// sequence separately.
func (c *cacheChange) checkUnequal(s *cacheSite, run func([]*reference.Tensor) ([]*reference.Tensor, error),
	t prove.Lengths, in []*reference.Tensor, r *prove.CheckReport) error {
	if !c.options.RowLengths || t.Past == 0 || t.Batch < 2 {
		return nil
	}
	lengths := make([]int64, t.Batch)
	for b := range lengths {
		lengths[b] = max(0, t.Past-int64(b))
	}
	in = slices.Clone(in)
	in[s.op.Length] = reference.NewInts(onnx.Int64, []int{len(lengths)}, lengths)
	for _, i := range s.op.Pasts {
		in[i] = withJunk(in[i], lengths, t.Junk)
	}
	all, err := run(in)
	if err != nil {
		return &prove.EvalError{Err: err}
	}
	for b := range lengths {
		alone := make([]*reference.Tensor, len(in))
		for i, x := range in {
			if name := s.op.Input(i); x == nil || name == "sink" || name == "w" {
				alone[i] = x
			} else {
				alone[i] = rowOf(x, b)
			}
		}
		want, err := run(alone)
		if err != nil {
			return &prove.EvalError{Err: err}
		}
		for i, w := range want {
			if got := rowOf(all[i], b); !slices.EqualFunc(w.F, got.F,
				func(x, y float64) bool { return x == y || x != x && y != y }) {
				return fmt.Errorf("sequence %d of a batch differs from the same sequence in a batch of one", b)
			}
		}
	}
	return c.checkKernel(s, in, all, r)
}

// withJunk returns a buffer with tokens up to the length of each sequence, and junk after them.
func withJunk(buffer *reference.Tensor, lengths []int64, junk float64) *reference.Tensor {
	out := reference.NewFloats(buffer.DataType, buffer.Shape, slices.Clone(buffer.F))
	heads, room, width := buffer.Shape[1], buffer.Shape[prove.CacheAxis], buffer.Shape[3]
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

// rowOf returns a row of a tensor as a batch of one.
func rowOf(x *reference.Tensor, b int) *reference.Tensor {
	n, shape := x.Len()/max(x.Shape[0], 1), slices.Clone(x.Shape)
	shape[0] = 1
	if x.IsFloat() {
		return reference.NewFloats(x.DataType, shape, x.F[b*n:(b+1)*n])
	}
	return reference.NewInts(x.DataType, shape, x.I[b*n:(b+1)*n])
}

// checkRowPositions compares the values computed from positions of sequences of different lengths with those of each
// sequence separately. It also checks that their readers take one row per sequence.
func (c *cacheChange) checkRowPositions() error {
	if c.rows == nil {
		return nil
	}
	if assumed, _ := c.prover.Settled("the positions of sequences of different lengths", ""); assumed {
		return nil
	}
	for w := range prove.CheckedWorlds {
		lengths := make([]int64, c.batchOf(w))
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
			if err == nil && len(long) == len(all) { // else a table of positions ends earlier
				err = c.checkRowsAt(w, lengths, long)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRowsAt is checkRowPositions in one world, for sequences of these lengths and all values computed from their
// positions.
func (c *cacheChange) checkRowsAt(w int, lengths []int64, all map[*onnx.Value]*reference.Tensor) error {
	batch, rows := len(lengths), all[c.rows]
	for i, x := range rows.I {
		if want := lengths[i/int(c.added[w])] + int64(i)%c.added[w]; x != want {
			return fmt.Errorf("%q is %d for a token at position %d", c.rows.Name, x, want)
		}
	}
	fixed := map[*onnx.Value]bool{} // such as the number of channels of a table
	for v, x := range all {
		k, ok := c.patched.Constant(v)
		fixed[v] = ok && sameElements(k, x)
	}
	for b, length := range lengths {
		alone, err := c.atLengths(w, []int64{length})
		if err != nil {
			return err
		}
		for _, n := range c.Model.Graph.Nodes {
			for _, v := range n.Outputs {
				x := all[v]
				if x == nil || fixed[v] && alone[v] != nil && sameElements(x, alone[v]) {
					continue
				}
				if c.leaves(all, v) && !isRow(x, alone[v], b, batch) {
					return fmt.Errorf("node %q (%s) computes %q from the positions of all sequences together, and it "+
						"differs from its value for each sequence in a batch of one", n.Label(), n.OpType, v.Name)
				}
			}
		}
	}
	for v, x := range all {
		for _, use := range v.Uses() {
			if fixed[v] {
				continue
			}
			if all[use.Node.Outputs[0]] == nil && !c.takesRows(use, len(x.Shape), int64(batch), w) {
				return fmt.Errorf("node %q (%s) reads %q, but is not known to take a row of it for each sequence",
					use.Node.Label(), use.Node.OpType, v.Name)
			}
		}
	}
	return nil
}

// atLengths evaluates the values computed from positions of sequences of these lengths.
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
	if c.counted != nil {
		room := slices.Max(lengths) + c.added[w]
		env[c.counted] = prove.NoPadding.Tensor(c.facts.DataType(c.counted), []int64{int64(len(lengths)), room})
	}
	c.follow(w, env)
	made := map[*onnx.Value]*reference.Tensor{c.rows: env[c.rows]}
	if x := made[c.rows]; x == nil || x.Len() != len(lengths)*int(c.added[w]) {
		return nil, fmt.Errorf("cannot be checked: %q is %s with %d new tokens", c.rows.Name, x,
			c.added[w])
	}
	for _, n := range c.Model.Graph.Nodes {
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

// leaves reports whether an unknown node or an output reads a value computed from positions.
func (c *cacheChange) leaves(made map[*onnx.Value]*reference.Tensor, v *onnx.Value) bool {
	unknown := func(u onnx.Use) bool { return made[u.Node.Outputs[0]] == nil }
	return v.IsOutput() || slices.ContainsFunc(v.Uses(), unknown)
}

// isRow reports whether y equals row b of x, which has a row for each sequence of the batch. y has as many rows, or
// one.
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

// broadcasting are the ops that, for equal ranks, compute each row of the output from a row of each input, or from its
// only row.
var broadcasting = map[string]bool{"Add": true, "Sub": true, "Mul": true, "Div": true, "Where": true}

// takesRows reports whether a node reads one row for each sequence of the batch of a value with this rank.
func (c *cacheChange) takesRows(use onnx.Use, rank int, batch int64, world int) bool {
	n := use.Node
	if n.Graph != c.Model.Graph || len(n.Outputs) == 0 || n.Outputs[0] == nil {
		return false
	}
	shape, ok := c.patched.Shape(n.Outputs[0], world)
	if !ok || len(shape) == 0 || shape[0] != batch {
		return false
	}
	byRows := onnx.IsStandardDomain(n.Domain) && broadcasting[n.OpType]
	if n.Domain == fused.Domain {
		switch n.OpType {
		case fused.RotaryEmbeddingName, fused.NormRotaryName:
			byRows = true
		case fused.AddLayerNormName, fused.AddRMSNormName: // both inputs are as large as the output
			byRows = use.Index == fused.AddLayerNormX || use.Index == fused.AddLayerNormResidual
		}
	}
	switch {
	case byRows:
		return len(shape) == rank
	case n.Is("RotaryEmbedding"): // the standard's: its tables are [batch, sequence, width]
		return use.Index > 0 && rank == 3
	}
	return false
}
