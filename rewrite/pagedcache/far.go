package pagedcache

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A model may choose its rotary tables by the greatest position: then a long sequence would change the tables of the
// others. The sequences of the claim are short, so checkFar computes what follows from positions alone for a position
// beyond each number that the model compares with.

// greatestNumber bounds the positions that are tried.
const greatestNumber = 1 << 16

// checkFar returns an error if values of packed tokens depend on the position of another, far token.
func (c *Change) checkFar() error {
	if c.row == nil {
		return nil
	}
	if assumed, _ := c.prover.Settled("the positions of packed sequences", ""); assumed {
		return nil
	}
	tried := []int64{0}
	for i := 0; i < len(tried); i++ {
		positions := []int64{tried[i], 0, 1, 7, 2}
		packed, numbers := c.follow(positions)
		var alone []map[*onnx.Value]*reference.Tensor
		for _, p := range positions {
			env, _ := c.follow([]int64{p})
			alone = append(alone, env)
		}
		if i == 0 {
			for _, x := range numbers {
				tried = append(tried, x+3)
			}
		}
		for _, n := range c.Model.Graph.Nodes {
			for _, v := range n.Outputs {
				if x := packed[v]; x != nil && c.leaves(packed, v) && !isOfTokens(x, alone, v) {
					return fmt.Errorf("node %q (%s) computes something else for packed sequences than for one "+
						"sequence if a position is %d", n.Label(), n.OpType, tried[i])
				}
			}
		}
	}
	return nil
}

// follow evaluates the nodes that depend only on positions, and lists the numbers that they read.
func (c *Change) follow(positions []int64) (env map[*onnx.Value]*reference.Tensor, numbers []int64) {
	e := reference.NewForOpset(c.Model.Opset(""), c.Model.Functions, reference.Options{})
	env = map[*onnx.Value]*reference.Tensor{c.row: reference.NewInts(onnx.Int64, []int{1, len(positions)}, positions)}
	for _, n := range c.Model.Graph.Nodes {
		known, reached := len(n.Subgraphs()) == 0 && !n.Is("Shape") && !n.Is("Size"), false
		in := map[*onnx.Value]*reference.Tensor{}
		for _, v := range n.Inputs {
			if v == nil {
				continue
			}
			x, ok := env[v]
			reached = reached || ok
			if ok {
				in[v] = x
			}
			known = known && (ok || v.Constant() != nil)
		}
		if !known || !reached {
			continue
		}
		if _, err := e.EvalFor([]*onnx.Node{n}, in, n.Outputs); err != nil {
			continue // such as a table that ends before
		}
		for _, v := range n.Outputs {
			if v != nil {
				env[v] = in[v]
			}
		}
		for _, v := range n.Inputs {
			if v == nil || env[v] != nil || v.Constant().Len() != 1 {
				continue
			}
			if t, err := reference.FromONNX(v.Constant()); err == nil {
				for _, x := range t.Floats() { // strings have none
					if x > 8 && x <= greatestNumber {
						numbers = append(numbers, int64(x))
					}
				}
			}
		}
	}
	slices.Sort(numbers)
	return env, slices.Compact(numbers)
}

// leaves reports whether a node that depends on more than positions reads a value.
func (c *Change) leaves(known map[*onnx.Value]*reference.Tensor, v *onnx.Value) bool {
	unknown := func(u onnx.Use) bool { return known[u.Node.Outputs[0]] == nil }
	return v.IsOutput() || slices.ContainsFunc(v.Uses(), unknown)
}

// isOfTokens reports whether a value has a row for each token, which equals the value for this token alone, or is the
// same for all tokens.
func isOfTokens(x *reference.Tensor, alone []map[*onnx.Value]*reference.Tensor, v *onnx.Value) bool {
	all := x.Floats()
	for i, env := range alone {
		y := env[v]
		if y == nil {
			return true // a far position cannot be computed, for one sequence as well
		}
		one := y.Floats()
		if slices.Equal(x.Shape, y.Shape) {
			if !slices.Equal(all, one) {
				return false
			}
			continue
		}
		axis := slices.IndexFunc(x.Shape, func(n int) bool { return n == len(alone) })
		if axis < 0 || len(y.Shape) != len(x.Shape) || y.Shape[axis] != 1 {
			return false
		}
		inner := 1
		for _, n := range x.Shape[axis+1:] {
			inner *= n
		}
		if len(one)*len(alone) != len(all) {
			return false
		}
		for k := range one {
			if at := (k/inner*len(alone)+i)*inner + k%inner; all[at] != one[k] {
				return false
			}
		}
	}
	return true
}
