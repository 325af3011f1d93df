package patterns

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// Around describes the neighbors of an anchor node that no pattern comes near to.
func Around(n *onnx.Node) *reason.Reason {
	var before, after []string
	for _, v := range n.Inputs {
		if v != nil && v.Producer != nil && !v.Producer.Is("Constant") && !slices.Contains(before, v.Producer.OpType) {
			before = append(before, v.Producer.OpType)
		}
	}
	output := false
	for _, v := range n.Outputs {
		if v == nil {
			continue
		}
		for _, u := range v.Uses() {
			if !slices.Contains(after, u.Node.OpType) {
				after = append(after, u.Node.OpType)
			}
		}
		output = output || v.IsOutput()
	}
	near := func(ops ...string) bool {
		return slices.ContainsFunc(slices.Concat(before, after),
			func(op string) bool { return slices.Contains(ops, op) })
	}
	code := reason.Other
	switch {
	case (n.OpType == "Neg" || n.OpType == "Sub") && len(before) > 0 &&
		slices.Contains([]string{"Slice", "Split", "Gather"}, before[0]):
		code = reason.HeadSize
	case n.OpType == "ReduceMean" && len(before) > 0 && near("Sub"):
		code = reason.MeanTaken
	case (n.OpType == "Sigmoid" || n.OpType == "Swish") && len(before) > 0 && near("TopK", "GatherElements", "Add"):
		code = reason.RouterScores
	}
	text := n.OpType
	if len(before) > 0 {
		text += " of " + strings.Join(before, ", ")
	}
	if output {
		after = append(after, "an output of the graph")
	}
	if len(after) > 0 {
		text += ", which goes to " + strings.Join(after, ", ")
	}
	return reason.New(code, n, "%s", text)
}
