package infer

import (
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// node finds the facts of a node's outputs.
func (an *analysis) node(n *onnx.Node, fr *frame) {
	// too many nested functions or loops: it would not end
	if an.visits++; an.mostVisits > 0 && an.visits > an.mostVisits {
		an.leave(n, fr)
		return
	}
	if n.Is("Constant") && !fr.refersToCaller(n) {
		if v := n.OutputValue(0); v != nil {
			fr.facts[v] = an.constant(v)
			if fr.facts[v] == nothing {
				fr.facts[v] = an.declared(v, nothing, fr)
			}
		}
		return
	}
	if flow := flows[n.OpType]; flow != nil && onnx.IsStandardDomain(n.Domain) {
		flow(an, n, fr)
		return
	}
	if m, rule := joined(n); m != nil {
		an.apply(m, rule, fr)
		return
	}
	rule := rules[ruleKey{canonical(n.Domain), n.OpType}]
	if n.Domain != mojoDomain || rule == nil {
		if f := an.functions[functionKey{canonical(n.Domain), n.OpType, n.Overload}]; f != nil {
			an.callFunction(f, n, fr)
			return
		}
	}
	an.apply(n, rule, fr)
}

func (fr *frame) refersToCaller(n *onnx.Node) bool {
	if fr.function {
		for _, a := range n.Attributes {
			if a.RefName != "" {
				return true
			}
		}
	}
	return false
}

// apply runs the rule of a node, which may be nil, in each world.
func (an *analysis) apply(n *onnx.Node, rule rule, fr *frame) {
	c := &an.call
	c.an, c.fr, c.n = an, fr, n
	c.in = c.in[:0]
	same := true
	for _, v := range n.Inputs {
		x := nothing
		if v != nil {
			if y := fr.facts[v]; y != nil {
				x = y
			}
		}
		c.in = append(c.in, x)
		same = same && x.same
	}
	before := len(an.symbols.fresh)
	var found [worlds][]result
	tried := worlds
	if same {
		tried = 1
	}
	differ := false
	var buffer [worlds * 2]result
	for w := 0; w < tried; w++ {
		found[w] = c.run(w, rule, buffer[:])
		differ = differ || c.differ
		if w == 0 && same && (len(an.symbols.fresh) > before || an.hasFresh(n)) {
			same, tried = false, worlds // a length that depends on data
		}
	}
	if differ && an.solving {
		an.differ(c, rule)
	}
	for i, v := range n.Outputs {
		if v == nil {
			continue
		}
		x := an.newFact()
		x.dtype, x.same = found[0][i].dtype, same
		for w := range worlds {
			r := &found[min(w, tried-1)][i]
			x.shape[w], x.val[w] = r.shape, r.val
		}
		x.follows = c.follows(x)
		fr.facts[v] = an.declared(v, x, fr)
	}
}

func (an *analysis) hasFresh(n *onnx.Node) bool {
	return len(an.symbols.fresh) > 0 && an.symbols.fresh[freshKey{n, 0}] != nil
}

// run applies the rule in one world and, if all inputs are known and the outputs small, evaluates the node.
func (c *call) run(w int, rule rule, buffer []result) []result {
	c.w, c.differ = w, false
	k := len(c.n.Outputs)
	if k <= 2 {
		c.out = buffer[2*w : 2*w+k]
	} else {
		c.out = make([]result, k)
	}
	if rule != nil {
		rule(c)
	}
	for i := range c.out { // attributes and shape inputs may contain any number
		for k, d := range c.out[i].shape {
			if d < -1 {
				c.out[i].shape = with(c.out[i].shape, k, -1)
			} else if w == proof && d >= far && !c.an.symbols.table.Open(d) { // from arithmetic without expressions
				c.out[i].shape = with(c.out[i].shape, k, c.an.symbols.table.Dimension("of", d))
			}
		}
	}
	if !c.gather {
		c.evaluate()
	}
	return c.out
}

// random are the ops whose outputs do not follow from their inputs.
var random = map[string]bool{"RandomNormal": true, "RandomUniform": true, "RandomNormalLike": true,
	"RandomUniformLike": true, "Multinomial": true, "Bernoulli": true, "Dropout": true}

// evaluate computes the outputs if all inputs are known and no output has more than MaxElements elements. It reports
// whether the values are known now.
func (c *call) evaluate() bool {
	n := c.n
	if len(n.Inputs) == 0 && !n.Is("Constant") || len(c.out) == 0 || random[n.OpType] {
		return false
	}
	for i := range c.out {
		if c.out[i].val != nil {
			return true // the rule set it
		}
		if s := c.out[i].shape; s != nil {
			if n := product(s); n < 0 || n > MaxElements {
				return false
			}
		}
	}
	in := make([]*reference.Tensor, len(c.in))
	elements := 0
	for i, x := range c.in {
		if n.Inputs[i] == nil {
			continue
		}
		if in[i] = x.val[c.w]; in[i] == nil && i == 1 && n.Is("CastLike") && x.dtype != onnx.Undefined {
			in[i] = &reference.Tensor{DataType: x.dtype, Shape: []int{0}} // only its type is read
		}
		if in[i] == nil {
			return false
		}
		elements += in[i].Len()
	}
	if c.out[0].shape == nil && elements > MaxElements {
		return false // may be of any size
	}
	if !reference.Supported(n.Domain, n.OpType) {
		return false
	}
	if c.w == proof && slices.ContainsFunc(in, c.open) {
		return c.prove(in)
	}
	out, err := c.fr.eval.Op(c.fr.resolved(n), in)
	if err != nil {
		return false
	}
	for i, t := range out {
		if t == nil || i >= len(c.out) || t.I == nil && t.F == nil && t.S == nil {
			continue
		}
		if c.out[i].dtype == onnx.Undefined {
			c.out[i].dtype = t.DataType
		}
		if s := c.out[i].shape; !complete(s) || !fits(s, t.Shape) {
			c.out[i].shape = dimsOf(t)
		}
		if t.Len() <= MaxElements {
			c.out[i].val = t
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

// resolved returns the node with references to the caller's attributes replaced by their values.
func (fr *frame) resolved(n *onnx.Node) *onnx.Node {
	if !fr.refersToCaller(n) {
		return n
	}
	r := *n
	r.Attributes = nil
	for _, a := range n.Attributes {
		if a.RefName == "" {
			r.Attributes = append(r.Attributes, a)
		} else if b := fr.attrs[a.RefName]; b != nil {
			named := *b
			named.Name = a.Name
			r.Attributes = append(r.Attributes, &named)
		}
	}
	return &r
}

// declared completes facts by the declared type of the value: its element type, and unknown dimensions.
func (an *analysis) declared(v *onnx.Value, x *fact, fr *frame) *fact {
	if x.dtype != onnx.Undefined && complete(x.shape[0]) && (x.same || complete(x.shape[1]) && complete(x.shape[2])) {
		return x
	}
	t, ok := v.Type()
	if !ok {
		return x
	}
	y := an.newFact()
	*y = *x
	if y.dtype == onnx.Undefined {
		y.dtype = t.DataType
	}
	if !t.HasShape {
		return y
	}
	if fr.function { // its names of dimensions are local
		for i := range t.Dims {
			t.Dims[i].Param = ""
		}
	}
	shape, same := an.symbols.shapeOf(t.Dims, nil)
	for w := range worlds {
		have := y.shape[w]
		switch {
		case have == nil:
			y.shape[w] = shape[w]
		case len(have) == len(t.Dims):
			s := append([]int64(nil), have...)
			for i, d := range s {
				if d < 0 {
					s[i] = shape[w][i]
				}
			}
			y.shape[w] = s
		}
	}
	y.same = y.same && same
	if y.same { // one slice, as before
		y.shape = everywhere(y.shape[0])
	}
	return y
}
