package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

//go:embed templates
var templateFiles embed.FS

// templates write the files. Actions are between << and >>.
var templates = template.Must(template.New("").Delims("<<", ">>").Funcs(template.FuncMap{
	"typesIn": typesIn, "typeList": func() []string { return typeList }, "ops": fused.Ops, "folders": fused.Folders,
	"devices": fused.Devices, "enumerations": enumerations, "formLists": formLists,
	"formTexts": formTexts, "head": headOf,
	"domain":    func() string { return fused.Domain },
	"version":   func() int { return fused.Version },
	"opset":     func() int { return fused.MinOpset },
	"upper":     upper,
	"upperAll":  func(devices []fused.Device) string { return joined(devices, upper) },
	"has":       func(list []fused.Device, d fused.Device) bool { return slices.Contains(list, d) },
	"kind":      func(t onnx.AttributeType) string { return kinds[t] },
	"goMembers": goMembers, "cMembers": cMembers, "offset": offset, "sameAs": sameAs, "rule": rule, "tied": tied,
	"isBool": isBool, "goName": goName, "dims": dims,
	"sizeDefs":   func(t fused.ShapeTable) string { return joined(t.Sizes, sizeDef) },
	"fieldNames": fieldNames, "dimDefs": dimDefs, "shapeDefs": shapeDefs, "relationDef": relationDef,
	"sizes": sizes, "structs": structs, "fields": fields,
	"attributeNames": attributeNames,
	"bounds": func(a fused.AttributeSpec) string {
		if a.Type == onnx.AttrString {
			return "{}"
		}
		return bounds(a.Bounds, a.Bounds.String())
	},
	"camel": camel, "required": required, "signature": signature, "typesText": typesText,
	"quoted": func(words []string) string { return joined(words, strconv.Quote) },
	"quotedNames": func(params []fused.Param) string {
		return joined(params, func(p fused.Param) string { return strconv.Quote(p.Name) })
	},
	"json": func(v any) (string, error) {
		b, err := json.Marshal(v)
		return string(b), err
	},
	"constants": func(o *fused.Op) string {
		return joined(o.Inputs, func(p fused.Param) string { return "k" + o.Name + camel(p.Name) })
	},
	"enumerators": func(values []string) string {
		return joined(values, func(v string) string { return "k" + camel(v) })
	},
	"variables": variables,
	"join":      func(list []string) string { return strings.Join(list, ", ") },
	"typesOf": func(o *fused.Op, params []fused.Param) string {
		return joined(params, func(p fused.Param) string {
			if slices.Contains(variables(o), p.Type) {
				return p.Type
			}
			return constantOf[o.TypeOf(p, o.Types[0])]
		})
	},
	"types": func(o *fused.Op, c fused.Combination) string {
		return joined(variables(o), func(v string) string { return constantOf[o.TypeOf(fused.Param{Type: v}, c)] })
	},
	"values": func(a fused.AttributeSpec) string {
		if len(a.Values) == 0 {
			return ""
		}
		return " (`" + strings.Join(a.Values, "`, `") + "`)"
	},
}).ParseFS(templateFiles, "templates/*"))

// variables lists the type variables of an op's inputs and outputs.
func variables(o *fused.Op) (list []string) {
	for _, p := range slices.Concat(o.Inputs, o.Outputs) {
		if len(p.Type) == 1 && !slices.Contains(list, p.Type) {
			list = append(list, p.Type)
		}
	}
	return list
}

// mapped returns the results of f for each element.
func mapped[T, U any](list []T, f func(T) U) []U {
	made := make([]U, len(list))
	for i, x := range list {
		made[i] = f(x)
	}
	return made
}

func joined[T any](list []T, text func(T) string) string {
	return strings.Join(mapped(list, text), ", ")
}

func words[T any](list []T, text func(T) string) string { return strings.Join(mapped(list, text), " ") }

func upper(d fused.Device) string { return strings.ToUpper(string(d)) }

