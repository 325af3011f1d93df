package sites

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// Lower replaces the fused ops of the replacement, and thus the calls of their definitions, by the target's ops and
// returns the names of these. products is shared by the model; facts belong to the graph of the match. If the target
// has nothing for the site, the error has the code reason.Target.
func (c *Site) Lower(t *target.Target, products *target.Products, facts *infer.Facts) (emits []string, err error) {
	if len(c.Calls) > 0 {
		if emits, err = c.write(t, products, facts); err != nil {
			return nil, err
		}
	}
	if !t.OnCPU {
		return emits, nil
	}
	if err := t.Lacks(c.Match.Replacement.Nodes, c.Facts, c.Nodes(), facts); err != nil {
		return nil, reason.New(reason.Target, nil, "target %s: %w", t.Name, err).With("target", t.Name)
	}
	return emits, nil
}

func (c *Site) write(t *target.Target, products *target.Products, facts *infer.Facts) (emits []string, err error) {
	calls := make([]*target.Call, len(c.Calls))
	for i, call := range c.Calls {
		calls[i] = target.NewCall(call.Node, call.Site)
		calls[i].Repeats, calls[i].Fixed, calls[i].Others = c.repeats, c.IsConstant, calls[:i]
		calls[i].SameSize, calls[i].Products = c.sameSize, products
	}
	g := c.Match.Replacement
	for i, call := range slices.Backward(calls) {
		if !slices.Contains(g.Nodes, c.Calls[i].Node) {
			continue // a later call absorbed it
		}
		wrote, err := t.Write(call)
		if err != nil {
			return nil, reason.New(reason.Target, nil, "%w", err).With("target", t.Name).With("op", call.Op)
		}
		emits = append(emits, wrote)
		if err := new(edit.Change).RemoveUnreadNodes(g); err != nil { // read only by the fused op
			return nil, err
		}
	}
	same := slices.Equal[[]string]
	if policies[c.Match.Op].growing {
		same = isPart
	}
	if have := OpNames(c.Match.Nodes); same(have, OpNames(g.Nodes)) {
		return nil, reason.New(reason.Target, nil, "target %s: it is %s already", t.Name,
			strings.Join(have, ", ")).With("target", t.Name)
	}
	c.Functions = slices.DeleteFunc(c.Functions, func(f *onnx.Function) bool {
		return !slices.ContainsFunc(c.Match.Replacement.Nodes, func(n *onnx.Node) bool {
			return n.Domain == f.Domain && n.OpType == f.Name
		})
	})
	c.Facts = facts.Within(c.Match.Replacement, c.Match.Inputs, c.Match.Functions...)
	return emits, nil
}

// isPart reports whether a sorted list is contained in another one, counting repetitions.
func isPart(list, of []string) bool {
	for _, x := range list {
		i, found := slices.BinarySearch(of, x)
		if !found {
			return false
		}
		of = of[i+1:]
	}
	return true
}

// OpNames returns the sorted ops of the nodes, except nodes that read only constants.
func OpNames(nodes []*onnx.Node) []string {
	var names []string
	for _, n := range nodes {
		if slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool { return v != nil && v.Constant() == nil }) {
			names = append(names, onnx.OpName(n.Domain, n.OpType))
		}
	}
	slices.Sort(names)
	return names
}

// IsConstant reports whether a value of the replacement depends only on constants, which are folded.
func (c *Site) IsConstant(v *onnx.Value) bool {
	if v == nil || c.Scope.Function != nil { // a function's body cannot hold initializers
		return false
	}
	if i := slices.Index(c.Match.Replacement.Inputs, v); i >= 0 {
		return c.Match.Inputs[i].Constant() != nil
	}
	if v.Constant() != nil {
		return true
	}
	n := v.Producer
	return n != nil && onnx.IsStandardDomain(n.Domain) && len(n.Inputs) > 0 &&
		!slices.ContainsFunc(n.Inputs, func(in *onnx.Value) bool { return in != nil && !c.IsConstant(in) })
}

// sameSize reports whether dimensions of two values of the replacement are equal in all worlds.
func (c *Site) sameSize(v *onnx.Value, axis int, w *onnx.Value, other int) bool {
	for world := range infer.Worlds {
		if n := c.Facts.Size(v, world, axis); n < 0 || n != c.Facts.Size(w, world, other) {
			return false
		}
	}
	return true
}

// repeats reports whether the last axis of an input of the replacement holds every element twice, and records it,
// because the check must then use such inputs.
func (c *Site) repeats(v *onnx.Value, neighbors bool) bool {
	i := slices.Index(c.Match.Replacement.Inputs, v)
	if i < 0 || c.Match.Repeats == nil || !c.Match.Repeats(c.Match.Inputs[i], neighbors) {
		return false
	}
	if c.twice == nil {
		c.twice = map[int]bool{}
	}
	c.twice[i] = neighbors
	return true
}

// repeatInput makes an input of the check hold every element twice along its last axis, like the model's.
func (c *Site) repeatInput(i int, t *reference.Tensor) {
	neighbors, twice := c.twice[i]
	if !twice || t.Rank() == 0 {
		return
	}
	n := t.Shape[t.Rank()-1]
	for k := range t.F {
		row, at := k/n*n, k%n
		if neighbors {
			t.F[k] = t.F[row+at/2*2]
		} else {
			t.F[k] = t.F[row+at%(n/2)]
		}
	}
}
