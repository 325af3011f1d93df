package rewrite

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// fused looks at one fused op of a replacement and returns its definition.
func (a *applier) fused(c *candidate, n *onnx.Node) (*onnx.Function, error) {
	op := fused.Lookup(n.OpType)
	if op == nil {
		return nil, reason.New(reason.Undefined, nil,
			"the pattern rewrites to %s.%s, which is not in the catalogue of fused ops", n.Domain, n.OpType)
	}
	kernel := a.byOp[op.Name]
	if kernel == nil {
		return nil, reason.New(reason.NotAsked, nil, "it needs mojo.%s as well, whose kernel was not asked for",
			op.Name).With("op", op.Name)
	}
	call, err := c.AddCall(n, kernel, a.Model.Opset(""))
	if err != nil {
		return nil, err
	}
	name := fused.Domain + "." + op.Name + "." + op.Overload(call.Site)
	if f := a.functions[name]; f != nil {
		return f, nil
	}
	f, err := op.Function(call.Site)
	if err != nil {
		return nil, err
	}
	return a.define(f)
}

// define returns the one definition for all sites that need an equal one.
func (a *applier) define(f *onnx.Function) (*onnx.Function, error) {
	name := edit.FunctionName(f)
	if old := a.functions[name]; old != nil {
		return old, nil
	}
	if old := a.Model.Function(f.Domain, f.Name, f.Overload); old != nil && !old.SameBody(f) {
		return nil, reason.New(reason.Conflict, nil, "the model has another function %s.%s (overload %q)", f.Domain,
			f.Name, f.Overload)
	}
	a.functions[name] = f
	return f, nil
}

// inBody returns the definition as the body of a function can call it. onnxruntime does not look at overloads there
// ("mojo:GLU(-1) is not a registered function/op", 1.31): the one of the overload "" is taken, so that there can be one
// variant of an op for all bodies.
func (a *applier) inBody(c *candidate, f *onnx.Function) (*onnx.Function, error) {
	if f.Overload == "" {
		return f, nil
	}
	op := onnx.OpName(f.Domain, f.Name)
	if have, taken := a.bodies[op]; taken && have != f.Overload {
		return nil, reason.New(reason.InFunction, nil,
			"it stands in function %s.%s, where onnxruntime finds one variant of %s alone, which is %q already and "+
				"not %q: "+
				"inline the functions (--inline all)", c.Scope.Function.Domain, c.Scope.Function.Name, op, have,
			f.Overload)
	}
	if c.variants == nil {
		c.variants = map[string]string{}
	}
	c.variants[op] = f.Overload
	key := edit.FunctionName(f) + " in bodies"
	if a.functions[key] == nil {
		plain := *f
		plain.Overload = ""
		if old := a.Model.Function(f.Domain, f.Name, ""); old != nil && !old.SameBody(&plain) {
			return nil, reason.New(reason.Conflict, nil,
				"the model has another function %s without an overload, the only one that the body of a function can "+
					"call", op)
		}
		a.functions[key] = &plain
	}
	return a.functions[key], nil
}
