package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

var kinds = map[onnx.AttributeType]string{onnx.AttrInt: "int", onnx.AttrFloat: "float", onnx.AttrString: "string"}

// short has short names of the element types, for tables.
var short = map[onnx.DataType]string{onnx.Float: "f32", onnx.Float16: "f16", onnx.BFloat16: "bf16", onnx.Int32: "int32",
	onnx.Int64: "int64", onnx.Int8: "int8", onnx.Uint8: "uint8", onnx.Float8E4M3FN: "e4m3"}

// signature lists parameters, each with its type after the separator. optional marks optional parameters.
func signature(list []fused.Param, separator, optional string) string {
	return joined(list, func(p fused.Param) string {
		if p.Optional {
			return p.Name + separator + p.Type + optional
		}
		return p.Name + separator + p.Type
	})
}

// dims formats a shape with its alternatives and their selectors.
func dims(o *fused.Op, s fused.Shape) string {
	selector, list := s.Alternatives()
	return strings.Join(cases(o, selector, list, func(text string) string {
		verb := ""
		if strings.Contains(text, "~") {
			verb = "broadcasts to "
		}
		text = strings.NewReplacer("~", "", ">=", "at least ", " ", ", ").Replace(text)
		return verb + "[" + strings.ReplaceAll(text, "least, ", "least ") + "]"
	}), " or ")
}

// cases lists the distinct alternatives, each with the values of the attribute that select it.
func cases(o *fused.Op, selector string, list []string, write func(string) string) []string {
	var texts []string
	with := map[string][]string{}
	input, given := strings.CutSuffix(selector, "?")
	for i, text := range list {
		if text = write(text); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
		for _, a := range o.Attributes {
			switch {
			case a.Name != selector:
			case a.Type == onnx.AttrInt:
				with[text] = append(with[text], fmt.Sprint(-1-i))
			default:
				with[text] = append(with[text], a.Values[i])
			}
		}
		if given && i == 1 {
			with[text] = []string{input}
		}
	}
	for i, text := range texts {
		switch values := with[text]; {
		case len(texts) == 1 || len(values) == 0:
		case given:
			texts[i] += " with " + values[0]
		default:
			texts[i] += " with " + selector + "=" + strings.Join(values, ", ")
		}
	}
	return texts
}

// sizes lists the sizes that follow from others and the relations between sizes.
func sizes(o *fused.Op) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(o.Let)) {
		selector, texts := o.Let[name].Alternatives()
		list = append(list, name+" = "+or(cases(o, selector, texts, func(text string) string {
			return strings.ReplaceAll(text, "?", "set by past_length")
		})))
	}
	for _, r := range o.Where {
		list = append(list, strings.ReplaceAll(r.Text, "#", "the product of "))
	}
	return strings.Join(list, "; ")
}

// typesText describes the types that an op takes: first independent variables, then variables that depend on each
// other, then variables that follow from others.
func typesText(o *fused.Op, brief bool) string {
	name := onnx.DataType.String
	if brief {
		name = func(t onnx.DataType) string { return short[t] }
	}
	var free, follow []string
	for _, p := range slices.Concat(o.Inputs, o.Outputs) {
		v := o.Variable(p.Type)
		if _, listed := o.Types[0].Types[p.Type]; v == nil && listed && !slices.Contains(free, p.Type) {
			free = append(free, p.Type)
		}
		if v == nil {
			continue
		}
		text := p.Type + " is " + v.Doc
		if v.Attribute != "" {
			var of []string
			for value, other := range v.Of {
				of = append(of, fmt.Sprintf("%s with %s=%d", other, v.Attribute, value))
			}
			text = p.Type + " is " + strings.Join(of, ", ")
		}
		if !slices.Contains(follow, text) {
			follow = append(follow, text)
		}
	}
	var words, tied []string
	for _, v := range free {
		if types := alone(o, v, free); types != nil {
			words = append(words, v+" is "+or(mapped(types, name)))
		} else {
			tied = append(tied, v)
		}
	}
	return strings.Join(slices.Concat(words, together(o, tied, name), follow), "; ")
}

// alone lists the types of a variable that is independent of the others. It returns nil for another variable.
func alone(o *fused.Op, variable string, free []string) []onnx.DataType {
	with := map[onnx.DataType][]string{}
	var types []onnx.DataType
	for _, c := range o.Types {
		t := c.Types[variable]
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
		others := fmt.Sprint(c.Attribute, c.Value)
		for _, v := range free {
			if v != variable {
				others += " " + c.Types[v].String()
			}
		}
		if !slices.Contains(with[t], others) {
			with[t] = append(with[t], others)
		}
	}
	for _, t := range types {
		slices.Sort(with[t])
		if !slices.Equal(with[t], with[types[0]]) {
			return nil
		}
	}
	return types
}

// together lists the combinations of variables that depend on each other, grouped by attribute value.
func together(o *fused.Op, variables []string, name func(onnx.DataType) string) []string {
	if len(variables) == 0 {
		return nil
	}
	var order []string
	sets := map[string][]string{}
	for _, c := range o.Types {
		where := ""
		if c.Attribute != "" {
			where = fmt.Sprintf("with %s=%d also ", c.Attribute, c.Value)
		} else {
			where = "(" + strings.Join(variables, ", ") + ") is "
		}
		if sets[where] == nil {
			order = append(order, where)
		}
		types := "(" + joined(variables, func(v string) string { return name(c.Types[v]) }) + ")"
		if !slices.Contains(sets[where], types) { // equal ones differ in a variable listed separately
			sets[where] = append(sets[where], types)
		}
	}
	return mapped(order, func(where string) string { return where + or(sets[where]) })
}

// or joins words as in a sentence: a, b or c.
func or(words []string) string {
	n := len(words) - 1
	if n == 0 {
		return words[0]
	}
	return strings.Join(words[:n], ", ") + " or " + words[n]
}
