package probe

import (
	"fmt"
	"maps"
	"slices"
	"weak"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Runner evaluates a region whose products with weights are not computed: what they give is chosen so that the
// region's result tells where it comes from. Whatever loops, branches, masks, gathers and scatters lead the tokens
// to the experts and back, they run as they are, and need no reading.
//
// The weights are not decoded. Ops that only move them are followed as views; what a product reads is a matrix at a
// known place of an initializer.
type Runner struct {
	View  *match.View
	World int
	// Fill gives the elements of a first product's result; answer is asked for those of a second one.
	Fill   func(p *Product, out *reference.Tensor) error
	Answer func(p *Product, out *reference.Tensor) error

	count int // of the products of the run
	views map[*reference.Tensor]*weightView
	// made are the results of products, also moved or in another type; from are the products that a tensor comes
	// from.
	made map[tensorRef]*results
	from map[tensorRef][]*Product
	// scanned are the inputs of the bodies of Scans that hold one place of a weight after the other.
	scanned map[*onnx.Value]*scannedWeight
}

// tensorRef names a tensor without keeping it: a region makes one of all tokens for every expert.
type tensorRef = weak.Pointer[reference.Tensor]

func ref(t *reference.Tensor) tensorRef { return weak.Make(t) }

type scannedWeight struct {
	view *weightView
	axis int
}

// NoExperts says why nodes cannot be read as experts. With errors that are no reason the nodes themselves failed,
// as they may for some numbers.
func NoExperts(format string, args ...any) error {
	return reason.New(reason.Experts, nil, format, args...)
}

// Run evaluates the nodes that make y from the values in env. router are values that numbers in env were made of:
// their shapes are known.
func (p *Runner) Run(y *onnx.Value, router map[*onnx.Value]bool, env map[*onnx.Value]*reference.Tensor,
) (*reference.Tensor, error) {
	p.count = 0
	p.views = map[*reference.Tensor]*weightView{}
	p.made = map[tensorRef]*results{}
	p.from = map[tensorRef][]*Product{}
	p.scanned = map[*onnx.Value]*scannedWeight{}
	nodes := p.runnable(y, router, env)
	facts := p.View.Facts
	e := reference.NewForOpset(facts.Opset(), facts.Functions(), reference.Options{Exact: true, Override: p.node})
	if _, err := e.EvalFor(nodes, env, []*onnx.Value{y}); err != nil { // each expert adds to all tokens: not to be kept
		return nil, err
	}
	if env[y] == nil {
		return nil, fmt.Errorf("%q has no value", y.Name)
	}
	return env[y], nil
}

// runnable returns the nodes that make y from the values in env, in order. What does not depend on these is taken
// out of the facts and added to env, where it is numbers computed from shapes. The facts are of no use behind these
// values: they guess how many tokens go to an expert. They know the shapes of what the choice is made of.
func (p *Runner) runnable(y *onnx.Value, router map[*onnx.Value]bool, env map[*onnx.Value]*reference.Tensor,
) []*onnx.Node {
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
		memo[v] = false
		d = slices.ContainsFunc(p.View.Operands(v.Producer), depends)
		memo[v] = d
		return d
	}
	var nodes []*onnx.Node
	made := map[*onnx.Node]bool{}
	known := map[*onnx.Value]*reference.Tensor{}
	var need func(v *onnx.Value)
	need = func(v *onnx.Value) {
		if v == nil || env[v] != nil || v.Constant() != nil || v.Producer != nil && made[v.Producer] {
			return
		}
		if t, ok := p.View.Facts.Known(v, p.World); ok && !t.IsFloat() && !depends(v) {
			known[v] = t
			return
		}
		if v.Producer == nil || v.Graph != p.View.Graph && !p.View.FromConstant(v) {
			return // an error when it is read
		}
		made[v.Producer] = true
		for _, in := range p.View.Operands(v.Producer) {
			need(in)
		}
		nodes = append(nodes, v.Producer)
	}
	need(y)
	maps.Copy(env, known)
	return nodes
}

