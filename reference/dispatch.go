package reference

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
	"github.com/mojo-patch/mojo-patch/reference/internal/op"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// errInternal marks inputs that an op's own checks should have rejected.
var errInternal = errors.New("the evaluator cannot handle these inputs")

// maxCallDepth bounds nested function calls; the standard forbids recursion.
const maxCallDepth = 64

// Op evaluates one node on the given inputs, nil for omitted ones, and runs model-local functions. It does not read the
// node's own input values; values of enclosing graphs that its subgraphs read must be constants. Errors name the op and
// the node.
func (e *Evaluator) Op(n *onnx.Node, inputs []*Tensor) ([]*Tensor, error) {
	return e.dispatch(n, inputs, &scope{values: map[*onnx.Value]*Tensor{}}, e.frameOf(n))
}

// Supported reports whether the evaluator has the op itself, without model-local functions.
func Supported(domain, opType string) bool {
	_, ok := table[opKey(domain, opType)]
	return ok
}

func opKey(domain, opType string) string {
	if onnx.IsStandardDomain(domain) {
		return opType
	}
	return domain + ":" + opType
}

func describe(n *onnx.Node) string {
	op := n.OpType
	if !onnx.IsStandardDomain(n.Domain) {
		op = n.Domain + "." + op
	}
	if n.Name == "" {
		for _, v := range n.Outputs {
			if v != nil {
				return fmt.Sprintf("%s node that makes %q", op, v.Name)
			}
		}
	}
	return fmt.Sprintf("%s node %q", op, n.Name)
}

func (e *Evaluator) dispatch(n *onnx.Node, in []*Tensor, sc *scope, fr *op.Frame) (out []*Tensor, err error) {
	if f := e.function(n); f != nil {
		if out, err = e.callFunction(f, n, in, fr); err != nil {
			return nil, fmt.Errorf("%s: %w", describe(n), err)
		}
		return out, nil
	}
	def, ok := table[opKey(n.Domain, n.OpType)]
	if !ok {
		if ranks := n.Attr("ranks"); n.Domain == "mojo" && ranks != nil && ranks.Int > 1 {
			return nil, fmt.Errorf("%s: %w: it combines the values of %d ranks, and this process has one rank's",
				describe(n), ErrUnsupported, ranks.Int)
		}
		return nil, fmt.Errorf("%s: %w, and the model has no function of that name", describe(n), ErrUnsupported)
	}
	c := &op.Call{Node: n, In: in, Frame: fr, Exact: e.options.Exact, Perturb: e.options.Perturb,
		Body: func(g *onnx.Graph, in []*Tensor) ([]*Tensor, error) { return e.body(g, in, sc, fr) }}
	defer func() {
		// The ops check their inputs, but a missed case must not take the program down.
		switch r := recover().(type) {
		case nil:
		case tensor.Failure:
			err = r.Err
		default:
			err = fmt.Errorf("%w: %v", errInternal, r)
		}
		if err != nil {
			out, err = nil, fmt.Errorf("%s on %s: %w", describe(n), tensorList(in), err)
		}
	}()
	for i := range def.Min {
		if c.Arg(i) == nil {
			tensor.Fail("input %d is missing", i)
		}
	}
	for i, x := range in {
		def.Takes.Check(i, x)
	}
	if !takesLazy[opKey(n.Domain, n.OpType)] {
		c.In = tensor.Try(tensor.AllDense(in))
	}
	out = def.Fn(c)
	if !def.Arithmetic {
		return out, nil
	}
	for _, t := range out {
		switch {
		case t == nil:
		case t.F != nil:
			c.Round(t.DataType, t.F)
		case t.I != nil:
			elements.WrapAll(t.DataType, t.I)
		}
	}
	return out, nil
}

func tensorList(in []*Tensor) string {
	s := "("
	for i, t := range in {
		if i > 0 {
			s += ", "
		}
		s += t.String()
	}
	return s + ")"
}

// callFunction runs the body of a model-local function. References in the body see the call's attributes, then the
// defaults.
func (e *Evaluator) callFunction(f *onnx.Function, n *onnx.Node, in []*Tensor, fr *op.Frame) ([]*Tensor, error) {
	if fr.Depth >= maxCallDepth {
		return nil, fmt.Errorf("function calls are nested deeper than %d: a recursion?", maxCallDepth)
	}
	inner := &op.Frame{Opset: f.Opset(""), Attrs: map[string]*onnx.Attribute{}, Depth: fr.Depth + 1, Meter: fr.Meter}
	if inner.Opset == 0 {
		inner.Opset = fr.Opset
	}
	for _, a := range f.Defaults {
		inner.Attrs[a.Name] = a
	}
	for _, a := range n.Attributes {
		if a.RefName == "" {
			inner.Attrs[a.Name] = a
		} else if outer := fr.Attrs[a.RefName]; outer != nil {
			inner.Attrs[a.Name] = outer
		}
	}
	if len(in) > len(f.Body.Inputs) {
		return nil, fmt.Errorf("%d inputs, the function takes %d", len(in), len(f.Body.Inputs))
	}
	sc := &scope{values: make(map[*onnx.Value]*Tensor, len(f.Body.Nodes)+len(in))}
	omitted := map[*onnx.Value]bool{}
	for i, v := range f.Body.Inputs {
		if i < len(in) && in[i] != nil {
			sc.values[v] = in[i]
		} else {
			omitted[v] = true
		}
	}
	if len(omitted) > 0 {
		sc.omitted = omitted
	}
	return e.evalGraph(f.Body, sc, inner)
}

// takesLazy lists the ops that keep a lazy tensor lazy, or read it piece by piece. All others get a dense one.
var takesLazy = map[string]bool{"Identity": true, "Shape": true, "Size": true, "Reshape": true, "Squeeze": true,
	"Unsqueeze": true, "Flatten": true, "Transpose": true, "Slice": true, "Split": true, "Concat": true, "Gather": true,
	"GatherND": true, "Cast": true, "CastLike": true, "MatMul": true, "Gemm": true, "If": true, "Loop": true,
	"Scan": true, "com.microsoft:MoE": true}
