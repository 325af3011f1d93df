package convert

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// kind is what a value of float32 is, as far as its precision goes. Kinds above half are computed in float32.
type kind uint8

const (
	constant kind = iota // a constant, moved about at most: it is of the type that its readers want
	half                 // hidden states: of the half type
	index                // computed from integers and constants: positions, frequencies, masks
	table                // cosines and sines of these
	stat                 // a reduction over the last axis, and what is computed from such
	row                  // rows times or less their statistics
	score                // what a choice is made by, and the weights of what was chosen
	sum                  // another result in float32, which ends there
	wide                 // what is in float32 for lack of a kernel
)

func (k kind) float32() bool { return k > half }

// moving are the ops that move elements and compute nothing.
var moving = set("Compress", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad",
	"Reshape", "ReverseSequence", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Trilu",
	"Unsqueeze", "Where")

// elementwise are the ops whose results depend on the same element of their inputs.
var elementwise = set("Abs", "Add", "Ceil", "Clip", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Max",
	"Mean", "Min", "Mish", "Mod", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign",
	"Sqrt", "Sub", "Sum", "Swish", "Tanh", "ThresholdedRelu")

// comparing are the ops that read floats and give none.
var comparing = set("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")

var (
	reducing = set("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
		"ReduceSumSquare")
	trigonometric = set("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan")
	// sensitive are the elementwise ops whose results leave the range of float16, or lose their digits in half types.
	sensitive = set("Exp", "Log", "Reciprocal", "Softplus", "Sqrt")
	choosing  = set("ArgMax", "ArgMin", "TopK")
)

// kindOf gives the kind of a value that is read.
func (p *precision) kindOf(v *onnx.Value) kind {
	if k, ok := p.kinds[v]; ok {
		return k
	}
	if v.Constant() != nil {
		return constant
	}
	return half // an input of the graph or of a subgraph
}

// assign finds the kind of every value of float32, and which nodes compute in float32, in the order of the graph.
func (p *precision) assign(g *onnx.Graph) {
	if g.Parent == nil {
		p.kinds, p.float32 = map[*onnx.Value]kind{}, map[*onnx.Node]bool{}
		p.lookAhead()
	}
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs() {
			p.assign(s)
		}
		p.node(n)
	}
}