// node evaluates one node in the place of the evaluator.
func (p *Runner) node(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
	if n.Is("Constant") {
		if v := n.OutputValue(0); isWeight(v) {
			return []*reference.Tensor{p.stand(viewOf(storedOnce(p.View, v)))}, nil
		}
		return nil, nil
	}
	in := make([]*reference.Tensor, len(n.Inputs))
	weights := 0
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		if in[i] = s.Bound(v); in[i] == nil && isWeight(v) {
			in[i] = p.stand(viewOf(storedOnce(p.View, v)))
			s.Bind(v, in[i])
		}
		if w := p.scanned[v]; w != nil && p.views[in[i]] == nil {
			in[i] = p.stand(w.view.at(w.axis, in[i].I[0]))
			s.Bind(v, in[i])
		}
		if t := v.Constant(); t != nil && in[i] == nil && t.Len() > maxRead {
			return nil, NoExperts("%s reads the constant %q of %s%v, which is no weight of floating-point numbers",
				n.OpType, v.Name, t.DataType, t.Dims)
		}
		if p.views[in[i]] != nil {
			weights++
		}
	}
	switch {
	case n.Is("Scan") && weights > 0:
		return p.scan(n, in, s)
	case len(n.Subgraphs()) > 0 || !reference.Supported(n.Domain, n.OpType):
		return nil, nil // runs with what stands for the weights
	case weights == 0:
		return p.follow(n, in, s)
	}
	out, err := p.weighted(n, in, s)
	if out != nil || err != nil {
		return out, err
	}
	for i, v := range n.Inputs { // something else is done to weights: with their elements, if they are few
		if w := p.views[in[i]]; v != nil && w != nil {
			t, err := w.read()
			if err != nil {
				return nil, err
			}
			in[i] = t
			s.Bind(v, t)
		}
	}
	return p.follow(n, in, s)
}

// isWeight reports whether v is a constant of more than one floating-point number.
func isWeight(v *onnx.Value) bool {
	t := v.Constant()
	return t != nil && len(t.Dims) > 0 && t.Len() > 1 && t.DataType.IsFloat()
}

// stand makes a tensor that stands for a view.
func (p *Runner) stand(w *weightView) *reference.Tensor {
	t := reference.NewFloats(onnx.Float, []int{0}, []float64{})
	p.views[t] = w
	return t
}

// follow evaluates a node and takes note of the products that its results come from.
func (p *Runner) follow(n *onnx.Node, in []*reference.Tensor, s *reference.Scope) ([]*reference.Tensor, error) {
	var from []*Product
	for _, t := range in {
		for _, a := range p.from[ref(t)] {
			if !slices.Contains(from, a) {
				from = append(from, a)
			}
		}
	}
	if len(from) == 0 || n.Is("Shape") || n.Is("Size") {
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
		made = p.below(in)
	} else if r := p.made[ref(in[0])]; r != nil && len(out) == 1 {
		made = r.moved(n, out[0], intsOf(n, s))
	}
	if made != nil {
		p.made[ref(out[0])] = made
	}
	return out, nil
}

// weighted evaluates a node that reads weights: it moves them, multiplies with them or adds them as a bias. It
// gives nothing for other nodes.
func (p *Runner) weighted(n *onnx.Node, in []*reference.Tensor, s *reference.Scope) ([]*reference.Tensor, error) {
	w := p.views[in[0]]
	switch {
	case match.OpKind(n) != "Reshape" &&
		slices.ContainsFunc(in, func(t *reference.Tensor) bool { v := p.views[t]; return v != nil && v.pile != nil }):
		return nil, nil
	case n.IsProduct():
		return p.product(n, in)
	case n.Is("Add") && len(in) == 2:
		for i, t := range in {
			if b := p.views[t]; b != nil && in[1-i] != nil && p.takesBias(in[1-i], b) {
				return []*reference.Tensor{in[1-i]}, nil
			}
		}
		return nil, nil
	case w != nil && n.Is("Shape"):
		return shapeOf(n, w.dims()), nil
	case n.Is("Concat"):
		return p.concat(n, in), nil
	case w == nil || !onnx.IsStandardDomain(n.Domain):
		return nil, nil
	}
	moved := moveView(n, w, intsOf(n, s))
	var out []*reference.Tensor
	for _, m := range moved {
		out = append(out, p.stand(m))
	}
	return out, nil
}

