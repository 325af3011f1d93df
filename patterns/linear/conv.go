package linear

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// limits bound the search. A convolution of 8,192 channels takes about 20 million steps.
var limits = match.Limits{Each: 1 << 16, Reserve: 1 << 28, Shares: 2}

// maxElements bounds the elements of x in the tried worlds, except the first.
const maxElements = 1 << 16

// maxSteps bounds the nodes before and after a convolution.
const maxSteps = 12

// conv is a depthwise convolution along time with the nodes around it: padding or kept tokens before it, and a slice,
// an activation and a transposition after it.
type conv struct {
	g       *match.View
	budget  *match.Budget
	known   probe.Readings[bool]
	n       *onnx.Node
	x, past *onnx.Value   // past is nil if nothing is joined in front of x
	all     []*onnx.Value // values computed from past and x before the convolution
	nodes   []*onnx.Node
}

// Convs finds causal convolutions. It recognizes them by the results of the nodes around a depthwise Conv.
func Convs(g *match.View, others site.Others) (sites []*site.Site, _ []*match.Miss) {
	known := probe.Readings[bool]{}
	for _, n := range g.Graph.Nodes {
		if !n.Is("Conv") || others.Have(n) || !depthwise(g, n) {
			continue
		}
		c := &conv{g: g, n: n, budget: g.Budget(fused.CausalConvName, limits), known: known}
		c.budget.Begin(n)
		if s := c.find(others); s != nil {
			c.budget.Found()
			sites = append(sites, s)
		}
		c.budget.End()
	}
	return sites, nil
}

// depthwise reports whether a Conv has only the dimension of time and separate weights for each channel.
func depthwise(g *match.View, n *onnx.Node) bool {
	if n.Input(0) == nil || n.Input(1) == nil || n.OutputValue(0) == nil {
		return false
	}
	channels, known := g.Facts.Dim(n.Input(1), 0)
	each, also := g.Facts.Dim(n.Input(1), 1)
	_, width := g.Facts.Dim(n.Input(1), 2)
	rank, ranked := g.Facts.Rank(n.Input(1))
	return known && also && width && ranked && rank == 3 && each == 1 && n.AttrInt("group", 1) == channels
}

func (c *conv) find(others site.Others) *site.Site {
	c.before()
	if c.x == nil {
		return nil
	}
	results := c.behind()
	for i, r := range slices.Backward(results) {
		nodes := append(slices.Clone(c.nodes), nodesOf(results[:i+1])...)
		if slices.ContainsFunc(nodes, others.Have) {
			continue
		}
		for _, activation := range []string{"silu", "none"} {
			op := fused.CausalConv{Activation: activation}
			if !c.computes(op, r.value, r.turned, 0) {
				continue
			}
			if state := c.state(op, nodes); c.closed(nodes, r.value, state) {
				return c.site(op, r, state, nodes)
			}
		}
	}
	return nil
}

// before follows the Conv's input back through padding, slices, casts and a Concat with the kept tokens, to the first
// value of the weights' type.
func (c *conv) before() {
	v, typ := c.n.Input(0), c.g.Facts.DataType(c.n.Input(1))
	steps := 0
	for range maxSteps {
		if c.g.Facts.DataType(v) == typ {
			c.x, steps = v, len(c.nodes)
		}
		n := v.Producer
		if n == nil || n.Graph != c.g.Graph {
			break
		}
		if n.Is("Concat") && len(n.Inputs) == 2 && n.Input(0) != nil && n.Input(1) != nil &&
			(n.AttrInt("axis", 0) == 2 || n.AttrInt("axis", 0) == -1) && c.g.Facts.DataType(n.Input(1)) == typ {
			c.nodes = append(c.nodes, n)
			c.past, c.x, c.all = n.Input(0), n.Input(1), append(c.all, v)
			return
		}
		if !n.Is("Pad") && !n.Is("Slice") && !n.Is("Cast") || n.Input(0) == nil || c.hasOthers(n.Input(0)) {
			break // a slice of channels leaves the other half to a gate
		}
		c.nodes, c.all, v = append(c.nodes, n), append(c.all, v), n.Input(0)
	}
	c.nodes, c.all = c.nodes[:steps], c.all[:steps]
}

