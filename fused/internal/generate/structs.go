package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// member is one field of a struct of attributes, or the embedded struct of another op.
type member struct {
	Name, Type string
	Doc        []string // lines of a comment
	Attribute  string   // empty for another op's struct
}

// goMembers lists the fields of an op's Go struct. It embeds the struct of another op if the op has all its attributes.
func goMembers(o *fused.Op) []member {
	var list []member
	for _, a := range o.Attributes {
		if a.Part != nil && whole(o, a.Part) {
			if !slices.ContainsFunc(list, func(m member) bool { return m.Type == typeIn(folderName(o), a.Part.Op) }) {
				list = append(list, member{Type: typeIn(folderName(o), a.Part.Op)})
			}
			continue
		}
		kind := map[onnx.AttributeType]string{onnx.AttrInt: "int64", onnx.AttrFloat: "float32",
			onnx.AttrString: "string"}[a.Type]
		if isFlag(a) {
			kind = "bool"
		}
		name := goName(a.Name)
		list = append(list, member{name, kind, comment(name+": "+a.Doc, 112), a.Name})
	}
	return list
}

// fields returns the Go expression for the fields of an op's struct. Attributes of an embedded struct keep its order.
func fields(o *fused.Op) string {
	var parts []string
	var rest []string
	flush := func() {
		if rest != nil {
			lines := comment(strings.Join(rest, " "), 100)
			parts, rest = append(parts, "[]any{\n"+strings.Join(lines, "\n")+"\n}"), nil
		}
	}
	for _, m := range goMembers(o) {
		if m.Attribute == "" {
			flush()
			parts = append(parts, "a."+m.Type[strings.LastIndex(m.Type, ".")+1:]+".Fields()")
			continue
		}
		rest = append(rest, fmt.Sprintf("%q,&a.%s,", m.Attribute, m.Name))
	}
	flush()
	switch len(parts) {
	case 0:
		return "nil"
	case 1:
		return parts[0]
	}
	return "slices.Concat(" + strings.Join(parts, ", ") + ")"
}

// folderName returns the name of the folder of an op.
func folderName(o *fused.Op) string {
	for _, f := range fused.Folders() {
		if slices.Contains(f.Ops, o) {
			return f.Name
		}
	}
	return ""
}

// typeIn returns the name of the Go struct of an op in the code of a folder.
func typeIn(folder, op string) string {
	if other := folderName(fused.Lookup(op)); other != folder {
		return other + "." + op
	}
	return op
}

// whole reports whether an op has all attributes of a part.
func whole(o *fused.Op, part *fused.Part) bool {
	n := 0
	for _, a := range o.Attributes {
		if a.Part != nil && *a.Part == *part {
			n++
		}
	}
	return n == len(fused.Lookup(part.Op).Attributes)
}

// initialisms maps words to their spelling in Go names.
var initialisms = map[string]string{"ids": "IDs", "pe": "PE"}

