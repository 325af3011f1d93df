package rewrite

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// maxOrderNodes bounds the search for a cycle.
const maxOrderNodes = 1 << 14

// checkOrder refuses a match one of whose inputs depends on one of its outputs: as one node it would depend on itself.
// That can only be with several outputs.
func (a *applier) checkOrder(c *candidate) error {
	if len(c.match.Outputs) < 2 {
		return nil
	}
	order := c.scope.Positions()
	outputs := map[*onnx.Value]bool{}
	first := len(order)
	for _, v := range c.match.Outputs {
		outputs[v] = true
		first = min(first, order[v.Producer])
	}
	seen := map[*onnx.Node]bool{}
	var reaches func(v *onnx.Value) (bool, error)
	reaches = func(v *onnx.Value) (bool, error) {
		if v == nil {
			return false, nil
		}
		if outputs[v] {
			return true, nil
		}
		n := v.Producer
		if n == nil || n.Graph != c.scope.Graph || order[n] <= first || seen[n] {
			return false, nil
		}
		seen[n] = true
		if len(seen) > maxOrderNodes || len(n.Subgraphs()) > 0 {
			return false, reason.New(reason.Depends, n,
				"whether input %q depends on the outputs of the match cannot be seen", v.Name)
		}
		for _, in := range n.Inputs {
			if r, err := reaches(in); r || err != nil {
				return r, err
			}
		}
		return false, nil
	}
	for _, v := range c.match.Inputs {
		r, err := reaches(v)
		if err != nil {
			return err
		}
		if r {
			return reason.New(reason.Depends, v.Producer, "input %q of the match depends on one of its outputs", v.Name)
		}
	}
	return nil
}

// sameFunction reports whether two definitions hold the same nodes between the same names.
func sameFunction(a, b *onnx.Function) bool { return functionKey(a) == functionKey(b) }

func functionKey(f *onnx.Function) string {
	key := fmt.Sprintf("%d %q\n", f.Opset(""), f.Attributes)
	return key + graphKey(f.Body)
}

func graphKey(g *onnx.Graph) string {
	var b strings.Builder
	for _, n := range g.Nodes {
		var plain []*onnx.Attribute
		for _, a := range n.Attributes {
			if a.Type == onnx.AttrGraph { // attributesKey takes each for another one
				fmt.Fprintf(&b, "%s {%s} of ", a.Name, graphKey(a.Graph))
			} else {
				plain = append(plain, a)
			}
		}
		fmt.Fprintf(&b, "%s.%s.%s %v %v %s\n", n.Domain, n.OpType, n.Overload, valueNames(n.Inputs),
			valueNames(n.Outputs), onnx.AttributesKey(plain))
	}
	fmt.Fprintf(&b, "%v %v\n", valueNames(g.Inputs), valueNames(g.Outputs))
	return b.String()
}

func valueNames(vs []*onnx.Value) []string {
	names := make([]string, len(vs))
	for i, v := range vs {
		if v != nil {
			names[i] = v.Name
		}
	}
	return names
}