// hasOthers reports whether a value has another number of channels than the convolution.
func (c *conv) hasOthers(v *onnx.Value) bool {
	n, ok := c.g.Facts.Dim(v, 1)
	channels, known := c.g.Facts.Dim(c.n.Input(1), 0)
	return ok && known && n != channels
}

// result is a value that the convolution may end in.
type result struct {
	value  *onnx.Value
	turned bool // tokens before channels
	nodes  []*onnx.Node
}

func nodesOf(list []result) (nodes []*onnx.Node) {
	for _, r := range list {
		nodes = append(nodes, r.nodes...)
	}
	return nodes
}

// behind follows the Conv through slices, a transposition and an activation.
func (c *conv) behind() []result {
	list := []result{{c.n.OutputValue(0), false, []*onnx.Node{c.n}}}
	for range maxSteps {
		last := list[len(list)-1]
		readers, turned := c.g.Readers(last.value), last.turned
		if last.value.IsOutput() || len(readers) == 0 {
			break
		}
		n := readers[0]
		nodes := []*onnx.Node{n}
		switch {
		case len(readers) == 2 && (readers[0].Is("Mul") || readers[1].Is("Mul")): // x * sigmoid(x)
			if n.Is("Mul") {
				n, nodes = readers[1], []*onnx.Node{readers[1], n}
			} else {
				nodes = readers
			}
			if mul := nodes[1]; !n.Is("Sigmoid") || len(mul.Reads()) != 2 || mul.Input(0) != n.OutputValue(0) &&
				mul.Input(1) != n.OutputValue(0) {
				return list
			}
		case len(readers) != 1:
			return list
		case n.Is("Transpose") && slices.Equal(n.AttrInts("perm"), []int64{0, 2, 1}):
			turned = !turned
		case n.Is("Slice") || n.Is("Swish"):
		default:
			return list
		}
		v := nodes[len(nodes)-1].OutputValue(0)
		if v == nil {
			return list
		}
		list = append(list, result{v, turned, nodes})
	}
	return list
}

// state returns the value with the tokens to keep for the next call, if a node slices them from all tokens, or nil.
func (c *conv) state(op fused.CausalConv, nodes []*onnx.Node) *onnx.Value {
	if c.past == nil {
		return nil
	}
	for _, v := range c.all {
		for _, n := range c.g.Readers(v) {
			state := n.OutputValue(0)
			if n.Is("Slice") && state != nil && !slices.Contains(nodes, n) && c.computes(op, state, false, 1) {
				return state
			}
		}
	}
	return nil
}

// closed reports whether only the nodes read their outputs, except the results.
func (c *conv) closed(nodes []*onnx.Node, results ...*onnx.Value) bool {
	for _, n := range nodes {
		for _, v := range n.Outputs {
			if v == nil || slices.Contains(results, v) {
				continue
			}
			if v.IsOutput() || slices.ContainsFunc(c.g.Readers(v), func(r *onnx.Node) bool {
				return !slices.Contains(nodes, r) && !slices.ContainsFunc(r.Outputs, func(o *onnx.Value) bool {
					return o != nil && slices.Contains(results, o)
				})
			}) {
				return false
			}
		}
	}
	return true
}

// computes reports whether a value equals an output of the op. Of values of one form, as the layers of a model have,
// the first is run.
func (c *conv) computes(op fused.CausalConv, v *onnx.Value, turned bool, output int) bool {
	var f *probe.Form
	ends := []*onnx.Value{c.x, c.n.Input(1), c.n.Input(2), c.past}
	f = probe.NewForm(c.g, 4*maxSteps, func(v *onnx.Value) bool {
		switch i, n := slices.Index(ends, v), v.Producer; {
		case i >= 0:
			fmt.Fprint(f, " end", i)
			for world := range infer.Worlds {
				shape, ok := c.g.Facts.Shape(v, world)
				fmt.Fprint(f, shape, ok)
			}
		case v.Constant() != nil:
			f.Elements(v.Constant())
		case n == nil || n.Graph != c.g.Graph: // the same value
			fmt.Fprintf(f, " %p", v)
		default:
			f.Unclear = f.Unclear || !c.budget.Spend(4)
			return f.Unclear
		}
		return true
	})
	fmt.Fprint(f, op, turned, output)
	f.Value(v)
	found, _ := c.known.Of(f, c.budget, func() (*bool, *reason.Reason) {
		is := c.equals(op, v, turned, output)
		return &is, nil
	}, func(is *bool, _ *reason.Reason, _ func(*onnx.Value) *onnx.Value) (*bool, *reason.Reason, bool) {
		return is, nil, true
	})
	return found != nil && *found
}

