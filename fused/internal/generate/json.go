package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// The JSON form of the catalogue. An infinite attribute is a string, "-Inf".
type (
	opJSON struct {
		Name       string            `json:"name"`
		Family     string            `json:"family"`
		Devices    []fused.Device    `json:"devices"`
		Inputs     []parameterJSON   `json:"inputs"`
		Outputs    []parameterJSON   `json:"outputs"`
		Attributes []attributeJSON   `json:"attributes"`
		Types      []combinationJSON `json:"types"`
		// Forms are the ways to use the op that kernels are tried in.
		Forms []formJSON `json:"forms"`
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
	combinationJSON struct {
		Inputs  []string `json:"inputs"`
		Outputs []string `json:"outputs"`
	}
	formJSON struct {
		Attributes map[string]any `json:"attributes"`
		// Inputs and Outputs are shapes, null for an input that is left out.
		Inputs  [][]int64 `json:"inputs"`
		Outputs [][]int64 `json:"outputs"`
		// Types are the combinations that the form is there for, by their place in the op's list.
		Types []int `json:"types"`

		set []*onnx.Attribute
	}
)

// catalogue is fused/kernels/tests/ops.json, with a line for each form.
func catalogue() ([]byte, error) {
	var list []opJSON
	for _, o := range fused.Ops() {
		op := opJSON{Name: o.Name, Family: o.Family.Name, Devices: o.Devices}
		for _, p := range o.Inputs {
			op.Inputs = append(op.Inputs, parameterJSON{p.Name, p.Optional})
		}
		for _, p := range o.Outputs {
			op.Outputs = append(op.Outputs, parameterJSON{p.Name, p.Optional})
		}
		for _, a := range o.Attributes {
			op.Attributes = append(op.Attributes, attributeJSON{a.Name, kinds[a.Type], a.Values})
		}
		for _, c := range o.Types {
			op.Types = append(op.Types, combinationJSON{typeNames(o, o.Inputs, c), typeNames(o, o.Outputs, c)})
		}
		op.Forms = formsOf(o)
		list = append(list, op)
	}
	return encode(list)
}

func typeNames(o *fused.Op, params []fused.Param, c fused.Combination) []string {
	var names []string
	for _, p := range params {
		names = append(names, o.TypeOf(p, c).String())
	}
	return names
}

func formsOf(o *fused.Op) []formJSON {
	var forms []formJSON
	at := map[string]int{}
	for i, c := range o.Types {
		for _, s := range o.Examples(c, fused.MinOpset) {
			f := formJSON{Attributes: map[string]any{}, Inputs: s.Dims,
				Outputs: o.OutputShapes(s, func(a, _ int64) int64 { return a })}
			key := fmt.Sprint(s.Dims)
			for _, a := range s.Attributes {
				f.Attributes[a.Name] = valueOf(a)
				key += fmt.Sprint(f.Attributes[a.Name])
			}
			f.set = s.Attributes
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

// encode writes each op on lines of its own, and so each of its lists' elements.
func encode(ops []opJSON) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("[\n")
	for i, op := range ops {
		one, err := json.Marshal(op)
		if err != nil {
			return nil, err
		}
		var fields struct {
			Forms []json.RawMessage `json:"forms"`
		}
		if err := json.Unmarshal(one, &fields); err != nil {
			return nil, err
		}
		head, _, _ := bytes.Cut(one, []byte(`"forms":[`))
		b.Write(head)
		b.WriteString("\"forms\":[\n")
		for j, f := range fields.Forms {
			b.WriteString("  ")
			b.Write(f)
			if j < len(fields.Forms)-1 {
				b.WriteByte(',')
			}
			b.WriteByte('\n')
		}
		b.WriteString("]}")
		if i < len(ops)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	return b.Bytes(), nil
}
