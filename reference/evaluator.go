package reference

import (
	"fmt"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
)

// Options control how a graph is evaluated.
type Options struct {
	// Exact ignores roundings to, and casts between, floating-point types: every float is float64. Then two graphs of
	// the same formula differ only by the order of operations.
	Exact bool
	// Perturb, unless it is 0, seeds an evaluation with different roundings, to measure how much rounding changes a
	// result. Sums are computed in float32, term by term in an order of the seed, and every rounded number is then one
	// unit in its last place too large or too small. Exact disables it.
	Perturb uint64
	// Override, if set, is called for every node before its inputs are read, in subgraphs and functions too. It returns
	// the node's outputs, or nil to evaluate the node as usual.
	Override func(n *onnx.Node, s *Scope) ([]*Tensor, error)
	// Spend, if set, is called with the steps of each node, in subgraphs and functions too: some before it is
	// evaluated, and one for each element that it computes. Its error ends the evaluation.
	Spend func(steps int) error
}

// cachedElements is the size up to which a decoded constant is kept for the next use. Larger ones are weights: decoded
// they take up to eight times their size, and are read piece by piece if possible.
const cachedElements = 1 << 20

// Evaluator evaluates nodes, or a whole model. It is safe for concurrent use.
type Evaluator struct {
	model     *onnx.Model // nil if made by NewForOpset
	opset     int64
	functions map[functionKey]*onnx.Function
	bodies    map[*onnx.Graph]*onnx.Function
	options   Options

	mu     sync.Mutex
	consts map[*onnx.Value]*Tensor
}

type functionKey struct{ domain, name, overload string }

// New returns an evaluator of the model. It decodes nothing yet; Run reports unsupported ops.
func New(m *onnx.Model, o Options) (*Evaluator, error) {
	if m == nil || m.Graph == nil {
		return nil, fmt.Errorf("the model has no graph")
	}
	e := NewForOpset(m.Opset(""), m.Functions, o)
	e.model = m
	return e, nil
}

// NewForOpset returns an evaluator only for Op and Eval, of nodes of this standard opset that may call the functions.
func NewForOpset(opset int64, functions []*onnx.Function, o Options) *Evaluator {
	e := &Evaluator{
		opset: opset, options: o,
		functions: make(map[functionKey]*onnx.Function, len(functions)),
		bodies:    make(map[*onnx.Graph]*onnx.Function, len(functions)),
		consts:    map[*onnx.Value]*Tensor{},
	}
	for _, f := range functions {
		e.functions[functionKey{canonicalDomain(f.Domain), f.Name, f.Overload}] = f
		e.bodies[f.Body] = f
	}
	return e
}

// ForOpset returns an evaluator of the same functions for Op and Eval of nodes of another opset.
func (e *Evaluator) ForOpset(opset int64) *Evaluator {
	return &Evaluator{opset: opset, options: e.options, functions: e.functions, bodies: e.bodies,
		consts: map[*onnx.Value]*Tensor{}}
}

// WithOptions returns an evaluator of the same functions and opset with other options, for Op and Eval.
func (e *Evaluator) WithOptions(o Options) *Evaluator {
	other := e.ForOpset(e.opset)
	other.options = o
	return other
}

func canonicalDomain(d string) string {
	if onnx.IsStandardDomain(d) {
		return ""
	}
	return d
}

// function finds the model-local function that the node calls, including functions added later.
func (e *Evaluator) function(n *onnx.Node) *onnx.Function {
	if f := e.functions[functionKey{canonicalDomain(n.Domain), n.OpType, n.Overload}]; f != nil || e.model == nil {
		return f
	}
	if onnx.IsStandardDomain(n.Domain) {
		return nil
	}
	return e.model.Function(n.Domain, n.OpType, n.Overload)
}

// frameOf returns the frame of a node that is evaluated by itself: functions' bodies may import another opset.
func (e *Evaluator) frameOf(n *onnx.Node) *op.Frame {
	g := n.Graph
	for g != nil && g.Parent != nil {
		g = g.Parent
	}
	opset := e.opset
	if f := e.bodies[g]; f != nil && f.Opset("") > 0 {
		opset = f.Opset("")
	}
	return &op.Frame{Opset: opset, Meter: &op.Meter{}}
}

// constant decodes an initializer or the value of a Constant node. It returns nil, nil for other values.
func (e *Evaluator) constant(v *onnx.Value) (*Tensor, error) {
	c := v.Const
	if c == nil {
		if c = v.Constant(); c == nil {
			return nil, nil
		}
	}
	e.mu.Lock()
	t := e.consts[v]
	e.mu.Unlock()
	if t != nil {
		return t, nil
	}
	if c.Len() > cachedElements {
		return LazyFromONNX(c)
	}
	t, err := FromONNX(c)
	if err != nil {
		return nil, err
	}
	if t.Len() <= cachedElements {
		e.mu.Lock()
		e.consts[v] = t
		e.mu.Unlock()
	}
	return t, nil
}
