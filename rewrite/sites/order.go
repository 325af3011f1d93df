package sites

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// maxOrderNodes bounds the search for a cycle.
const maxOrderNodes = 1 << 14

// CheckOrder refuses a match with an input that depends on one of its outputs: a single node would then depend on
// itself. This requires several outputs.
func (c *Site) CheckOrder() error {
	if len(c.Match.Outputs) < 2 {
		return nil
	}
	order := c.Scope.Positions()
	outputs := map[*onnx.Value]bool{}
	first := len(order)
	for _, v := range c.Match.Outputs {
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
		if n == nil || n.Graph != c.Scope.Graph || order[n] <= first || seen[n] {
			return false, nil
		}
		seen[n] = true
		if len(seen) > maxOrderNodes || len(n.Subgraphs()) > 0 {
			return false, reason.New(reason.Depends, n,
				"it is not known whether input %q depends on the outputs of the match", v.Name)
		}
		for _, in := range n.Inputs {
			if r, err := reaches(in); r || err != nil {
				return r, err
			}
		}
		return false, nil
	}
	for _, v := range c.Match.Inputs {
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
