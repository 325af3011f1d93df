package reference

import (
	"fmt"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Options change how a graph is evaluated.
type Options struct {
	// Exact ignores roundings to, and casts between, floating-point types: everything float is float64. Two graphs
	// that compute the same formula then differ by the order of operations alone.
	Exact bool
	// Perturb, unless it is 0, seeds an evaluation with other roundings than the usual ones, to find out how much
	// roundings alone change a result: sums are added up in float32, one term after the other in an order of the seed,
	// and every number that was rounded is then a unit in its last place too great or too small. It does nothing beside
	// Exact.
	Perturb uint64
	// Override, where it is given, is asked for every node before its inputs are read, in subgraphs and functions too.
	// It returns the node's outputs, or none where the evaluator is to go on as usual.
	Override func(n *onnx.Node, s *Scope) ([]*Tensor, error)
	// Spend, where it is given, is told what each node takes, in subgraphs and functions too: some steps before it is
	// evaluated, and one for each element that it makes. Its error ends the evaluation.
	Spend func(steps int) error
}

// cachedElements is the number of elements up to which a decoded constant is kept for the next use. Greater ones are
// weights: decoded they take up to eight times their size, and are read piece by piece where that can be.
const cachedElements = 1 << 20

// Evaluator evaluates nodes, or a whole model. It may be used from several goroutines at once.
type Evaluator struct {
	model     *onnx.Model // nil when made by NewForOpset
	opset     int64
	functions map[functionKey]*onnx.Function
	bodies    map[*onnx.Graph]*onnx.Function
	options   Options

	mu     sync.Mutex
	consts map[*onnx.Value]*Tensor
}

type functionKey struct{ domain, name, overload string }

// New makes an evaluator of the model. Nothing is decoded yet, and ops it lacks are reported by Run.
func New(m *onnx.Model, o Options) (*Evaluator, error) {
	if m == nil || m.Graph == nil {
		return nil, fmt.Errorf("the model has no graph")
	}
	e := NewForOpset(m.Opset(""), m.Functions, o)
	e.model = m
	return e, nil
}

// NewForOpset makes an evaluator for Op and Eval alone: of nodes of this version of the standard's opset that may call
// the functions.
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

// ForOpset returns an evaluator of the same functions for Op and Eval of nodes of another version of the opset.
func (e *Evaluator) ForOpset(opset int64) *Evaluator {
	return &Evaluator{opset: opset, options: e.options, functions: e.functions, bodies: e.bodies,
		consts: map[*onnx.Value]*Tensor{}}
}

// WithOptions returns an evaluator of the same functions and version of the opset with other options, for Op and Eval.
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

// function finds the model-local function that the node calls; functions added to the model later are found too.
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
func (e *Evaluator) frameOf(n *onnx.Node) *frame {
	g := n.Graph
	for g != nil && g.Parent != nil {
		g = g.Parent
	}
	opset := e.opset
	if f := e.bodies[g]; f != nil && f.Opset("") > 0 {
		opset = f.Opset("")
	}
	return &frame{opset: opset, meter: &meter{}}
}

// constant decodes an initializer or the value of a Constant node; nil, nil when v is neither.
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
