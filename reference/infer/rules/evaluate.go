package rules

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// Run applies the rule in one world and, if all inputs are known and the outputs small, evaluates the node.
func (c *Call) Run(w int, rule Rule, buffer []Result) []Result {
	c.w, c.Differ = w, false
	k := len(c.Node.Outputs)
	if k <= 2 {
		c.out = buffer[2*w : 2*w+k]
	} else {
		c.out = make([]Result, k)
	}
	if rule != nil {
		rule(c)
	}
	for i := range c.out { // attributes and shape inputs may contain any number
		for k, d := range c.out[i].Shape {
			if d < -1 {
				c.out[i].Shape = With(c.out[i].Shape, k, -1)
			} else if w == Proof && d >= far && !c.Pass.Table.Open(d) { // from arithmetic without expressions
				c.out[i].Shape = With(c.out[i].Shape, k, c.Pass.Table.Dimension("of", d))
			}
		}
	}
	if !c.Gather {
		c.evaluate()
	}
	return c.out
}

// random are the ops whose outputs do not follow from their inputs.
var random = onnx.Words(`
	RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial Bernoulli Dropout
`)

// evaluate computes the outputs if all inputs are known and no output has more than MaxElements elements. It reports
// whether the values are known now.
func (c *Call) evaluate() bool {
	n := c.Node
	if len(n.Inputs) == 0 && !n.Is("Constant") || len(c.out) == 0 || random[n.OpType] {
		return false
	}
	for i := range c.out {
		if c.out[i].Value != nil {
			return true // the rule set it
		}
		if s := c.out[i].Shape; s != nil {
			if n := product(s); n < 0 || n > MaxElements {
				return false
			}
		}
	}
	in := make([]*reference.Tensor, len(c.In))
	elements := 0
	for i, x := range c.In {
		if n.Inputs[i] == nil {
			continue
		}
		if in[i] = x.Value[c.w]; in[i] == nil && i == 1 && n.Is("CastLike") && x.DataType != onnx.Undefined {
			in[i] = &reference.Tensor{DataType: x.DataType, Shape: []int{0}} // only its type is read
		}
		if in[i] == nil {
			return false
		}
		elements += in[i].Len()
	}
	if c.out[0].Shape == nil && elements > MaxElements {
		return false // may be of any size
	}
	if !reference.Supported(n.Domain, n.OpType) {
		return false
	}
	if c.w == Proof && slices.ContainsFunc(in, c.open) {
		return c.prove(in)
	}
	out, err := c.Frame.Eval.Op(c.Frame.resolved(n), in)
	if err != nil {
		return false
	}
	for i, t := range out {
		if t == nil || i >= len(c.out) || t.I == nil && t.F == nil && t.S == nil {
			continue
		}
		if c.out[i].DataType == onnx.Undefined {
			c.out[i].DataType = t.DataType
		}
		if s := c.out[i].Shape; !Complete(s) || !fits(s, t.Shape) {
			c.out[i].Shape = dimsOf(t)
		}
		if t.Len() <= MaxElements {
			c.out[i].Value = t
		}
	}
	return true
}

func fits(s []int64, shape []int) bool {
	if len(s) != len(shape) {
		return false
	}
	for i, d := range s {
		if d != int64(shape[i]) {
			return false
		}
	}
	return true
}

// ring lists the ops that add and multiply.
var ring = onnx.Words("Add Cast CastLike Mul Neg ReduceProd ReduceSum Sub Sum")

// maxPeriod bounds the divisors with which lists of places repeat often enough in all worlds.
const maxPeriod = 256

// Follows returns how an output of the call depends on sizes.
func (c *Call) Follows(x *Fact) Follows {
	if x.Same || x.Value[0] == nil {
		return steady
	}
	most := steady
	for _, in := range c.In {
		if in.Value[0] != nil {
			most = max(most, in.Follows)
		}
	}
	op := c.Node.OpType
	_, moves := moving[op]
	if t := x.Value[Proof]; t != nil {
		list := c.elements(t)
		is := steady
		for _, n := range list {
			if c.table().Follows(n) {
				is = algebraic
			}
			if c.table().Loose(n) && op != "Shape" && op != "Size" {
				if is = max(most, algebraic); !moves && !ring[op] {
					return Loose
				}
				return is
			}
		}
		return is
	}
	switch {
	case op == "Shape" || op == "Size" || op == "Range" && most <= algebraic:
		return algebraic
	case op == "ConstantOfShape":
		return steady
	case moves && len(c.In) > 0 && op != "Concat" && op != "Gather" && op != "GatherElements" && op != "GatherND":
		return c.In[0].Follows
	case moves || ring[op]:
		return most
	case (op == "Div" || op == "Mod") && c.In[0].Follows == algebraic && c.In[1].Follows == steady && c.period():
		return algebraic
	case most > steady:
		return Loose
	}
	if _, each := elementwise[op]; each {
		return steady
	}
	return algebraic // it may count places
}

// period reports whether the second operand is a small number.
func (c *Call) period() bool {
	t := c.In[1].Value[0]
	return t != nil && len(t.I) == 1 && t.I[0] > 0 && t.I[0] <= maxPeriod
}
