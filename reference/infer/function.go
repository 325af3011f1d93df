package infer

import (
	"encoding/binary"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// functionCall is one run of a function's body. The key of a call contains addresses of in, which must stay alive.
type functionCall struct{ in, out []*rules.Fact }

// callFunction finds the facts of a call's outputs by running the function's body with the facts of the inputs.
func (an *analysis) callFunction(f *onnx.Function, n *onnx.Node, fr *rules.Frame) {
	in := make([]*rules.Fact, len(n.Inputs))
	for i, v := range n.Inputs {
		in[i] = an.get(v, fr)
	}
	if an.depth >= maxDepth { // the standard forbids recursion
		an.leave(n, fr)
		return
	}
	an.depth++
	out := an.enter(f, n, in, fr)
	an.depth--
	for i := range n.Outputs {
		x := rules.Nothing
		if i < len(out) {
			x = out[i]
		}
		an.put(n, i, x, fr)
	}
}

// enter runs the body of f for the call n (nil: for any call) and returns the facts of its outputs. Calls with equal
// facts share one run.
func (an *analysis) enter(f *onnx.Function, n *onnx.Node, in []*rules.Fact, outer *rules.Frame) []*rules.Fact {
	attrs := map[string]*onnx.Attribute{}
	if n != nil {
		for _, a := range f.Defaults {
			attrs[a.Name] = a
		}
		for _, a := range n.Attributes {
			if b := outer.Attr(n, a.Name); b != nil {
				attrs[a.Name] = b
			}
		}
	}
	key := signature(f, attrs, in)
	if c, ok := an.memo[key]; ok && key != "" {
		return c.out
	}
	opset := f.Opset("")
	if opset == 0 {
		opset = outer.Opset
	}
	fr := &rules.Frame{Opset: opset, Attrs: attrs, Facts: make(map[*onnx.Value]*rules.Fact, len(f.Body.Nodes)+len(in)),
		Function: true,
		Eval:     outer.Eval.ForOpset(opset)}
	for i, v := range f.Body.Inputs {
		x := rules.Nothing
		if i < len(in) {
			x = in[i]
		}
		fr.Facts[v] = x
	}
	an.graph(f.Body, fr)
	out := make([]*rules.Fact, len(f.Body.Outputs))
	for i, v := range f.Body.Outputs {
		out[i] = an.get(v, fr)
	}
	for v, x := range fr.Facts {
		if old := an.bodies[v]; old == nil && !an.called[f] {
			an.bodies[v] = x
		} else if old != x {
			if old == nil {
				old = rules.Nothing
			}
			an.bodies[v] = an.agree(old, x)
		}
	}
	an.called[f] = true
	if key != "" {
		an.memo[key] = functionCall{in, out}
	}
	return out
}

// signature returns a key that is equal for calls of f with equal facts. It is empty if values are known, which would
// make a bad key. Shapes are compared by their numbers.
func signature(f *onnx.Function, attrs map[string]*onnx.Attribute, in []*rules.Fact) string {
	b := fmt.Appendf(nil, "%p", f)
	// Attributes may decide shapes, and have many kinds: they are compared by identity unless they are numbers or
	// strings. f.Defaults and f.Attributes define the order.
	seen := 0
	add := func(name string) {
		a := attrs[name]
		if a == nil {
			b = append(b, '?')
			return
		}
		seen++
		if a.Tensor != nil || a.Graph != nil || len(a.Floats)+len(a.Strings)+len(a.Tensors)+len(a.Graphs) > 0 {
			b = fmt.Appendf(b, "|%p", a)
			return
		}
		b = fmt.Appendf(b, "|%d %g %q %v", a.Int, a.Float, a.String, a.Ints)
	}
	for _, name := range f.Attributes {
		add(name)
	}
	for _, a := range f.Defaults {
		add(a.Name)
	}
	if seen != len(attrs) {
		return ""
	}
	for _, x := range in {
		b = append(b, ';', byte(x.DataType))
		for w := range rules.AllWorlds {
			if x.Value[w] != nil {
				b = fmt.Appendf(b, "v%p", x.Value[w])
			}
			if x.Shape[w] == nil {
				b = append(b, 'n')
				continue
			}
			b = append(b, ':', byte(len(x.Shape[w])))
			for _, d := range x.Shape[w] {
				b = binary.LittleEndian.AppendUint64(b, uint64(d))
			}
			if x.Same {
				b = append(b, '=')
				break
			}
		}
	}
	return string(b)
}
