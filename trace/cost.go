package trace

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Cost is the minimal cost of a node: the bytes that it reads and writes, including weights, and the floating-point
// operations of its definition.
type Cost struct {
	Read    int64 `json:"bytes_read"`
	Written int64 `json:"bytes_written"`
	FLOPs   int64 `json:"flops"`
}

// Costs computes the costs of nodes. It caches them by op, attributes and shapes.
type Costs struct{ known map[string]int64 }

// NewCosts returns an empty cache.
func NewCosts() *Costs { return &Costs{known: map[string]int64{}} }

// Of returns the cost of a node.
func (c *Costs) Of(v *Visited) (Cost, error) {
	var cost Cost
	key := nodeKey(v.Node)
	for i, w := range v.Node.Inputs {
		t := v.Inputs[i]
		if w != nil && t == nil {
			t = w.Constant()
		}
		if t != nil {
			cost.Read += t.Size()
			key += fmt.Sprint(t.DataType, t.Dims)
		}
	}
	for _, t := range v.Outputs {
		if t != nil {
			cost.Written += t.Size()
		}
	}
	if n, known := c.known[key]; known {
		cost.FLOPs = n
		return cost, nil
	}
	count := func(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
		out, err := s.Op(n)
		if err == nil && onnx.IsStandardDomain(n.Domain) && len(out) > 0 && out[0] != nil && out[0].IsFloat() {
			cost.FLOPs += operations(n, s, out[0])
		}
		return out, err
	}
	if _, err := v.evaluate(reference.Options{Override: count}); err != nil {
		return cost, err
	}
	c.known[key] = cost.FLOPs
	return cost, nil
}

// operations counts the operations of a standard node: two per multiply-add of a product, one per computed or summed
// element, and zero if it moves, compares or converts elements.
func operations(n *onnx.Node, s *reference.Scope, out *reference.Tensor) int64 {
	size := func(i int) int64 {
		if t, err := s.Value(n.Inputs[i]); err == nil {
			return int64(t.Len())
		}
		return 0
	}
	switch n.OpType {
	case "MatMul", "Gemm":
		t, err := s.Value(n.Inputs[0])
		if err != nil || t.Rank() == 0 {
			return 0
		}
		inner := t.Shape[t.Rank()-1]
		if n.OpType == "Gemm" && n.AttrInt("transA", 0) != 0 {
			inner = t.Shape[0]
		}
		return 2 * int64(out.Len()) * int64(inner)
	case "Softmax": // a difference, an exponential, a sum and a quotient
		return 4 * int64(out.Len())
	case "Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "Exp", "Log", "Tanh", "Sigmoid", "Erf", "Neg", "Abs",
		"Softplus", "Relu", "Gelu", "Min", "Max", "Clip", "Sin", "Cos":
		return int64(out.Len())
	}
	if strings.HasPrefix(n.OpType, "Reduce") {
		return size(0)
	}
	return 0
}
