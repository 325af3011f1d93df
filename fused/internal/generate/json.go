package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// The JSON form of the catalogue. An infinite attribute is a string, "-Inf".
type (
	opJSON struct {
		Name       string          `json:"name"`
		Family     string          `json:"family"`
		Devices    []fused.Device  `json:"devices"`
		Partial    []fused.Partial `json:"partial,omitempty"`
		Inputs     []parameterJSON `json:"inputs"`
		Outputs    []parameterJSON `json:"outputs"`
		Attributes []attributeJSON `json:"attributes"`
	}
	parameterJSON struct {
		Name     string `json:"name"`
		Optional bool   `json:"optional,omitempty"`
	}
	attributeJSON struct {
		Name   string   `json:"name"`
		Type   string   `json:"type"`
		Values []string `json:"values,omitempty"`
	}
	formJSON struct {
		// Attributes are the values in the order of the op's list.
		Attributes []any
		// Inputs and Outputs are shapes, null for an input that is left out.
		Inputs, Outputs [][]int64
		// Types are the combinations that the form applies to, as indices in the op's list.
		Types []int

		Set []*onnx.Attribute
	}
)

// formLists returns the forms of an op in JSON, each as a list, since there are hundreds of them.
func formLists(o *fused.Op) (lists []string, err error) {
	rows := withoutRepeats(formsOf(o), func(f formJSON) []string {
		return mapped([]any{f.Attributes, f.Inputs, f.Outputs, f.Types}, func(v any) string {
			b, e := json.Marshal(v)
			err = errors.Join(err, e)
			return string(b)
		})
	})
	return mapped(rows, func(row string) string { return "[" + row + "]" }), err
}

// headOf returns an op in JSON without the closing brace, so that its forms can follow.
func headOf(o *fused.Op) (string, error) {
	op := opJSON{Name: o.Name, Family: o.Family.Name, Devices: append([]fused.Device{}, o.Devices...),
		Partial: o.Partial, Inputs: parameters(o.Inputs), Outputs: parameters(o.Outputs),
		Attributes: []attributeJSON{}}
	for _, a := range o.Attributes {
		op.Attributes = append(op.Attributes, attributeJSON{a.Name, kinds[a.Type], a.Values})
	}
	b, err := json.Marshal(op)
	return strings.TrimSuffix(string(b), "}"), err
}

func parameters(params []fused.Param) []parameterJSON {
	return mapped(params, func(p fused.Param) parameterJSON { return parameterJSON{p.Name, p.Optional} })
}

// typeList has the types of parameters. A combination has an index in it for each parameter.
var typeList = []string{"float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "float8e4m3fn"}

// typesIn returns the types of the inputs and of the outputs in a combination.
func typesIn(o *fused.Op, c fused.Combination) [2][]int {
	at := func(p fused.Param) int { return slices.Index(typeList, o.TypeOf(p, c).String()) }
	return [2][]int{mapped(o.Inputs, at), mapped(o.Outputs, at)}
}

func formsOf(o *fused.Op) []formJSON {
	var forms []formJSON
	at := map[string]int{}
	for i, c := range o.Types {
		for _, s := range o.Examples(c, fused.FormOpset) {
			f := formJSON{Attributes: []any{}, Set: s.Attributes, Inputs: s.Dims,
				Outputs: o.OutputShapes(s, func(a, _ int64) int64 { return a })}
			key := fmt.Sprint(s.Dims)
			for _, a := range s.Attributes {
				f.Attributes = append(f.Attributes, valueOf(a))
				key += fmt.Sprint(valueOf(a))
			}
			if _, have := at[key]; !have {
				at[key] = len(forms)
				forms = append(forms, f)
			}
			forms[at[key]].Types = append(forms[at[key]].Types, i)
		}
	}
	return forms
}

func valueOf(a *onnx.Attribute) any {
	switch {
	case a.Type == onnx.AttrInt:
		return a.Int
	case a.Type == onnx.AttrString:
		return a.String
	case math.IsInf(float64(a.Float), 0):
		return fmt.Sprint(a.Float)
	}
	return a.Float
}