// equals reports whether a value equals an output of the op for random tokens, kept tokens, weights and biases, at the
// sizes of all worlds in which it is small.
func (c *conv) equals(op fused.CausalConv, v *onnx.Value, turned bool, output int) bool {
	weight, bias := c.n.Input(1), c.n.Input(2)
	tried := false
	for world := range infer.Worlds {
		lab := probe.NewLab(c.g, 4*maxSteps, c.budget)
		lab.World = world
		if shape, ok := lab.Shape(c.x); !ok || match.Elements(shape) > maxElements && tried {
			continue
		}
		tried = true
		given := probe.Values{}
		r := rand.New(rand.NewPCG(uint64(world), 7))
		inputs := make([]*reference.Tensor, fused.CausalConvPast+1)
		for i, in := range []*onnx.Value{c.x, weight, bias, c.past} {
			if in == nil {
				continue
			}
			shape, ok := lab.Shape(in)
			if !ok || len(shape) == 0 || !c.budget.Spend(match.Elements(shape)) {
				return false
			}
			numbers := normal(r, match.Elements(shape))
			inputs[i] = reference.NewFloats(onnx.Float, shape, numbers)
			given[in] = reference.NewFloats(c.g.Facts.DataType(in), shape, numbers)
		}
		got, err := lab.Run(given, knownSizes(lab), v)
		if err != nil {
			return false
		}
		want, err := probe.Fused(op, c.budget.SpendOrFail, inputs...)
		if err != nil || !alike(got[0], want[output], turned) {
			return false
		}
	}
	return tried
}

// normal returns n random numbers.
func normal(r *rand.Rand, n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = r.NormFloat64()
	}
	return list
}

// knownSizes returns the values of a lab's world that follow from sizes and need no computation.
func knownSizes(lab *probe.Lab) probe.Known {
	return func(v *onnx.Value) (*reference.Tensor, error) {
		facts := lab.View.Facts
		if t, ok := facts.Known(v, lab.World); ok && v.Constant() == nil && !facts.DataType(v).IsFloat() {
			return t, nil
		}
		return nil, nil
	}
}

// alike reports whether two tensors are equal up to rounding. If turned is set, got has its last two axes exchanged.
func alike(got, want *reference.Tensor, turned bool) bool {
	rows, columns := 1, 1
	if want.Rank() == 3 {
		rows, columns = want.Shape[1], want.Shape[2]
	}
	shape := slices.Clone(want.Shape)
	if turned {
		shape[1], shape[2] = shape[2], shape[1]
	}
	if !slices.Equal(got.Shape, shape) {
		return false
	}
	for i, x := range want.F {
		at := i
		if turned {
			b, row, column := i/(rows*columns), i/columns%rows, i%columns
			at = (b*columns+column)*rows + row
		}
		if !(math.Abs(got.F[at]-x) <= 1e-9*(1+math.Abs(x))) {
			return false
		}
	}
	return true
}

// site makes the op compute a result and the kept tokens.
func (c *conv) site(op fused.CausalConv, r result, state *onnx.Value, nodes []*onnx.Node) *site.Site {
	s := site.New(c.g, fused.CausalConvName, r.value.Producer)
	s.Anchor, s.Nodes = c.n, nodes
	inputs := make([]*site.Operand, fused.CausalConvPast+1)
	for i, v := range []*onnx.Value{c.x, c.n.Input(1), c.n.Input(2), c.past} {
		if v != nil {
			inputs[i] = s.Input(fused.NoRole, fused.Lookup(s.Op).Inputs[i].Name, v)
		}
	}
	names := fused.Lookup(s.Op).OutputNames()
	if state == nil {
		names[1] = ""
	} else {
		s.Nodes = append(s.Nodes, state.Producer)
	}
	out := s.Compute(op, names, inputs...)
	y := out[0]
	if r.turned {
		y = y.Transpose("rows", 0, 2, 1)
	}
	s.Output(r.value, y)
	if state != nil {
		s.Output(state, out[1])
	}
	return s
}
