package golden

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// FitInputs returns an error if the model m cannot run on a case: an input is missing, does not belong to the model, or
// has another type, rank or fixed dimension than the model declares. The error names all of them.
func FitInputs(m *onnx.Model, c Case) error {
	var errs []error
	for _, v := range inputValues(m) {
		t := c.Input(v.Name)
		if t == nil && c.follows(v.Name) {
			continue
		}
		if t == nil {
			errs = append(errs, fmt.Errorf("the case has no values for the input %s", describe(v)))
			continue
		}
		if want, ok := v.Type(); ok && !accepts(want, t) {
			errs = append(errs, fmt.Errorf("the values for the input %s are %s%v", describe(v), t.DataType, t.Dims))
		}
	}
	for _, t := range c.Inputs {
		if v := m.Graph.Value(t.Name); v == nil || !slices.Contains(m.Graph.Inputs, v) {
			errs = append(errs, fmt.Errorf("%q is not an input of the model; the inputs are %s", t.Name,
				quoted(m.Graph.Inputs, func(v *onnx.Value) string { return v.Name })))
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

func describe(v *onnx.Value) string {
	if t, ok := v.Type(); ok {
		return fmt.Sprintf("%q (%s)", v.Name, t)
	}
	return fmt.Sprintf("%q", v.Name)
}

// quoted lists names for a message.
func quoted[T any](list []T, name func(T) string) string {
	var names []string
	for _, x := range list {
		names = append(names, strconv.Quote(name(x)))
	}
	return strings.Join(names, ", ")
}
