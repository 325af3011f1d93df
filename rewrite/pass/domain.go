package pass

import (
	"fmt"
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// CheckDomain returns an error if a model calls a function that has the name of a fused op but is not the op's
// definition. Registered kernels would run instead of such a function.
func CheckDomain(m *onnx.Model) error {
	functions := map[string]*onnx.Function{}
	for _, f := range m.Functions {
		if f.Domain == fused.Domain && fused.Lookup(f.Name) != nil {
			functions[edit.FunctionName(f)] = f
		}
	}
	if len(functions) == 0 { // spares the names of all nodes
		return nil
	}
	facts := sync.OnceValue(func() *infer.Facts { return infer.Analyze(m) })
	ours := map[*onnx.Function]bool{}
	doubtful := map[*onnx.Function]*onnx.Node{} // the first call that does not show whether the function is ours
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			f := functions[n.Domain+"."+n.OpType+"."+n.Overload]
			if f == nil || ours[f] {
				continue
			}
			switch is, err := isDefined(f, n, m, facts); {
			case is:
				ours[f] = true
			case err == nil:
				return shadowed(f, n)
			case doubtful[f] == nil:
				doubtful[f] = n
			}
		}
	}
	for _, f := range m.Functions {
		if n := doubtful[f]; n != nil && !ours[f] {
			return shadowed(f, n)
		}
	}
	return nil
}

func shadowed(f *onnx.Function, n *onnx.Node) error {
	return fmt.Errorf("node %q calls the function %s of the model, which is not the fused op of this name, but "+
		"kernels would run instead of it. Rename the function or its domain", n.Label(), onnx.OpName(f.Domain, f.Name))
}

// isDefined reports whether a function is the definition of the fused op with its name for a call, or looks like it if
// types of the call's inputs are unknown. It returns an error if the op does not take such a call.
func isDefined(f *onnx.Function, n *onnx.Node, m *onnx.Model, facts func() *infer.Facts) (bool, error) {
	if isWritten(n) {
		return true, nil
	}
	op, s := fused.Lookup(f.Name), FusedSite(m, facts(), n)
	var inputs, attributes []string
	for _, p := range op.Inputs {
		inputs = append(inputs, p.Name)
	}
	for _, a := range op.Attributes {
		attributes = append(attributes, a.Name)
	}
	if !slices.Equal(onnx.Names(f.Body.Inputs), inputs) || !slices.Equal(f.Attributes, attributes) {
		return false, nil
	}
	for i, v := range n.Inputs {
		if v != nil && s.Types[i] == onnx.Undefined {
			return true, nil
		}
	}
	s.Opset = f.Opset("")
	want, err := op.Function(s)
	return err == nil && f.SameBody(want), err
}

// isWritten reports whether this tool, in this or another version, wrote a node.
func isWritten(n *onnx.Node) bool {
	return slices.ContainsFunc(n.Metadata, func(e onnx.Entry) bool { return e.Key == edit.MetaRule })
}
