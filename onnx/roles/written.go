package roles

import "github.com/mojo-patch/mojo-patch/onnx"

// written reports whether a use of a past is for its rows and the new ones in one tensor of the past's shape. It
// returns Buffer or Pool, and the tensor, or nil if nothing reads it; else Other. Fused ops make the tensor, or the
// nodes of their definitions.
func written(u onnx.Use) (Role, *onnx.Value) {
	n, first := u.Node, firstPast(u.Node)
	switch {
	case first > 0 && isPaged(n) && first <= u.Index && u.Index < first+2:
		return Pool, n.OutputValue(1 + u.Index - first)
	case isCoded(n) && pastLengthInput+2 <= u.Index && u.Index < pastLengthInput+4:
		return Pool, n.OutputValue(u.Index - pastLengthInput + 1)
	case first > 0 && !isPaged(n) && first <= u.Index && u.Index < pastLengthInput && n.Input(pastLengthInput) != nil:
		return Buffer, n.OutputValue(1 + u.Index - first)
	case u.Index > 0:
	case n.Is("Concat"):
		for _, r := range readers(n, "GatherElements") {
			if rows := producer(r.Input(1)); rows.Is("Expand") && isShapeOf(rows.Input(1), n.Inputs[0]) {
				return Buffer, r.OutputValue(0)
			}
		}
	case n.Is("Reshape"):
		for _, w := range readers(n, "ScatterND") {
			for _, r := range readers(w, "Reshape") {
				if isShapeOf(r.Input(1), n.Inputs[0]) {
					return Pool, r.OutputValue(0)
				}
			}
		}
	}
	return Other, nil
}

// readers returns the nodes of a type whose first input is the first output of a node.
func readers(n *onnx.Node, opType string) (list []*onnx.Node) {
	if v := n.OutputValue(0); v != nil {
		for _, u := range v.Uses() {
			if u.Index == 0 && u.Node.Is(opType) {
				list = append(list, u.Node)
			}
		}
	}
	return list
}

// isShapeOf reports whether a value is the whole shape of another one.
func isShapeOf(shape, v *onnx.Value) bool {
	n := producer(shape)
	return n.Is("Shape") && n.Input(0) == v && n.AttrInt("start", 0) == 0 && n.Attr("end") == nil
}

func producer(v *onnx.Value) *onnx.Node {
	if v == nil {
		return nil
	}
	return v.Producer
}