// intsOf reads the integers of an input of a node.
func intsOf(n *onnx.Node, s *reference.Scope) func(i int) *reference.Tensor {
	return func(i int) *reference.Tensor {
		v := n.Input(i)
		if v == nil {
			return nil
		}
		t, err := s.Value(v)
		if err != nil || t.I == nil {
			return nil
		}
		return t
	}
}

// scan evaluates a Scan over weights as one over their places.
func (p *Runner) scan(n *onnx.Node, in []*reference.Tensor, s *reference.Scope) ([]*reference.Tensor, error) {
	body := n.Attr("body")
	scans := int(n.AttrInt("num_scan_inputs", 0))
	if body == nil || body.Graph == nil || len(body.Graph.Inputs) != len(in) || scans < 1 || scans > len(in) {
		return nil, nil
	}
	axes := n.AttrInts("scan_input_axes")
	for k, t := range in {
		w, scan := p.views[t], k-(len(in)-scans)
		if w == nil || scan < 0 {
			continue
		}
		if w.pile != nil {
			return nil, nil
		}
		axis := 0
		if scan < len(axes) {
			axis = int(wrapped(axes[scan:scan+1], int64(w.rank()))[0])
		}
		if axis < 0 || axis >= w.rank() {
			return nil, nil
		}
		places, shape := make([]int64, w.dim(axis)), slices.Repeat([]int{1}, w.rank())
		for i := range places {
			places[i] = int64(i)
		}
		shape[axis] = len(places)
		p.scanned[body.Graph.Inputs[k]] = &scannedWeight{w, axis}
		s.Bind(n.Inputs[k], reference.NewInts(onnx.Int64, shape, places))
		defer s.Bind(n.Inputs[k], t)
	}
	return s.Op(n)
}

// shapeOf is what the op Shape gives of a tensor of these dimensions.
func shapeOf(n *onnx.Node, dims []int64) []*reference.Tensor {
	rank := int64(len(dims))
	bound := wrapped([]int64{n.AttrInt("start", 0), n.AttrInt("end", rank)}, rank)
	from, to := min(max(bound[0], 0), rank), min(max(bound[1], 0), rank)
	dims = dims[from:max(from, to)]
	return []*reference.Tensor{reference.NewInts(onnx.Int64, []int{len(dims)}, dims)}
}

func (p *Runner) concat(n *onnx.Node, in []*reference.Tensor) []*reference.Tensor {
	var parts []*weightView
	for _, t := range in {
		w := p.views[t]
		if w == nil {
			return nil
		}
		parts = append(parts, w)
	}
	axis := n.AttrInt("axis", 0)
	if axis < 0 {
		axis += int64(parts[0].rank())
	}
	if axis < 0 || axis >= int64(parts[0].rank()) {
		return nil
	}
	w := joinViews(parts, int(axis))
	if w == nil {
		return nil
	}
	return []*reference.Tensor{p.stand(w)}
}

// maxRead is the number of elements of an initializer up to which a part of it may be read.
const maxRead = 1 << 20

// read decodes the elements of a view.
func (w *weightView) read() (*reference.Tensor, error) {
	whole := map[*onnx.Value]*reference.Tensor{}
	var v []float64
	from := w
	if w.pile != nil {
		from = w.pile
	}
	for _, o := range from.origins {
		if n := o.Source.Constant().Len(); n < 0 || n > maxRead {
			return nil, NoExperts("the weight %q, of %v, is neither only moved nor multiplied with",
				o.Source.Name, o.Source.Constant().Dims)
		}
		if whole[o.Source] == nil {
			t, err := reference.FromONNX(o.Source.Constant())
			if err != nil {
				return nil, err
			}
			whole[o.Source] = t
		}
	}
	if w.size() > maxRead {
		return nil, NoExperts("a weight is repeated to %v", w.dims())
	}
	w.each(func(o origin) { v = append(v, whole[o.Source].F[o.Offset]) })
	shape := make([]int, w.rank())
	for i, d := range w.dims() {
		shape[i] = int(d)
	}
	return reference.NewFloats(whole[from.origins[0].Source].DataType, shape, v), nil
}
