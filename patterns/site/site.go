// Package site describes the results of finders: the sites of a graph where nodes compute an op.
//
// A Site has the op with its attributes, the operands by role, and the nodes that the op replaces. Most operands are
// values of the model that are first cast, transposed or reshaped. These adapters are data too: nodes of a small graph
// (Site.Replacement), as for text patterns. So package patterns makes a Match of a site without knowing the op, and
// only this package writes such nodes for finders.
//
// The attributes are checked against the op's declaration in package fused: a finder that forgets or misspells one, or
// sets the wrong type, panics in the first test.
package site

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
)

// A Finder finds the sites of some ops among the nodes that other matches have left, and the reasons for near misses.
type Finder func(g *match.View, others Others) ([]*Site, []*match.Miss)

// Others describes the matches found before.
type Others struct {
	Have  func(*onnx.Node) bool  // a match has the node
	Write func(*onnx.Value) bool // a match writes the value
}

// A Site is a place where nodes compute an op.
type Site struct {
	Op, Domain string
	Attributes []*onnx.Attribute
	Root       *onnx.Node // computes the first output
	Anchor     *onnx.Node // where users may ask why the op is missing; nil: at Root
	Nodes      []*onnx.Node
	// Inputs are the values of the model that the op and its adapters read, each once; Outputs are the values that they
	// write.
	Inputs, Outputs []*onnx.Value
	Roles           Roles // of the Inputs that have one
	// Replacement holds the op and its adapters. Its inputs and outputs correspond to Inputs and Outputs.
	Replacement *onnx.Graph
	// Intended holds, for constants of half types that the nodes read, the numbers that they are roundings of. The op
	// computes with these numbers.
	Intended map[*onnx.Value]*reference.Tensor
	Problem  error // why the replacement is impossible in the model's opset or in a type
	// Parts are the sites that this one joins. They are used if it is not replaced as a whole.
	Parts []*Site
	// Smaller returns the next smaller site of the same block, to be used if this one is refused. It is nil, or returns
	// nil, if there is no other.
	Smaller func() *Site
	// Reading is the finder's reading of the block, for checks of its op.
	Reading any

	view   *match.View
	stands map[*onnx.Value]*Operand
}

// New returns a site of a fused or standard op that writes the first output of root.
func New(g *match.View, op string, root *onnx.Node) *Site {
	s := &Site{Op: op, Root: root, Replacement: onnx.NewFunction("", "", "", g.Facts.Opset()).Body, view: g,
		stands: map[*onnx.Value]*Operand{}}
	if fused.Lookup(op) != nil {
		s.Domain = fused.Domain
	}
	return s
}

// An Operand is a value of the replacement. A nil Operand is an omitted input.
type Operand struct {
	Type  onnx.DataType // Undefined if it is not tracked
	site  *Site
	value *onnx.Value
}

// Input returns the operand for v, a value of the model, with the role. A constant that is only visible in the body of
// a loop or branch is copied.
func (s *Site) Input(what fused.Role, name string, v *onnx.Value) *Operand {
	within := v.Constant() != nil && !s.sees(v)
	if what != fused.NoRole && !within {
		s.Roles.Set(v, what)
	}
	o := s.stands[v]
	switch {
	case o != nil:
		return o
	case within:
		o = s.Constant(name, v.Constant())
	default:
		s.Inputs = append(s.Inputs, v)
		o = s.Operand(s.Replacement.AddInput(name, onnx.Type{}))
	}
	o.Type = s.view.Facts.DataType(v)
	s.stands[v] = o
	return o
}

// sees reports whether v is visible in the graph of the site.
func (s *Site) sees(v *onnx.Value) bool {
	for g := s.view.Graph; g != nil; g = g.Parent {
		if v.Graph == g {
			return true
		}
	}
	return false
}

// Operand returns a value of the replacement as an operand.
func (s *Site) Operand(v *onnx.Value) *Operand { return &Operand{site: s, value: v} }

// Value returns the operand's value in the replacement, nil for an omitted input.
func (o *Operand) Value() *onnx.Value {
	if o == nil {
		return nil
	}
	return o.value
}

// Constant returns a tensor as an operand. Its type is not tracked.
func (s *Site) Constant(name string, t *onnx.Tensor) *Operand {
	return s.Node("Constant", name, nil, onnx.TensorAttr("value", t))
}

// Integers returns an int64 vector.
func (s *Site) Integers(name string, values ...int64) *Operand {
	return s.Constant(name, onnx.NewInt64s("", values))
}