// enumeration is a C++ enumeration of the values of string attributes.
type enumeration struct {
	Name   string
	Values []string
}

// enumerations lists the enumerations of string attributes that are not bools in C++. Attributes share an enumeration
// if their names are equal or one ends in the other. Then the values of one must begin with the values of the other.
func enumerations() ([]enumeration, error) {
	var list []enumeration
	for _, o := range fused.Ops() {
		for _, a := range o.Attributes {
			if a.Type != onnx.AttrString || isBool(a) || isText(a) {
				continue
			}
			i := slices.IndexFunc(list, func(e enumeration) bool { return e.Name == enumerationOf(a) })
			if i < 0 {
				list = append(list, enumeration{enumerationOf(a), a.Values})
				continue
			}
			n := min(len(a.Values), len(list[i].Values))
			if !slices.Equal(a.Values[:n], list[i].Values[:n]) {
				return nil, fmt.Errorf(
					"attribute %s of %s has the values %v, elsewhere %v: one must begin with the other", a.Name,
					o.Name, a.Values, list[i].Values)
			}
			if len(a.Values) > n {
				list[i].Values = a.Values
			}
		}
	}
	return list, nil
}

// enumerationOf names the enumeration of a string attribute after the attribute, or after one that its name ends in.
func enumerationOf(a fused.AttributeSpec) string {
	for _, o := range fused.Ops() {
		for _, other := range o.Attributes {
			if other.Type == onnx.AttrString && !isBool(other) && strings.HasSuffix(a.Name, "_"+other.Name) {
				return camel(other.Name)
			}
		}
	}
	return camel(a.Name)
}

func camel(name string) string {
	return joinWords(name, func(word string) string { return strings.ToUpper(word[:1]) + word[1:] })
}

var constantOf = map[onnx.DataType]string{onnx.Float: "kF32", onnx.Float16: "kF16", onnx.BFloat16: "kBF16",
	onnx.Int32: "kI32", onnx.Int64: "kI64", onnx.Int8: "kI8", onnx.Uint8: "kU8", onnx.Float8E4M3FN: "kF8"}

// shape formats a shape as [2,3], or as "-" if the input is left out.
func shape(dims []int64) string {
	if dims == nil {
		return "-"
	}
	return "[" + strings.Join(mapped(dims, func(d int64) string { return strconv.FormatInt(d, 10) }), ",") + "]"
}

// set lists the attributes of a kind with their values.
// formTexts returns the initializers of an op's FormTexts.
func formTexts(o *fused.Op) []string {
	rows := withoutRepeats(formsOf(o), func(f formJSON) []string {
		return mapped([]string{set(f.Set, "int"), set(f.Set, "float"), set(f.Set, "string"), words(f.Inputs, shape),
			words(f.Outputs, shape), words(f.Types, strconv.Itoa)}, strconv.Quote)
	})
	return mapped(rows, func(row string) string { return "{&k" + o.Name + "," + row + "}" })
}

// withoutRepeats returns rows of texts of forms. A text that is the same as in the row above is 0.
func withoutRepeats(forms []formJSON, texts func(formJSON) []string) []string {
	var above []string
	return mapped(forms, func(f formJSON) string {
		row := texts(f)
		shown := slices.Clone(row)
		for i := range above {
			if row[i] == above[i] {
				shown[i] = "0"
			}
		}
		above = row
		return strings.Join(shown, ",")
	})
}

func set(attributes []*onnx.Attribute, kind string) string {
	of := slices.DeleteFunc(slices.Clone(attributes), func(a *onnx.Attribute) bool { return kinds[a.Type] != kind })
	return words(of, func(a *onnx.Attribute) string { return fmt.Sprint(a.Name, "=", valueOf(a)) })
}

// required returns the number of required parameters.
func required(params []fused.Param) int {
	n := slices.IndexFunc(params, func(p fused.Param) bool { return p.Optional })
	if n < 0 {
		return len(params)
	}
	return n
}
