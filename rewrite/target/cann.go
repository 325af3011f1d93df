package target

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// A CANNReport counts the changes that AvoidCANN made.
type CANNReport struct {
	// Expanded counts nodes with two broadcast inputs. An Expand now broadcasts one of them.
	Expanded int `json:"expanded,omitempty"`
	// MatMuls counts the Gemm nodes without C that became MatMul nodes.
	MatMuls int `json:"matmuls,omitempty"`
}

// AvoidCANN rewrites constructs that onnxruntime's CANN provider (1.24.4 was tried) computes wrongly. It returns nil
// without a change.
func AvoidCANN(graphs []*onnx.Graph, facts *infer.Facts) (*CANNReport, error) {
	c := new(edit.Change)
	r := CANNReport{Expanded: oneBroadcast(c, graphs, facts), MatMuls: withoutC(c, graphs, facts)}
	if r == (CANNReport{}) {
		return nil, nil
	}
	return &r, c.Finish()
}

// Text returns a line for each kind of change, or "" for nil.
func (r *CANNReport) Text() string {
	if r == nil {
		return ""
	}
	var b strings.Builder
	if r.Expanded > 0 {
		fmt.Fprintf(&b, "%-18s for %d nodes with both inputs broadcast, which onnxruntime's CANN provider gets wrong\n",
			"Expand added", r.Expanded)
	}
	if r.MatMuls > 0 {
		fmt.Fprintf(&b, "%-18s in %d nodes without C, for which that provider adds uninitialized memory\n",
			"MatMul for Gemm", r.MatMuls)
	}
	return b.String()
}

// withoutC turns Gemm nodes without C into MatMul nodes and returns their number. The provider's Gemm, which is
// float16, reads C even if it is absent. onnxruntime evaluates the Transpose of a weight when it opens the model.
func withoutC(c *edit.Change, graphs []*onnx.Graph, facts *infer.Facts) int {
	count := 0
	for _, g := range graphs {
		for _, n := range g.Nodes {
			if !n.Is("Gemm") || n.Input(2) != nil || n.AttrFloat("alpha", 1) != 1 {
				continue
			}
			if t := facts.DataType(n.Input(0)); t != onnx.Float16 && t != onnx.Undefined {
				continue
			}
			for i, attr := range []string{"transA", "transB"} {
				if n.AttrInt(attr, 0) == 0 {
					continue
				}
				v := n.Input(i)
				turned := g.NewValue(v.Name + "_transposed")
				c.Insert(n, c.NewNode(g, "Transpose", []*onnx.Value{v}, []*onnx.Value{turned},
					onnx.IntsAttr("perm", []int64{1, 0})))
				c.SetInput(n, i, turned)
			}
			c.Become(n, "MatMul")
			c.SetInputs(n, n.Inputs[:2]...)
			count++
		}
	}
	return count
}

// oneBroadcast makes each Add, Sub, Mul and Div node broadcast at most one input: if both may be broadcast, it adds an
// Expand of the first. It returns the number of added Expands. The provider copies both broadcast inputs to the same
// memory, so that such a node reads only its second input. Rotary embeddings compute their angles with one.
func oneBroadcast(c *edit.Change, graphs []*onnx.Graph, facts *infer.Facts) int {
	count := 0
	for _, g := range graphs {
		for _, n := range g.Nodes {
			if !n.Is("Add") && !n.Is("Sub") && !n.Is("Mul") && !n.Is("Div") {
				continue
			}
			a, b := n.Input(0), n.Input(1)
			if a == nil || b == nil || facts.DataType(a) == onnx.BFloat16 || !bothBroadcast(facts, a, b) {
				continue
			}
			shape, wide := g.NewValue(b.Name+"_shape"), g.NewValue(a.Name+"_expanded")
			c.Insert(n, c.NewNode(g, "Shape", []*onnx.Value{b}, []*onnx.Value{shape}),
				c.NewNode(g, "Expand", []*onnx.Value{a, shape}, []*onnx.Value{wide}))
			c.SetInput(n, 0, wide)
			count++
		}
	}
	return count
}

// bothBroadcast reports whether each input may have a shape other than the result's. An unknown shape may.
func bothBroadcast(facts *infer.Facts, a, b *onnx.Value) bool {
	m, okA := facts.Rank(a)
	n, okB := facts.Rank(b)
	if !okA || !okB {
		return !scalar(facts, a) && !scalar(facts, b)
	}
	growsA, growsB := m < n, n < m
	for i := 1; i <= min(m, n); i++ {
		x, y := sizes(facts, a, m-i), sizes(facts, b, n-i)
		for w := range x {
			if x[w] >= 0 && x[w] == y[w] {
				continue
			}
			growsA = growsA || x[w] == 1 || x[w] < 0 || y[w] != 1
			growsB = growsB || y[w] == 1 || y[w] < 0 || x[w] != 1
		}
	}
	return growsA && growsB
}

func scalar(facts *infer.Facts, v *onnx.Value) bool {
	rank, ok := facts.Rank(v)
	return ok && rank == 0
}

// sizes returns a dimension in every world, -1 if it is unknown.
func sizes(facts *infer.Facts, v *onnx.Value, axis int) (list [infer.Worlds]int64) {
	for w := range list {
		list[w] = facts.Size(v, w, axis)
	}
	return list
}
