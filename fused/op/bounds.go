package op

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Bounds are the numbers that an attribute takes: Least to Most. If Multiple is not 0, an int must be a multiple of it.
// If Only is not empty, it lists the allowed numbers.
type Bounds struct {
	Least, Most float64
	Multiple    int64
	Only        []float64
	// Note is added to messages in parentheses.
	Note string
}

// The bounds of most attributes.
var (
	Flag        = Bounds{Least: 0, Most: 1}
	Finite      = Bounds{Least: -math.MaxFloat32, Most: math.MaxFloat32}
	NotNegative = Bounds{Least: 0, Most: math.MaxFloat32}
)

// AtLeast returns the bounds of an int without an upper bound.
func AtLeast(n float64) Bounds { return Bounds{Least: n, Most: math.MaxInt64} }

// Multiples returns the bounds of a dimension of weights: a multiple of n whose products do not overflow.
func Multiples(n int64) Bounds { return Bounds{Least: float64(n), Most: math.MaxInt32, Multiple: n} }

// Only returns the bounds of an attribute that has few values.
func Only(numbers ...float64) Bounds { return Bounds{Only: numbers} }

// Flag reports whether the numbers of an int are 0 and 1.
func (b Bounds) Flag() bool { return b.Least == 0 && b.Most == 1 && b.Only == nil }

// Takes reports whether a number is within the bounds. NaN never is.
func (b Bounds) Takes(v float64) bool {
	if b.Only != nil {
		return slices.Contains(b.Only, v)
	}
	return v >= b.Least && v <= b.Most && (b.Multiple == 0 || int64(v)%b.Multiple == 0)
}

// String completes "it must be".
func (b Bounds) String() string {
	text := b.numbers()
	if b.Note != "" {
		text += " (" + b.Note + ")"
	}
	return text
}

func (b Bounds) numbers() string {
	number := func(v float64) string {
		if math.IsInf(v, -1) {
			return "minus infinity"
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	from := func(what string) string {
		switch {
		case b.Multiple > 1 && b.Least == float64(b.Multiple) && b.Most < math.MaxInt64:
			return what + " up to " + number(b.Most)
		case b.Most == math.MaxInt64 || b.Most == math.MaxFloat32:
			return what + " of at least " + number(b.Least)
		case what == "a number":
			return "from " + number(b.Least) + " to " + number(b.Most)
		}
		return what + " from " + number(b.Least) + " to " + number(b.Most)
	}
	switch {
	case b.Only != nil:
		var list []string
		for _, v := range b.Only {
			list = append(list, number(v))
		}
		return anyOf(list)
	case b.Flag():
		return "0 or 1"
	case b.Least == -math.MaxFloat32:
		return "a finite number"
	case b.Most == math.MaxFloat32:
		return from("a finite number")
	case b.Multiple == 2:
		return from("an even number")
	case b.Multiple > 1:
		return from(fmt.Sprintf("a multiple of %d", b.Multiple))
	}
	return from("a number")
}

// anyOf joins words as in a sentence: a, b or c.
func anyOf(words []string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " or " + words[n]
}

// Rule limits an attribute further than its declaration does. With names a string attribute: the rule applies if its
// value is in Is, or, with Not, if it is not. A rule without With always applies.
type Rule struct {
	Attribute string
	// The attribute must be within Bounds, or in Values if it is a string.
	Bounds Bounds
	Values []string
	// AtMost, if not empty, names an int attribute that Attribute must not exceed.
	AtMost string

	With string
	Is   []string
	Not  bool
}

// Holds reports whether the rule applies for a value of With.
func (r Rule) Holds(value string) bool { return slices.Contains(r.Is, value) != r.Not }

// Expected completes "it must be".
func (r Rule) Expected() string {
	switch {
	case r.AtMost != "":
		return "at most " + r.AtMost
	case r.Values != nil:
		return anyOf(r.Values)
	}
	return r.Bounds.String()
}

// takes reports whether the attribute may have the value.
func (r Rule) takes(s Site, a *onnx.Attribute) bool {
	switch {
	case r.AtMost != "":
		return a.Int <= s.Attr(r.AtMost).Int
	case r.Values != nil:
		return slices.Contains(r.Values, a.String)
	}
	return r.Bounds.Takes(numberOf(a))
}

// numberOf returns the value of an int or a float.
func numberOf(a *onnx.Attribute) float64 {
	if a.Type == onnx.AttrInt {
		return float64(a.Int)
	}
	return float64(a.Float)
}

// valueOf formats the value of an attribute for messages.
func valueOf(a *onnx.Attribute) string {
	switch a.Type {
	case onnx.AttrString:
		return strconv.Quote(a.String)
	case onnx.AttrInt:
		return strconv.FormatInt(a.Int, 10)
	}
	return fmt.Sprint(a.Float)
}

// checkAttributes errs unless attrs are the attributes that the op declares, with values that it takes.
func (o *Op) checkAttributes(attrs []*onnx.Attribute) error {
	if err := o.checkKinds(attrs); err != nil {
		return err
	}
	s := Site{Attributes: attrs}
	for _, spec := range o.Attributes {
		if a := s.Attr(spec.Name); len(spec.Values) == 0 && !spec.Bounds.Takes(numberOf(a)) {
			return fmt.Errorf("mojo.%s attribute %s is %s; it must be %v", o.Name, a.Name, valueOf(a), spec.Bounds)
		}
	}
	return o.checkRules(s)
}

// checkKinds errs unless attrs are the attributes that the op declares, with their types and, for strings, a declared
// value.
func (o *Op) checkKinds(attrs []*onnx.Attribute) error {
	have := map[string]*onnx.Attribute{}
	for _, a := range attrs {
		have[a.Name] = a
	}
	for _, spec := range o.Attributes {
		a := have[spec.Name]
		if a == nil {
			return fmt.Errorf("mojo.%s needs the attribute %q", o.Name, spec.Name)
		}
		if a.Type != spec.Type || a.RefName != "" {
			return fmt.Errorf("mojo.%s attribute %q has the wrong type", o.Name, spec.Name)
		}
		if len(spec.Values) > 0 && !slices.Contains(spec.Values, a.String) {
			return fmt.Errorf("mojo.%s attribute %s is %q; it must be one of %s", o.Name, spec.Name, a.String,
				strings.Join(spec.Values, ", "))
		}
		delete(have, spec.Name)
	}
	for name := range have {
		return fmt.Errorf("mojo.%s has no attribute %q", o.Name, name)
	}
	return nil
}

// checkRules errs if an attribute breaks a rule.
func (o *Op) checkRules(s Site) error {
	for _, r := range o.Rules {
		a, with := s.Attr(r.Attribute), ""
		if r.With != "" {
			value := s.Attr(r.With).String
			if !r.Holds(value) {
				continue
			}
			with = fmt.Sprintf(" with %s %q", r.With, value)
		}
		if !r.takes(s, a) {
			return fmt.Errorf("mojo.%s attribute %s is %s; it must be %s%s", o.Name, a.Name, valueOf(a), r.Expected(),
				with)
		}
	}
	return nil
}

// place returns the index of an attribute in the declaration, or -1.
func (o *Op) place(attribute string) int {
	return slices.IndexFunc(o.Attributes, func(a AttributeSpec) bool { return a.Name == attribute })
}
