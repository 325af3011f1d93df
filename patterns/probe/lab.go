package probe

import (
	"errors"
	"fmt"
	"maps"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Values maps values of a graph to tensors.
type Values = map[*onnx.Value]*reference.Tensor

// A Lab runs nodes of one graph on chosen numbers, without roundings. Values have the shapes of one world of shape
// inference, unless a run is given tensors of other shapes. Runs spend their steps from a budget.
type Lab struct {
	View   *match.View
	Budget *match.Budget
	World  int

	maxNodes int // 0: no bound
	eval     *reference.Evaluator
}

// NewLab returns a lab in the first world. Each of its runs evaluates at most maxNodes nodes.
func NewLab(g *match.View, maxNodes int, budget *match.Budget) *Lab {
	return newLab(g, maxNodes, budget, nil)
}

func newLab(g *match.View, maxNodes int, budget *match.Budget,
	override func(*onnx.Node, *reference.Scope) ([]*reference.Tensor, error)) *Lab {
	exact := reference.Options{Exact: true, Spend: budget.SpendOrFail, Override: override}
	return &Lab{View: g, Budget: budget, maxNodes: maxNodes, eval: evaluatorOf(g).WithOptions(exact)}
}

type evaluatorKey struct{}

// evaluatorOf returns an evaluator of the model's functions. The labs of all graphs share its tables: models may have
// tens of thousands of functions.
func evaluatorOf(g *match.View) *reference.Evaluator {
	return g.Facts.Memo(evaluatorKey{}, func() any {
		return reference.NewForOpset(g.Facts.Opset(), g.Facts.Functions(), reference.Options{})
	}).(*reference.Evaluator)
}

// Rounded returns the lab with the roundings of the graph's types.
func (l *Lab) Rounded() *Lab {
	r := *l
	r.eval = l.eval.WithOptions(reference.Options{Spend: l.Budget.SpendOrFail})
	return &r
}

// Shape returns the shape of a value in the lab's world.
func (l *Lab) Shape(v *onnx.Value) ([]int, bool) {
	dims, ok := l.View.Facts.Shape(v, l.World)
	return match.As[int](dims), ok
}

// Known returns the tensor of a value that a run does not compute, such as a shape, and nil for other values. It
// returns an error if a run must not read the value, and ErrUnread if it may do without.
type Known func(*onnx.Value) (*reference.Tensor, error)

// ErrUnread is a Known's error for a value that a run may omit: evaluation fails if a node reads it.
var ErrUnread = errors.New("an unread value")

// MissingError is the error for a value that a run needs and was not given.
type MissingError struct{ Value *onnx.Value }

func (e *MissingError) Error() string { return fmt.Sprintf("%q is missing", e.Value.Name) }

// A Plan is a run that can be repeated with other tensors.
type Plan struct {
	Want  []*onnx.Value
	Nodes []*onnx.Node // to evaluate, in order
	Known Values       // tensors of values that are neither given nor computed

	lab   *Lab
	known Known
	given Values
	made  map[*onnx.Node]bool
}

// Plan lists the nodes that compute the wanted values from the given ones, whose tensors may be nil here. It returns an
// error if a value is missing, known refuses one, or there are too many nodes.
func (l *Lab) Plan(given Values, known Known, want ...*onnx.Value) (*Plan, error) {
	p := &Plan{Want: want, Known: Values{}, lab: l, known: known, given: given, made: map[*onnx.Node]bool{}}
	for _, v := range want {
		if err := p.need(v); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// need adds the nodes that compute v.
func (p *Plan) need(v *onnx.Value) error {
	if v == nil || v.Constant() != nil || p.made[v.Producer] || p.Known[v] != nil {
		return nil
	}
	if _, given := p.given[v]; given {
		return nil
	}
	t, err := p.known(v)
	switch n, g := v.Producer, p.lab.View; {
	case err == ErrUnread:
		return nil
	case err != nil:
		return err
	case t != nil:
		p.Known[v] = t
		return nil
	case n == nil || n.Graph != g.Graph && !g.FromConstant(v):
		return &MissingError{v}
	case p.lab.maxNodes > 0 && len(p.made) > p.lab.maxNodes:
		return fmt.Errorf("more than %d nodes", p.lab.maxNodes)
	default:
		p.made[n] = true
		for _, in := range g.Operands(n) {
			if err := p.need(in); err != nil {
				return err
			}
		}
		p.Nodes = append(p.Nodes, n)
		return nil
	}
}

// Run returns the wanted values for tensors of the given ones. It returns an error if evaluation fails.
func (p *Plan) Run(given Values) ([]*reference.Tensor, error) {
	env := make(Values, len(given)+len(p.Known)+len(p.Want))
	maps.Copy(env, p.Known)
	maps.Copy(env, given)
	if _, err := p.lab.eval.EvalFor(p.Nodes, env, p.Want); err != nil {
		return nil, err
	}
	out := make([]*reference.Tensor, len(p.Want))
	for i, v := range p.Want {
		t, err := env[v], error(nil)
		if c := v.Constant(); t == nil && c != nil {
			t, err = reference.FromONNX(c)
		}
		if err == nil && t == nil {
			err = fmt.Errorf("%q has no value", v.Name)
		}
		if err == nil {
			out[i], err = t.Dense()
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Run plans and runs the wanted values from the given ones.
func (l *Lab) Run(given Values, known Known, want ...*onnx.Value) ([]*reference.Tensor, error) {
	p, err := l.Plan(given, known, want...)
	if err != nil {
		return nil, err
	}
	return p.Run(given)
}
