package reference

import (
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// nodeSteps is the minimum number of steps to evaluate a node.
const nodeSteps = 256

// steps estimates the steps to evaluate a node on its inputs, besides those for the output elements. A step is some
// nanoseconds.
func steps(n *onnx.Node, in []*Tensor) int {
	sum := nodeSteps
	for _, t := range in {
		sum += tensor.Footprint(t)
	}
	shape := func(i int) []int {
		if i >= len(in) || in[i] == nil {
			return nil
		}
		return in[i].Shape
	}
	a, b := shape(0), shape(1)
	switch {
	case n.OpType == "Einsum":
		sum += einsumSteps(n, in)
	case n.OpType == "TopK" || n.OpType == "Unique":
		sum += 16 * tensor.Size(a)
	case strings.HasPrefix(n.OpType, "Conv") && len(a) > 1 && len(b) > 1:
		sum += tensor.Size(a) / max(a[1], 1) * tensor.Size(b)
	case !n.IsProduct() || len(a) == 0 || len(b) == 0:
	case n.OpType == "Gemm":
		sum += tensor.Size(a) * tensor.Size(b) / max(min(a[0], b[0]), min(a[len(a)-1], b[len(b)-1]), 1)
	default: // each row of one with each column of the other, once for each of the greater batch
		sum += max(tensor.Size(a)*b[len(b)-1], tensor.Size(b)*a[max(0, len(a)-2)])
	}
	return sum
}

// einsumSteps counts the products of an Einsum.
func einsumSteps(n *onnx.Node, in []*Tensor) int {
	equation := ""
	if a := n.Attr("equation"); a != nil {
		equation = strings.ReplaceAll(a.String, " ", "")
	}
	left, _, _ := strings.Cut(equation, "->")
	dims := map[rune]int{}
	for i, term := range strings.Split(left, ",") {
		letters := []rune(strings.ReplaceAll(term, "...", ""))
		if i >= len(in) || in[i] == nil || len(letters) > in[i].Rank() {
			continue
		}
		for k, d := range in[i].Shape[in[i].Rank()-len(letters):] {
			dims[letters[k]] = max(d, dims[letters[k]])
		}
	}
	product := 1
	for _, d := range dims {
		if product *= max(d, 1); product > tensor.MaxElements {
			break // CheckShape rejects it
		}
	}
	return product
}
