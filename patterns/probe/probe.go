package probe

import (
	"slices"
	"weak"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Runner evaluates a region without computing its products with weights. The results of these are chosen so that the
// region's result shows where they went. Loops, branches, masks, gathers and scatters that lead the tokens to the
// experts and back run as they are, and need not be understood.
//
// Weights are not decoded but represented by the places of their elements. A product reads a matrix at a known place of
// an initializer.
type Runner struct {
	*Lab
	// Fill sets the elements of a first product's result; Answer sets those of a second one.
	Fill   func(p *Product, out *reference.Tensor) error
	Answer func(p *Product, out *reference.Tensor) error
	// Parts holds, by number, the products whose matrix consists of several ones side by side, and how many.
	Parts map[int]Parts

	places places
	count  int // of the products of the run
	// made holds the tensors that are results of products, perhaps moved or cast. from holds the products that a tensor
	// is computed from.
	made map[tensorRef]*results
	from map[tensorRef][]*Product
}

// tensorRef identifies a tensor without keeping it: a region makes a tensor of all tokens for every expert.
type tensorRef = weak.Pointer[reference.Tensor]

func ref(t *reference.Tensor) tensorRef { return weak.Make(t) }

// NoExperts returns the reason why nodes cannot be read as experts. Other errors mean that the nodes failed, as they
// may for some numbers.
func NoExperts(format string, args ...any) error {
	return reason.New(reason.Experts, nil, format, args...)
}

// NewRunner returns a runner in the first world.
func NewRunner(g *match.View, budget *match.Budget) *Runner {
	p := &Runner{}
	p.Lab = newLab(g, 0, budget, p.node)
	return p
}

// Run evaluates y from the values in env. router holds the values that tensors in env were computed from, whose shapes
// are known. Run returns a reason if the region cannot be read, or another error if its nodes fail.
func (p *Runner) Run(y *onnx.Value, router map[*onnx.Value]bool, env Values) (*reference.Tensor, error) {
	p.count = 0
	p.made = map[tensorRef]*results{}
	p.from = map[tensorRef][]*Product{}
	out, err := p.Lab.Run(env, p.known(router, env), y)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// known returns the integers that follow from shapes, unless they depend on values in env. For these, facts only guess
// how many tokens go to an expert.
func (p *Runner) known(router map[*onnx.Value]bool, env Values) Known {
	memo := map[*onnx.Value]bool{}
	var depends func(v *onnx.Value) bool
	depends = func(v *onnx.Value) bool {
		if v == nil || v.Constant() != nil {
			return false
		}
		if env[v] != nil {
			return true
		}
		d, seen := memo[v]
		if seen || v.Producer == nil || v.Graph != p.View.Graph ||
			v.Producer.Is("Shape") && router[v.Producer.Input(0)] {
			return d
		}
		d = slices.ContainsFunc(p.View.Operands(v.Producer), depends)
		memo[v] = d
		return d
	}
	return func(v *onnx.Value) (*reference.Tensor, error) {
		if t, ok := p.View.Facts.Known(v, p.World); ok && !t.IsFloat() && !depends(v) {
			return t, nil
		}
		if v.Producer == nil || v.Graph != p.View.Graph && !p.View.FromConstant(v) {
			return nil, ErrUnread
		}
		return nil, nil
	}
}

// nodeSteps is the cost of a node, besides the elements that it reads.
const nodeSteps = 256

// node evaluates one node instead of the evaluator.
func (p *Runner) node(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
	if n.Is("Constant") {
		if v := n.OutputValue(0); isWeight(v) {
			t, err := p.places.of(storedOnce(p.View, v))
			return []*reference.Tensor{t}, err
		}
		return nil, nil
	}
	for _, g := range n.Subgraphs() {
		if _, err := p.inputs(n, g.Outputs, s); err != nil {
			return nil, err
		}
	}
	in, err := p.inputs(n, n.Inputs, s)
	if err != nil {
		return nil, err
	}
	steps := nodeSteps
	for _, t := range in {
		if t != nil && !t.IsLazy() {
			steps += t.Len()
		}
	}
	if err := p.Budget.SpendOrFail(steps); err != nil {
		return nil, err
	}
	switch {
	case len(n.Subgraphs()) > 0 || !reference.Supported(n.Domain, n.OpType) || n.Is("Shape") || n.Is("Size"):
		return nil, nil // runs with the places of the weights
	case !slices.ContainsFunc(in, (*reference.Tensor).IsLazy):
		return p.follow(n, in, s)
	}
	if out, err := p.weighted(n, in, s); out != nil || err != nil {
		return out, err
	}
	for i, v := range n.Inputs { // other uses of weights need their elements, if they are few
		if in[i].IsLazy() {
			if in[i], err = p.places.read(in[i]); err != nil {
				return nil, err
			}
			s.Bind(v, in[i])
		}
	}
	return p.follow(n, in, s)
}

// inputs returns the tensors of values that a node reads, nil for constants that are not weights.
func (p *Runner) inputs(n *onnx.Node, values []*onnx.Value, s *reference.Scope) ([]*reference.Tensor, error) {
	list := make([]*reference.Tensor, len(values))
	for i, v := range values {
		if v == nil {
			continue
		}
		if list[i] = s.Bound(v); list[i] == nil && isWeight(v) {
			var err error
			if list[i], err = p.places.of(storedOnce(p.View, v)); err != nil {
				return nil, err
			}
			s.Bind(v, list[i])
		}
		if t := v.Constant(); t != nil && list[i] == nil && t.Len() > maxRead {
			return nil, NoExperts("%s reads the constant %q of %s%v, which is not a floating-point weight",
				n.OpType, v.Name, t.DataType, t.Dims)
		}
	}
	return list, nil
}

// isWeight reports whether v is a constant of more than one floating-point number.
func isWeight(v *onnx.Value) bool {
	t := v.Constant()
	return t != nil && t.Len() > 1 && t.DataType.IsFloat()
}

// follow evaluates a node and records the products that its results come from.
func (p *Runner) follow(n *onnx.Node, in []*reference.Tensor, s *reference.Scope) ([]*reference.Tensor, error) {
	var from []*Product
	for _, t := range in {
		for _, a := range p.from[ref(t)] {
			if err := p.Budget.SpendOrFail(1 + len(from)/4); err != nil {
				return nil, err
			}
			if !slices.Contains(from, a) {
				from = append(from, a)
			}
		}
	}
	if len(from) == 0 {
		return nil, nil
	}
	out, err := s.Op(n)
	if err != nil {
		return nil, err
	}
	for _, t := range out {
		if t != nil {
			p.from[ref(t)] = from
		}
	}
	var made *results
	if n.Is("Concat") && n.AttrInt("axis", 0) == 0 {
		made = p.below(in, out[0].Shape)
	} else if r := p.made[ref(in[0])]; r != nil && len(out) == 1 {
		made = r.moved(n, s)
	}
	if made != nil {
		p.made[ref(out[0])] = made
	}
	return out, nil
}

// weighted evaluates a node that moves weights, multiplies with them or adds them as a bias. It returns nil for other
// nodes.
func (p *Runner) weighted(n *onnx.Node, in []*reference.Tensor, s *reference.Scope) ([]*reference.Tensor, error) {
	all := !slices.ContainsFunc(in, func(t *reference.Tensor) bool { return !t.IsLazy() })
	switch {
	case n.IsProduct():
		return p.product(n, in)
	case n.Is("Add") && len(in) == 2:
		for i, b := range in {
			if t := in[1-i]; b.IsLazy() && t != nil && p.takesBias(t, b) {
				return []*reference.Tensor{t}, nil
			}
		}
	case n.MovesElements() && (all || in[0].IsLazy() && n.OpType != "Concat"):
		return move(n, s, in[0]), nil
	}
	return nil, nil
}