// Integer returns an int64 scalar.
func (s *Site) Integer(name string, x int64) *Operand {
	t := onnx.NewInt64s("", []int64{x})
	t.Dims = []int64{}
	return s.Constant(name, t)
}

// Number returns a scalar of a type. It sets Problem if the type cannot hold x.
func (s *Site) Number(x float64, t onnx.DataType) *Operand {
	c, err := Scalar(x, t)
	if err != nil {
		s.Problem = err
		return s.Operand(nil)
	}
	o := s.Constant("number", c)
	o.Type = t
	return o
}

// Scalar returns a number as a tensor of a type. It returns an error if the type cannot hold x.
func Scalar(x float64, t onnx.DataType) (*onnx.Tensor, error) {
	r := reference.NewFloats(t, []int{}, []float64{x})
	if !t.IsFloat() {
		if x != float64(int64(x)) {
			return nil, fmt.Errorf("%v is not a number of type %s", x, t)
		}
		r = reference.NewInts(t, []int{}, []int64{int64(x)})
	}
	c, err := r.ToONNX("")
	if err != nil {
		return nil, fmt.Errorf("%v cannot be a constant of type %s: %w", x, t, err)
	}
	return c, nil
}

// Node returns the result of a standard node.
func (s *Site) Node(op, name string, inputs []*Operand, attrs ...*onnx.Attribute) *Operand {
	v := s.Replacement.NewValue(name)
	s.Replacement.AddNode(op, values(inputs), []*onnx.Value{v}, attrs...)
	return s.Operand(v)
}

func values(list []*Operand) []*onnx.Value {
	vs := make([]*onnx.Value, len(list))
	for i, o := range list {
		vs[i] = o.Value()
	}
	return vs
}

// Fused adds another fused op than the site's, and returns its named outputs; "" omits one.
func (s *Site) Fused(op fused.Typed, names []string, inputs ...*Operand) []*Operand {
	return s.call(op.OpType(), fused.Domain, op.Attributes(), names, inputs)
}

// Compute adds the op of the site, and returns its outputs like Fused.
func (s *Site) Compute(op fused.Typed, names []string, inputs ...*Operand) []*Operand {
	return s.ComputeAs(op.Attributes(), names, inputs...)
}

// ComputeAs is Compute with arbitrary attributes.
func (s *Site) ComputeAs(attributes []*onnx.Attribute, names []string, inputs ...*Operand) []*Operand {
	s.Attributes = attributes
	return s.call(s.Op, s.Domain, attributes, names, inputs)
}

func (s *Site) call(op, domain string, attributes []*onnx.Attribute, names []string, inputs []*Operand) []*Operand {
	outs, made := make([]*Operand, len(names)), make([]*onnx.Value, len(names))
	for i, name := range names {
		if name != "" {
			made[i] = s.Replacement.NewValue(name)
			outs[i] = s.Operand(made[i])
		}
	}
	for len(inputs) > 0 && inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	s.Replacement.AddNode(op, values(inputs), made, attributes...).Domain = domain
	return outs
}

// Output makes the operand replace v, a value of the model.
func (s *Site) Output(v *onnx.Value, o *Operand) {
	s.Outputs = append(s.Outputs, v)
	s.Replacement.AddOutput(o.value)
}

// Then returns the result of a node whose first input is the operand, with the operand's type.
func (o *Operand) Then(op, name string, others []*Operand, attrs ...*onnx.Attribute) *Operand {
	out := o.site.Node(op, name, slices.Concat([]*Operand{o}, others), attrs...)
	out.Type = o.Type
	return out
}

// Cast casts the operand, unless it has the type.
func (o *Operand) Cast(t onnx.DataType) *Operand { return o.CastAs(o.value.Name+"_cast", t) }

// CastAs is Cast with a name for the result.
func (o *Operand) CastAs(name string, t onnx.DataType) *Operand {
	if o.Type == t {
		return o
	}
	out := o.Then("Cast", name, nil, onnx.IntAttr("to", int64(t)))
	out.Type = t
	return out
}

// Transpose permutes the axes of the operand; nil keeps them.
func (o *Operand) Transpose(name string, perm ...int64) *Operand {
	if perm == nil {
		return o
	}
	return o.Then("Transpose", name, nil, onnx.IntsAttr("perm", perm))
}

// With is Then with a vector of integers as the second input, such as the axes of an Unsqueeze or the shape of a
// Reshape.
func (o *Operand) With(op, name, what string, integers ...int64) *Operand {
	return o.Then(op, name, []*Operand{o.site.Integers(what, integers...)})
}
