package rewrite

import (
	"maps"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// definitions are the functions that the new nodes of a model call.
type definitions struct {
	model     *onnx.Model
	functions map[string]*onnx.Function // by domain, name and overload
	inBodies  map[string]string         // the variant of an op that the bodies of functions call
}

func newDefinitions(m *onnx.Model) *definitions {
	return &definitions{model: m, functions: map[string]*onnx.Function{}, inBodies: map[string]string{}}
}

func (d *definitions) clone() *definitions {
	return &definitions{d.model, maps.Clone(d.functions), maps.Clone(d.inBodies)}
}

// of returns the one definition for all sites that need an equal one.
func (d *definitions) of(f *onnx.Function) (*onnx.Function, error) {
	name := edit.FunctionName(f)
	if old := d.functions[name]; old != nil {
		return old, nil
	}
	if old := d.model.Function(f.Domain, f.Name, f.Overload); old != nil && !old.SameBody(f) {
		return nil, reason.New(reason.Conflict, nil, "the model has another function %s.%s (overload %q)", f.Domain,
			f.Name, f.Overload)
	}
	d.functions[name] = f
	return f, nil
}

// inBody returns the definition that a function body can call. onnxruntime ignores overloads there ("mojo:GLU(-1) is
// not a registered function/op", 1.31), so inBody uses the overload "": function bodies can call only one variant of an
// op.
func (d *definitions) inBody(c *candidate, f *onnx.Function) (*onnx.Function, error) {
	if f.Overload == "" {
		return f, nil
	}
	op := onnx.OpName(f.Domain, f.Name)
	if have, taken := d.inBodies[op]; taken && have != f.Overload {
		return nil, reason.New(reason.InFunction, nil,
			"it is in function %s.%s, where onnxruntime finds only one variant of %s, which is %q and not %q: "+
				"inline the functions (--inline all)", c.Scope.Function.Domain, c.Scope.Function.Name, op, have,
			f.Overload)
	}
	if c.variants == nil {
		c.variants = map[string]string{}
	}
	c.variants[op] = f.Overload
	key := edit.FunctionName(f) + " in bodies"
	if d.functions[key] == nil {
		plain := *f
		plain.Overload = ""
		if old := d.model.Function(f.Domain, f.Name, ""); old != nil && !old.SameBody(&plain) {
			return nil, reason.New(reason.Conflict, nil,
				"the model has another function %s without an overload, the only one that the body of a function can "+
					"call", op)
		}
		d.functions[key] = &plain
	}
	return d.functions[key], nil
}
