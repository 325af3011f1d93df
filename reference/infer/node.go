package infer

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// node finds the facts of a node's outputs.
func (an *analysis) node(n *onnx.Node, fr *rules.Frame) {
	// too many nested functions or loops: it would not end
	if an.visits++; an.mostVisits > 0 && an.visits > an.mostVisits {
		an.leave(n, fr)
		return
	}
	if n.Is("Constant") && !fr.RefersToCaller(n) {
		if v := n.OutputValue(0); v != nil {
			fr.Facts[v] = an.constant(v)
			if fr.Facts[v] == rules.Nothing {
				fr.Facts[v] = an.declared(v, rules.Nothing, fr)
			}
		}
		return
	}
	if flow := flows[n.OpType]; flow != nil && onnx.IsStandardDomain(n.Domain) {
		flow(an, n, fr)
		return
	}
	if m, rule := rules.Joined(n); m != nil {
		an.apply(m, rule, fr)
		return
	}
	rule := rules.Of(n)
	if n.Domain != fused.Domain || rule == nil {
		if f := an.functions[functionKey{rules.Canonical(n.Domain), n.OpType, n.Overload}]; f != nil {
			an.callFunction(f, n, fr)
			return
		}
	}
	an.apply(n, rule, fr)
}

// apply runs the rule of a node, which may be nil, in each world.
func (an *analysis) apply(n *onnx.Node, rule rules.Rule, fr *rules.Frame) {
	c := &an.call
	c.Pass, c.Frame, c.Node = &an.Pass, fr, n
	c.In = c.In[:0]
	same := true
	for _, v := range n.Inputs {
		x := rules.Nothing
		if v != nil {
			if y := fr.Facts[v]; y != nil {
				x = y
			}
		}
		c.In = append(c.In, x)
		same = same && x.Same
	}
	before := len(an.symbols.fresh)
	var found [rules.AllWorlds][]rules.Result
	tried := rules.AllWorlds
	if same {
		tried = 1
	}
	differ := false
	var buffer [rules.AllWorlds * 2]rules.Result
	for w := 0; w < tried; w++ {
		found[w] = c.Run(w, rule, buffer[:])
		differ = differ || c.Differ
		if c.Differ && w < Worlds {
			an.clashes[w]++
		}
		if w == 0 && same && (len(an.symbols.fresh) > before || an.hasFresh(n)) {
			same, tried = false, rules.AllWorlds // a length that depends on data
		}
	}
	if differ && an.Solving {
		an.differ(c, rule)
	}
	for i, v := range n.Outputs {
		if v == nil {
			continue
		}
		x := an.newFact()
		x.DataType, x.Same = found[0][i].DataType, same
		for w := range rules.AllWorlds {
			r := &found[min(w, tried-1)][i]
			x.Shape[w], x.Value[w] = r.Shape, r.Value
		}
		x.Follows = c.Follows(x)
		fr.Facts[v] = an.declared(v, x, fr)
	}
}

func (an *analysis) hasFresh(n *onnx.Node) bool {
	return len(an.symbols.fresh) > 0 && an.symbols.fresh[freshKey{n, 0}] != nil
}

// declared completes facts by the declared type of the value: its element type, and unknown dimensions.
func (an *analysis) declared(v *onnx.Value, x *rules.Fact, fr *rules.Frame) *rules.Fact {
	if x.DataType != onnx.Undefined && rules.Complete(x.Shape[0]) && (x.Same || rules.Complete(x.Shape[1]) &&
		rules.Complete(x.Shape[2])) {
		return x
	}
	t, ok := v.Type()
	if !ok {
		return x
	}
	y := an.newFact()
	*y = *x
	if y.DataType == onnx.Undefined {
		y.DataType = t.DataType
	}
	if !t.HasShape {
		return y
	}
	if fr.Function { // its names of dimensions are local
		for i := range t.Dims {
			t.Dims[i].Param = ""
		}
	}
	shape, same := an.symbols.shapeOf(t.Dims, nil)
	for w := range rules.AllWorlds {
		have := y.Shape[w]
		switch {
		case have == nil:
			y.Shape[w] = shape[w]
		case len(have) == len(t.Dims):
			s := append([]int64(nil), have...)
			for i, d := range s {
				if d < 0 {
					s[i] = shape[w][i]
				}
			}
			y.Shape[w] = s
		}
	}
	y.Same = y.Same && same
	if y.Same { // one slice, as before
		y.Shape = everywhere(y.Shape[0])
	}
	return y
}
