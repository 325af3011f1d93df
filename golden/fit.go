package golden

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// FitInputs errs when the model m cannot be run on a case: an input is missing, is none of the model's, or has
// another type, rank or fixed dimension than the model declares. The error names all of them.
func FitInputs(m *onnx.Model, c Case) error {
	var errs []error
	for _, v := range inputValues(m) {
		t := c.Input(v.Name)
		if t == nil {
			errs = append(errs, fmt.Errorf("there are no values for the input %s", describe(v)))
			continue
		}
		if want, ok := v.Type(); ok && !accepts(want, t) {
			errs = append(errs, fmt.Errorf("the values for the input %s are %s%v", describe(v), t.DataType, t.Dims))
		}
	}
	for _, t := range c.Inputs {
		if v := m.Graph.Value(t.Name); v == nil || !isInput(m, v) {
			errs = append(errs, fmt.Errorf("%q is no input of the model; those are %s", t.Name, names(m.Graph.Inputs)))
		}
	}
	return errors.Join(errs...)
}

// accepts reports whether a tensor has the type, the rank and the fixed dimensions of a declared type.
func accepts(want onnx.Type, t *onnx.Tensor) bool {
	if want.DataType != onnx.Undefined && want.DataType != t.DataType {
		return false
	}
	if !want.HasShape {
		return true
	}
	if len(want.Dims) != len(t.Dims) {
		return false
	}
	for i, d := range want.Dims {
		if d.Param == "" && d.Value >= 0 && d.Value != t.Dims[i] {
			return false
		}
	}
	return true
}

func isInput(m *onnx.Model, v *onnx.Value) bool {
	for _, in := range m.Graph.Inputs {
		if in == v {
			return true
		}
	}
	return false
}

func describe(v *onnx.Value) string {
	if t, ok := v.Type(); ok {
		return fmt.Sprintf("%q (%s)", v.Name, t)
	}
	return fmt.Sprintf("%q", v.Name)
}

func tensorNames(list []*onnx.Tensor) string {
	var quoted []string
	for _, t := range list {
		quoted = append(quoted, fmt.Sprintf("%q", t.Name))
	}
	return strings.Join(quoted, ", ")
}

func names(values []*onnx.Value) string {
	var list []string
	for _, v := range values {
		list = append(list, fmt.Sprintf("%q", v.Name))
	}
	return strings.Join(list, ", ")
}
