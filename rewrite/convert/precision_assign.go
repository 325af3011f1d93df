package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// kind classifies a float32 value by the precision that it needs. Kinds above half are computed in float32.
type kind uint8

const (
	constant kind = iota // a constant, perhaps moved: it has the type that its readers want
	half                 // hidden states: half type
	index                // computed from integers and constants: positions, frequencies, masks
	table                // cosines and sines of these
	stat                 // a reduction over the last axis, and values computed from it
	row                  // rows combined with their statistics
	score                // the inputs of a choice, and the weights of the chosen
	sum                  // another float32 result that does not propagate
	wide                 // float32 for lack of a kernel
)

func (k kind) float32() bool { return k > half }

// moving are the ops that only move elements.
var moving = onnx.Words(`
	Compress Concat DepthToSpace Dropout Expand Flatten Gather GatherElements GatherND Identity Pad Reshape
	ReverseSequence ScatterElements ScatterND Slice SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze Where
`)

// elementwise are the ops whose result elements depend only on the same element of each input.
var elementwise = onnx.Words(`
	Abs Add Ceil Clip Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Max Mean Min Mish Mod Mul Neg
	PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Softplus Softsign Sqrt Sub Sum Swish Tanh ThresholdedRelu
`)

// comparing are the ops that read floats and return booleans.
var comparing = onnx.Words("Equal Greater GreaterOrEqual Less LessOrEqual")

var (
	reducing = onnx.Words(`
	ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
	ReduceSumSquare
`)
	trigonometric = onnx.Words("Acos Acosh Asin Asinh Atan Atanh Cos Cosh Sin Sinh Tan")
	// sensitive are the elementwise ops whose results exceed the range of float16 or lose digits in half types.
	sensitive = onnx.Words("Exp Log Reciprocal Softplus Sqrt")
	choosing  = onnx.Words("ArgMax ArgMin TopK")
)

// kindOf returns the kind of an operand.
func (p *precision) kindOf(v *onnx.Value) kind {
	if k, ok := p.kinds[v]; ok {
		return k
	}
	if v.Constant() != nil {
		return constant
	}
	return half // an input of the graph or of a subgraph
}

// assign finds the kind of every float32 value and the nodes that compute in float32, in graph order.
func (p *precision) assign(g *onnx.Graph) {
	if g.Parent == nil {
		p.kinds, p.float32 = map[*onnx.Value]kind{}, map[*onnx.Node]bool{}
		p.lookAhead()
	}
	for _, n := range g.Nodes {
		loop := p.wide[n] && (n.Is("Loop") || n.Is("Scan"))
		p.setFloat32(n, loop)
		for _, s := range n.Subgraphs() {
			for _, v := range s.Inputs {
				if loop && p.isFloat(v) {
					p.kinds[v] = wide
				}
			}
			p.assign(s)
		}
		p.node(n)
	}
}

func (p *precision) node(n *onnx.Node) {
	floats := slices.ContainsFunc(n.Outputs, p.isFloat)
	var k kind
	switch {
	case p.combination(n) != nil:
		for _, v := range n.Outputs {
			if p.isFloat(v) {
				p.kinds[v] = half
				if p.typeOf(v) == onnx.Float {
					p.kinds[v] = sum
				}
			}
		}
		return
	case n.Is("If"):
		p.branches(n)
		return
	case n.Is("Constant"):
		return
	case n.Is("Loop"), n.Is("Scan"):
		if !p.float32[n] {
			return // loop-carried values have the half type
		}
		k = wide
	case n.Is("ConstantOfShape"):
		k = constant
	case n.Is("Cast"):
		if !floats {
			return
		}
		k = index
		if p.dataType(n.Input(0)) == onnx.Bool {
			k = constant
		}
	case floats:
		k = p.kind(n)
	case comparing[n.OpType] && slices.ContainsFunc(n.Inputs, p.isFloat):
		k = p.elementwise(n)
		if k == constant {
			k = index
		}
	case !slices.ContainsFunc(n.Inputs, p.isFloat):
		return
	case choosing[n.OpType], !p.computes(n) && !n.Is("Shape"):
		k = wide
	default:
		return // reads floats of any type: Shape, IsNaN
	}
	if !k.float32() && (p.wide[n] || !p.computes(n) && !n.Is("Cast")) {
		k = wide
	}
	if k.float32() {
		p.float32[n] = true
	}
	for _, v := range n.Outputs {
		if p.isFloat(v) {
			p.kinds[v] = k
		}
	}
}

// branches sets the kind of each output of an If: its kind in all branches if they agree, otherwise half.
func (p *precision) branches(n *onnx.Node) {
	for i, v := range n.Outputs {
		if !p.isFloat(v) {
			continue
		}
		k := constant
		for j, s := range n.Subgraphs() {
			if i >= len(s.Outputs) {
				continue
			}
			of := p.kindOf(s.Outputs[i])
			if of == wide && p.wide[n] {
				k = of
				break
			}
			if j == 0 || k == constant {
				k = of
			}
			if of == half {
				k = half
				break
			}
		}
		if k == constant {
			k = half
		}
		p.kinds[v] = k
	}
}

