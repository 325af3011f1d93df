package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// ErrLastOnly reports that the model computes logits for only one position, so LastLogits has nothing to do.
var ErrLastOnly = errors.New("the model already computes the logits of only one position")

// LastLogits changes a language model that computes logits for every position, [batch, sequence, vocabulary], to
// compute only those of the last position, [batch, 1, vocabulary]. Generation reads no others. For a prompt of S tokens
// this saves S-1 rows of the model's largest product. In a padded batch, the last position is a token only with left
// padding.
//
// The logits are the float output with three axes that comes from a product with constant weights (MatMul, Gemm, or
// onnxruntime's MatMulNBits and FusedMatMul) through ops that treat each position by itself: Casts, scales, biases,
// softcaps, Softmax over the vocabulary, and Reshape between [batch, sequence, …] and [batch*sequence, …]. Among
// several candidates, LastLogits takes all with the largest last axis. The output may come from an If; then each branch
// has such a product. A Slice cuts the product's input to its last rows. The Slice is directly before the product,
// after the last norm, so that a sum and its norm stay one block.
//
// The output keeps its name and is declared with one position. Other readers of the logits or of intermediate values
// read a copy for all positions.
//
// LastLogits returns ErrLastOnly if the logits already have one position. It returns an error if it finds no such
// output, or if the ops after the product do not reproduce their old rows in the built-in evaluator. After the latter
// the model must not be used; after other errors it is unchanged.
func LastLogits(m *onnx.Model) error {
	if m == nil || m.Graph == nil {
		return errors.New("the model has no graph")
	}
	if opset := m.Opset(""); opset < fused.MinOpset {
		return fmt.Errorf("the model has opset %d: opset %d is the oldest supported", opset, fused.MinOpset)
	}
	for round := range len(m.Graph.Outputs) + 1 {
		c := &logitsCut{model: m, facts: infer.Analyze(m), constants: map[*onnx.Value]bool{}}
		found, err := c.find()
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(p *logitsPath) bool { return p.single })
		switch {
		case len(found) == 0 && round == 0:
			return ErrLastOnly
		case len(found) == 0:
			return nil
		}
		if err := c.cut(found[0]); err != nil {
			return err
		}
		if err := c.edit.RemoveUnread(m.Graph); err != nil {
			return err
		}
		if len(found) == 1 {
			return nil
		}
	}
	return errors.New("the shape of the logits of the last position is not known")
}

// find searches the outputs of the model for logits.
func (c *logitsCut) find() ([]*logitsPath, error) {
	var found []*logitsPath
	var reasons []string
	var greatest int64
	for i, v := range c.model.Graph.Outputs {
		p, err := c.output(c.model.Graph, i)
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("%q: %v", v.Name, err))
		case p.vocabulary > greatest:
			found, greatest = []*logitsPath{p}, p.vocabulary
		case p.vocabulary == greatest:
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no logits were found: they must be an output of floats [batch, sequence, vocabulary] "+
			"from a product with constant weights, followed only by ops on single positions (%s)",
			strings.Join(reasons[:min(len(reasons), 4)], "; "))
	}
	return found, nil
}

// logitsCut searches an unchanged model for logits and makes one change to it.
type logitsCut struct {
	edit      edit.Change
	model     *onnx.Model
	facts     *infer.Facts
	constants map[*onnx.Value]bool // whether a value is computed only from constants, as found so far
}

// logitsPath is the path from the product to an output with logits.
type logitsPath struct {
	graph      *onnx.Graph
	output     int // index among the outputs of the graph
	vocabulary int64
	single     bool // only one position is computed
	// product computes the rows. nodes are the nodes after it, in order. data[i] is the input by which nodes[i] reads
	// the node before it.
	product *onnx.Node
	nodes   []*onnx.Node
	data    []int
	// split is the index in nodes of the Reshape from [batch*sequence, …] to [batch, sequence, …], or -1 for rows with
	// three axes.
	split int
	// branches are the paths in the branches of an If, instead of product.
	branches []*logitsPath
}

// output looks for a path to an output of a graph.
func (c *logitsCut) output(g *onnx.Graph, i int) (*logitsPath, error) {
	v := g.Outputs[i]
	if t := c.facts.DataType(v); t != onnx.Undefined && !t.IsFloat() {
		return nil, fmt.Errorf("its elements are %s", t)
	}
	rank, ok := c.facts.Rank(v)
	if !ok {
		return nil, errors.New("its axes are not known")
	}
	if rank != 3 {
		return nil, fmt.Errorf("it has %d axes", rank)
	}
	p := &logitsPath{graph: g, output: i, split: -1}
	if p.vocabulary, ok = c.facts.Dim(v, 2); !ok {
		return nil, errors.New("the size of its last axis is not known")
	}
	if d, ok := c.facts.Dim(v, 1); ok && d == 1 {
		p.single = true
	}
	for {
		n := v.Producer
		if n == nil || v.Graph != g {
			return nil, fmt.Errorf("it is computed from %q, which is not a result of a product in the graph", v.Name)
		}
		if n.Is("If") {
			for _, s := range n.Subgraphs() {
				b, err := c.output(s, v.Output)
				if err != nil {
					return nil, fmt.Errorf("in a branch of node %q (If): %w", n.Name, err)
				}
				p.branches = append(p.branches, b)
			}
			if p.split >= 0 || len(p.branches) == 0 {
				return nil, fmt.Errorf("node %q (If) returns rows over two axes", n.Name)
			}
			break
		}
		if c.multipliesRows(n, p.split >= 0) {
			p.product = n
			break
		}
		at, err := c.step(n, p)
		if err != nil {
			return nil, fmt.Errorf("node %q (%s) %w", n.Name, n.OpType, err)
		}
		p.nodes, p.data = append(p.nodes, n), append(p.data, at)
		v = n.Input(at)
	}
	slices.Reverse(p.nodes)
	slices.Reverse(p.data)
	if p.split >= 0 {
		p.split = len(p.nodes) - 1 - p.split
	}
	return p, nil
}