// attributeNames lists the names of all attributes.
func attributeNames() []string {
	var names []string
	for _, o := range fused.Ops() {
		for _, a := range o.Attributes {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// goName returns the Go name of an attribute or an input.
func goName(name string) string {
	return joinWords(name, func(word string) string {
		if text, ok := initialisms[word]; ok {
			return text
		}
		return strings.ToUpper(word[:1]) + word[1:]
	})
}

func joinWords(name string, each func(word string) string) string {
	return strings.Join(mapped(strings.Split(name, "_"), each), "")
}

// comment breaks a text into lines.
func comment(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

func isFlag(a fused.AttributeSpec) bool { return a.Type == onnx.AttrInt && a.Bounds.Flag() }

// isBool reports whether an attribute is a bool in C++.
func isBool(a fused.AttributeSpec) bool {
	return isFlag(a) || a.Type == onnx.AttrString && a.Field != ""
}

// isText reports whether an attribute is any string.
func isText(a fused.AttributeSpec) bool { return a.Type == onnx.AttrString && len(a.Values) == 0 }

// cMembers lists the fields of an op's C++ struct.
func cMembers(o *fused.Op) []member {
	var list []member
	for _, a := range o.Attributes {
		if a.Part != nil {
			if m := (member{Name: a.Part.Field, Type: a.Part.Op + "Attributes"}); !slices.ContainsFunc(list,
				func(other member) bool { return other.Name == m.Name }) {
				list = append(list, m)
			}
			continue
		}
		m := member{Name: a.Name + " = 0", Type: map[onnx.AttributeType]string{onnx.AttrInt: "int64_t",
			onnx.AttrFloat: "float"}[a.Type]}
		switch {
		case isBool(a):
			m.Type, m.Name = "bool", fieldOf(a)+" = false"
			if a.Field != "" {
				m.Doc = []string{a.Name + " is " + a.Values[1]}
			}
		case isText(a):
			m.Type, m.Name = "Text", a.Name
		case a.Type == onnx.AttrString:
			m.Type, m.Name = enumerationOf(a), a.Name+"{}"
		}
		list = append(list, m)
	}
	return list
}

// structs lists the ops. Ops whose structs contain structs of other ops come last.
func structs() []*fused.Op {
	var list, last []*fused.Op
	for _, o := range fused.Ops() {
		if slices.ContainsFunc(o.Attributes, func(a fused.AttributeSpec) bool { return a.Part != nil }) {
			last = append(last, o)
		} else {
			list = append(list, o)
		}
	}
	return append(list, last...)
}

func fieldOf(a fused.AttributeSpec) string {
	if a.Field != "" {
		return a.Field
	}
	return a.Name
}

// offset returns the offset of an attribute in the C++ struct.
func offset(o *fused.Op, a fused.AttributeSpec) string {
	name := fieldOf(a)
	if a.Part != nil {
		name = a.Part.Field + "." + name
	}
	return fmt.Sprintf("offsetof(%sAttributes, %s)", o.Name, name)
}

// sameAs names an earlier op with the same attributes, and so the same C++ struct. It returns "" if there is none.
func sameAs(o *fused.Op) string {
	for _, other := range fused.Ops() {
		if other == o {
			break
		}
		if slices.EqualFunc(o.Attributes, other.Attributes, func(a, b fused.AttributeSpec) bool {
			return a.Name == b.Name && a.Part == b.Part && a.Bounds.String() == b.Bounds.String()
		}) {
			return other.Name
		}
	}
	return ""
}

// bounds returns the initializer of the C++ struct of bounds.
func bounds(b fused.Bounds, expected string) string {
	least, most := b.Least, b.Most
	multiple := max(b.Multiple, 1)
	only := joined(b.Only, double)
	return fmt.Sprintf("{%s, %s, %d, {%s}, %d, %s}", double(least), double(most), multiple, only, len(b.Only),
		strconv.Quote(expected))
}

func double(v float64) string {
	switch {
	case v == math.MaxFloat32:
		return "FLT_MAX"
	case v == -math.MaxFloat32:
		return "-FLT_MAX"
	case math.IsInf(v, -1):
		return "-INFINITY"
	case v == math.MaxInt64:
		return "0x1p63"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// rule returns the initializer of the C++ struct of a rule: the limited attribute, its limits, and the condition.
func rule(o *fused.Op, r fused.Rule) string {
	place := func(name string) int {
		return slices.IndexFunc(o.Attributes, func(a fused.AttributeSpec) bool { return a.Name == name })
	}
	mask := func(values []string, has func(string) bool) string {
		bits := 0
		for i, v := range values {
			if has(v) {
				bits |= 1 << i
			}
		}
		return fmt.Sprintf("%#x", bits)
	}
	limited, with, is, values := o.Attributes[place(r.Attribute)], place(r.With), "0", "0"
	if with >= 0 {
		is = mask(o.Attributes[with].Values, r.Holds)
	}
	if r.Values != nil {
		values = mask(limited.Values, func(v string) bool { return slices.Contains(r.Values, v) })
	}
	return fmt.Sprintf("{%d, %d, %s, %s, %d, %s}", place(r.Attribute), with, is, values, place(r.AtMost),
		bounds(r.Bounds, r.Expected()))
}

// tied returns the attribute and the value that a combination of types requires, as members of the C++ struct.
func tied(o *fused.Op, c fused.Combination) string {
	if c.Attribute == "" {
		return ""
	}
	return fmt.Sprintf(", %d, %d", slices.IndexFunc(o.Attributes,
		func(a fused.AttributeSpec) bool { return a.Name == c.Attribute }), c.Value)
}