// node assigns one node.
func (p *precision) node(n *onnx.Node) {
	floats := slices.ContainsFunc(n.Outputs, p.isFloat)
	var k kind
	switch {
	case n.Is("If"):
		p.branches(n)
		return
	case n.Is("Loop"), n.Is("Scan"):
		return // what they carry is of the half type
	case n.Is("Constant"):
		return
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
		return // reads floats as they are: Shape, IsNaN
	}
	if !k.float32() && !p.computes(n) && !n.Is("Cast") {
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

// branches gives the outputs of an If the kind that they have in all branches, else that of hidden states.
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

// kind finds what a node gives that has a result of float32.
func (p *precision) kind(n *onnx.Node) kind {
	switch {
	case p.scores[n], choosing[n.OpType]:
		return score
	case p.angles[n]:
		return max(p.reads(n), index)
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

// reads gives the greatest kind among the node's inputs of float32.
func (p *precision) reads(n *onnx.Node) kind {
	k := constant
	for _, v := range n.Inputs {
		if p.isFloat(v) {
			k = max(k, p.kindOf(v))
		}
	}
	return k
}

func (p *precision) readsHalf(n *onnx.Node) bool {
	return slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool { return p.isFloat(v) && p.kindOf(v) == half })
}

// only says whether the node's inputs of float32 are constants and values of these kinds, with one of them at least.
func (p *precision) only(n *onnx.Node, kinds ...kind) bool {
	some := false
	for _, v := range n.Inputs {
		if !p.isFloat(v) {
			continue
		}
		k := p.kindOf(v)
		if k != constant && !slices.Contains(kinds, k) {
			return false
		}
		some = some || k != constant
	}
	return some
}

// reduced is the kind of a reduction: of a statistic where it is over the last axis.
func (p *precision) reduced(n *onnx.Node) kind {
	switch k := p.kindOf(n.Input(0)); {
	case k == score, k == index:
		return k
	case p.overLast(n):
		return stat
	}
	return sum
}

// added is the kind of what sums are scattered to: they are of float32 as others are. The CPU provider of onnxruntime has no kernel
// for them in float16, though it loads such a model.
func (p *precision) added(n *onnx.Node) kind {
	switch k := p.reads(n); k {
	case constant, index:
		return index
	case score:
		return score
	}
	return sum
}

// overLast says whether a reduction is over the last axis, among others.
func (p *precision) overLast(n *onnx.Node) bool {
	axes := n.AttrInts("axes")
	if v := n.Input(1); v != nil {
		t, ok := p.facts.Constant(v)
		if !ok {
			return false
		}
		axes = t.I
	}
	if len(axes) == 0 {
		return n.AttrInt("noop_with_empty_axes", 0) == 0
	}
	rank, ok := p.facts.Rank(n.Input(0))
	return slices.Contains(axes, -1) || ok && slices.Contains(axes, int64(rank-1))
}

// elementwise is the kind of what an elementwise op gives.
func (p *precision) elementwise(n *onnx.Node) kind {
	switch {
	case p.reads(n) == constant: // arithmetic on constants: frequencies
		return index
	case p.only(n, index):
		return index
	case p.only(n, index, stat):
		return stat
	case p.only(n, index, stat, score):
		return score
	case p.only(n, wide):
		return wide
	}
	if n.Is("Mul") || n.Is("Div") || n.Is("Sub") || n.Is("Add") {
		if k := p.scaled(n); k != constant {
			return k
		}
	}
	switch {
	case p.squares[n], sensitive[n.OpType]:
		return max(sum, p.reads(n))
	}
	return half
}

// scaled is the kind of a sum or product of two values where one of them stays in float32, or constant where none does.
func (p *precision) scaled(n *onnx.Node) kind {
	a, b := n.Input(0), n.Input(1)
	if !p.isFloat(a) || !p.isFloat(b) {
		return constant
	}
	ka, kb := p.kindOf(a), p.kindOf(b)
	switch {
	case ka == stat || kb == stat:
		return row
	case ka == score && p.perRow(a), kb == score && p.perRow(b): // the weights of experts
		return sum
	case ka == row && kb == row:
		return row
	case ka == constant && kb == row && !p.scalar(a):
		return p.weighted(n, 1, true)
	case ka == row && kb == constant && !p.scalar(b):
		return p.weighted(n, 0, false)
	case ka == row && kb == constant, ka == constant && kb == row:
		return row
	case ka == table && kb == constant && p.scalar(b), kb == table && ka == constant && p.scalar(a): // attention scaling
		return table
	}
	return constant
}

// weighted is the kind of a norm's row times its weight: float32 where a Cast stood behind it, half where it stood before, and
// where there was none half if the weight comes first.
func (p *precision) weighted(n *onnx.Node, rowAt int, weightFirst bool) kind {
	out := n.OutputValue(0)
	switch {
	case n.Is("Add"), n.Is("Sub"): // the bias of a LayerNorm: of float32 as its product
		return sum
	case slices.ContainsFunc(out.Uses(), func(u onnx.Use) bool { return u.Node.Is("Add") && p.bias(u) }):
		return row
	case p.castAfter[out]:
		return sum
	case p.castBefore[onnx.Use{Node: n, Index: rowAt}]:
		return half
	case weightFirst:
		return half
	}
	return sum
}

// bias says whether the other input of the Add is a constant vector.
func (p *precision) bias(u onnx.Use) bool {
	other := u.Node.Input(1 - u.Index)
	return other != nil && p.kindOf(other) == constant && !p.scalar(other)
}

// perRow says whether a value has one element for each row: its last axis is 1.
func (p *precision) perRow(v *onnx.Value) bool {
	d, ok := p.facts.Dim(v, -1)
	return ok && d == 1
}

func (p *precision) scalar(v *onnx.Value) bool {
	if t := v.Constant(); t != nil {
		return t.Len() == 1
	}
	rank, ok := p.facts.Rank(v)
	return ok && rank == 0
}

// moved is the kind of what is moved: that of the inputs, half where they differ.
func (p *precision) moved(n *onnx.Node) kind {
	k := constant
	for i, v := range n.Inputs {
		if !p.isFloat(v) || n.Is("Pad") && i > 0 {
			continue
		}
		switch of := p.kindOf(v); {
		case of == half:
			return half
		case of != constant && k == constant:
			k = of
		case of != constant && of != k:
			k = max(k, of)
		}
	}
	if k == constant && (n.Is("Where") || n.OpType == "Gather" && n.Input(1).Constant() == nil || n.Is("GatherND") || n.Is("GatherElements")) {
		return half // a mask, rows of a table
	}
	return k
}

// lookAhead marks the nodes that choices and angles depend on, back to a product, and those whose results are summed up.
func (p *precision) lookAhead() {
	p.scores, p.squares, p.angles = map[*onnx.Node]bool{}, map[*onnx.Node]bool{}, map[*onnx.Node]bool{}
	p.model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			switch {
			case choosing[n.OpType] && onnx.IsStandardDomain(n.Domain):
				p.mark(p.scores, n.Input(0))
			case n.Is("Cos"), n.Is("Sin"):
				p.mark(p.angles, n.Input(0))
			case reducing[n.OpType] && !n.Is("ReduceMax") && !n.Is("ReduceMin"):
				x := n.Input(0)
				for x != nil && x.Producer != nil && moving[x.Producer.OpType] {
					x = x.Producer.Input(0)
				}
				if x != nil && x.Producer != nil && slices.Contains([]string{"Abs", "Div", "Exp", "Mul", "Pow", "Sub"}, x.Producer.OpType) {
					p.squares[x.Producer] = true
				}
			}
		}
	})
}

// mark adds the nodes that a value is computed by to the list, back to products and to rows of tables of numbers.
func (p *precision) mark(list map[*onnx.Node]bool, v *onnx.Value) {
	if v == nil || v.Producer == nil || !p.isFloat(v) {
		return
	}
	n := v.Producer
	if list[n] || !onnx.IsStandardDomain(n.Domain) {
		return
	}
	if !(elementwise[n.OpType] || moving[n.OpType] || reducing[n.OpType] || choosing[n.OpType] || n.Is("Softmax") || n.Is("LogSoftmax")) {
		return
	}
	list[n] = true
	for _, x := range n.Inputs {
		p.mark(list, x)
	}
}
