package moe

import (
	"github.com/mojo-patch/mojo-patch/onnx"
)

// maxBases bounds the values that are tried as the base of one y.
const maxBases = 3

// bases lists the values that the experts may be added to in y: values with a row of the size for each token that do
// not depend on the choice, without a product between them and y. Running the region shows whether one is added
// unchanged.
func (k *regionSeeker) bases(y *onnx.Value, hidden int64) []*onnx.Value {
	g := k.g
	var list []*onnx.Value
	open := func(v *onnx.Value) bool {
		return v == y || g.Owner(v.Graph) != nil || k.bits[v] != 0 && !k.isChoice(v)
	}
	for v := range onnx.Reach(func(v *onnx.Value) []*onnx.Value {
		if v.Producer == nil || !open(v) {
			return nil
		}
		return addedUp(v.Producer)
	}, y) {
		if !k.budget.Spend(lookSteps) {
			break
		}
		if !open(v) && !k.isChoice(v) && g.IsData(v) && k.rows(v) == hidden && len(list) < maxBases {
			list = append(list, v)
		}
	}
	return list
}

// addedUp lists the inputs that a node may add to its result unchanged, so not those that it multiplies or picks rows
// of. A loop adds to its initial values.
func addedUp(n *onnx.Node) (list []*onnx.Value) {
	switch n.OpType {
	case "Mul", "Div", "Gather", "GatherND":
		return nil
	case "Loop":
		return n.Inputs[min(2, len(n.Inputs)):]
	case "Scan":
		return n.Inputs[:max(0, len(n.Inputs)-int(n.AttrInt("num_scan_inputs", 0)))]
	case "If":
		for _, branch := range n.Subgraphs() {
			list = append(list, branch.Outputs...)
		}
		return list
	}
	if n.IsProduct() {
		return nil
	}
	return n.Inputs
}