// kind returns the kind of the result of a node with a float32 result.
func (p *precision) kind(n *onnx.Node) kind {
	switch {
	case p.scores[n], choosing[n.OpType]:
		return score
	case p.angles[n]:
		return max(p.reads(n), index)
	case p.gates[n] != nil:
		return max(p.reads(n), sum)
	case n.Is("Softmax"), n.Is("LogSoftmax"):
		if k := p.reads(n); k == score {
			return k
		}
		return sum
	case trigonometric[n.OpType]:
		if k := p.reads(n); k == score {
			return k
		}
		return table
	case reducing[n.OpType]:
		return p.reduced(n)
	case n.Is("CumSum"):
		return max(p.reads(n), index)
	case elementwise[n.OpType]:
		return p.elementwise(n)
	case (n.Is("ScatterElements") || n.Is("ScatterND")) && n.AttrString("reduction", "none") != "none": // sums, counts
		return p.added(n)
	case moving[n.OpType]:
		return p.moved(n)
	case n.Is("MatMul"), n.Is("Gemm"), n.Is("Einsum"):
		if p.reads(n) == index && !p.readsHalf(n) { // positions times frequencies
			return index
		}
		return half
	case n.Is("Range"), n.Is("EyeLike"):
		return index
	}
	return half
}

// lookAhead marks the nodes that choices and angles depend on, back to a product, the nodes whose results are summed,
// and the SiLU gates of a norm's input.
func (p *precision) lookAhead() {
	p.scores, p.squares = map[*onnx.Node]bool{}, map[*onnx.Node]bool{}
	p.angles, p.gates = map[*onnx.Node]bool{}, map[*onnx.Node]*onnx.Value{}
	p.model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			switch {
			case choosing[n.OpType] && onnx.IsStandardDomain(n.Domain):
				p.mark(p.scores, n.Input(0))
			case n.Is("Cos"), n.Is("Sin"):
				p.mark(p.angles, n.Input(0))
			case reducing[n.OpType] && !n.Is("ReduceMax") && !n.Is("ReduceMin"):
				square := computedBy(n.Input(0))
				if square == nil || !slices.Contains([]string{"Abs", "Div", "Exp", "Mul", "Pow", "Sub"},
					square.OpType) {
					continue
				}
				p.squares[square] = true
				if n.Is("ReduceMean") && (square.Is("Pow") || square.Is("Mul") && square.Input(0) == square.Input(1)) {
					p.markGate(square.Input(0))
				}
			}
		}
	})
}

// mark adds the nodes that compute a value to the list, back to products and to rows of tables of numbers.
func (p *precision) mark(list map[*onnx.Node]bool, v *onnx.Value) {
	if v == nil || v.Producer == nil || !p.isFloat(v) {
		return
	}
	n := v.Producer
	if list[n] || !onnx.IsStandardDomain(n.Domain) {
		return
	}
	if !(elementwise[n.OpType] || moving[n.OpType] || reducing[n.OpType] || choosing[n.OpType] || n.Is("Softmax") ||
		n.Is("LogSoftmax")) {
		return
	}
	list[n] = true
	for _, x := range n.Inputs {
		p.mark(list, x)
	}
}

// computedBy returns the node that computes a value, skipping nodes that move elements. It returns nil for an input or
// a constant.
func computedBy(v *onnx.Value) *onnx.Node {
	for v != nil && v.Producer != nil && moving[v.Producer.OpType] {
		v = v.Producer.Input(0)
	}
	if v == nil {
		return nil
	}
	return v.Producer
}

// markGate marks the product of a value with a SiLU, and the SiLU. Mamba-2's norm squares such a product.
func (p *precision) markGate(squared *onnx.Value) {
	product := computedBy(squared)
	if !product.Is("Mul") {
		return
	}
	for i := range 2 {
		gated := product.Input(1 - i)
		for _, n := range silu(product.Input(i)) {
			p.gates[product], p.gates[n] = gated, gated
		}
	}
}

// silu returns the nodes of x * Sigmoid(x), or the Swish node, or nil if they do not compute the value.
func silu(v *onnx.Value) []*onnx.Node {
	if v == nil {
		return nil
	}
	n := v.Producer
	switch {
	case n.Is("Swish"):
		return []*onnx.Node{n}
	case n.Is("Mul"):
		for i := range 2 {
			s := n.Input(1 - i)
			if s != nil && s.Producer.Is("Sigmoid") && s.Producer.Input(0) == n.Input(i) {
				return []*onnx.Node{s.Producer, n}
			}
		}
	}
	return nil
}
