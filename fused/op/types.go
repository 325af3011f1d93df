package op

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The element types that kernels compute with.
const (
	F32  = onnx.Float
	F16  = onnx.Float16
	BF16 = onnx.BFloat16
)

// Combination is one combination of element types that an op takes.
type Combination struct {
	// Types maps each variable of the op's signature to its type.
	Types map[string]onnx.DataType
	// Attribute, if not empty, must have the value Value.
	Attribute string
	Value     int64
}

// Variable describes a type variable that follows from others.
type Variable struct {
	Name string
	// Doc completes "takes an input of ...".
	Doc string
	// Attribute, if not empty, selects the variable that this one equals: Of[its value]. Combinations do not list such
	// a variable.
	Attribute string
	Of        []string
}

// literals are the types that a signature may name directly.
var literals = map[string]onnx.DataType{onnx.Float.String(): onnx.Float, onnx.Float16.String(): onnx.Float16,
	onnx.Int32.String(): onnx.Int32, onnx.Int64.String(): onnx.Int64, onnx.Uint8.String(): onnx.Uint8}

// Independent lists all combinations of kernel types for the variables; the last one varies fastest.
func Independent(variables ...string) []Combination {
	list := []Combination{{}}
	for _, v := range variables {
		var more []Combination
		for _, c := range list {
			for _, t := range []onnx.DataType{F32, F16, BF16} {
				more = append(more, c.With(v, t))
			}
		}
		list = more
	}
	return list
}

// With returns c with one more variable.
func (c Combination) With(variable string, t onnx.DataType) Combination {
	types := map[string]onnx.DataType{variable: t}
	for v, t := range c.Types {
		types[v] = t
	}
	c.Types = types
	return c
}

// takes reports whether the combination applies to the attributes of a site.
func (c Combination) takes(s Site) bool {
	return c.Attribute == "" || s.Attr(c.Attribute).Int == c.Value
}

// Variable returns the declaration of a type variable that follows from others, or nil for a free variable.
func (o *Op) Variable(name string) *Variable {
	for i := range o.Variables {
		if o.Variables[i].Name == name {
			return &o.Variables[i]
		}
	}
	return nil
}

// resolve returns the variable or type that name means at a site.
func (o *Op) resolve(name string, s Site) string {
	v := o.Variable(name)
	if v == nil || v.Attribute == "" {
		return name
	}
	return v.Of[min(max(s.Attr(v.Attribute).Int, 0), int64(len(v.Of)-1))]
}

// TypeOf returns the type of a parameter in a combination.
func (o *Op) TypeOf(p Param, c Combination) onnx.DataType {
	if t, ok := literals[p.Type]; ok {
		return t
	}
	if v := o.Variable(p.Type); v != nil && v.Attribute != "" {
		if c.Attribute == v.Attribute {
			return c.Types[v.Of[c.Value]]
		}
		return c.Types[v.Of[0]] // the same for every value, as a test of the catalogue checks
	}
	return c.Types[p.Type]
}

// OutputTypes returns the types of the outputs at a site: Undefined if they do not follow from the inputs.
func (o *Op) OutputTypes(s Site) []onnx.DataType {
	types := make([]onnx.DataType, len(o.Outputs))
	for i, out := range o.Outputs {
		name := o.resolve(out.Type, s)
		types[i] = literals[name]
		for j := 0; j < len(o.Inputs) && types[i] == onnx.Undefined; j++ {
			if s.Has(j) && o.resolve(o.Inputs[j].Type, s) == name {
				types[i] = s.Types[j]
			}
		}
	}
	return types
}

// checkTypes errs unless a combination matches the types of the site's inputs.
func (o *Op) checkTypes(s Site) error {
	left := slices.Clone(o.Types)
	first := map[string]int{}
	for i, p := range o.Inputs {
		if !s.Has(i) {
			continue
		}
		t, name := s.Types[i], o.resolve(p.Type, s)
		if want, ok := literals[name]; ok {
			if t != want {
				return fmt.Errorf("mojo.%s takes %s of %s, not %s", o.Name, p.Name, want, t)
			}
			continue
		}
		if !slices.ContainsFunc(o.Types, func(c Combination) bool { return c.Types[name] == t }) {
			return fmt.Errorf("mojo.%s takes %s of %s, not %s", o.Name, p.Name, o.anyOf(name), t)
		}
		j, seen := first[name]
		if !seen {
			first[name] = i
		}
		v := o.Variable(p.Type)
		if seen && t != s.Types[j] {
			if v != nil {
				return fmt.Errorf("mojo.%s takes %s of %s, %s: %s is %s", o.Name, p.Name, v.Doc, s.Types[j], p.Name, t)
			}
			return fmt.Errorf("mojo.%s takes inputs of one type: %s is %s, %s is %s", o.Name, o.Inputs[j].Name,
				s.Types[j], p.Name, t)
		}
		left = slices.DeleteFunc(left, func(c Combination) bool { return c.Types[name] != t || !c.takes(s) })
		if len(left) == 0 {
			if v != nil {
				return fmt.Errorf("mojo.%s takes %s of %s: %s is %s", o.Name, p.Name, v.Doc, p.Name, t)
			}
			return fmt.Errorf("mojo.%s does not take %s together", o.Name, o.typesOf(s, i+1))
		}
	}
	return nil
}

func (o *Op) anyOf(variable string) string {
	var names []string
	for _, c := range o.Types {
		if name := c.Types[variable].String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " and " + names[n]
	}
	return strings.Join(names, "")
}

// typesOf names the types of the first n inputs, and the attributes that combinations depend on.
func (o *Op) typesOf(s Site, n int) string {
	var words []string
	for i, p := range o.Inputs[:n] {
		if s.Has(i) {
			words = append(words, fmt.Sprintf("%s of %s", p.Name, s.Types[i]))
		}
	}
	for _, a := range o.Attributes {
		if slices.ContainsFunc(o.Types, func(c Combination) bool { return c.Attribute == a.Name }) {
			words = append(words, fmt.Sprintf("%s=%d", a.Name, s.Attr(a.Name).Int))
		}
	}
	return strings.Join(words, ", ")
}
