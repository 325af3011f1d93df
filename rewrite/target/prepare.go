package target

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// Shapes are fixed shapes of a model's inputs, and sizes of symbolic dimensions, by name.
type Shapes struct {
	Inputs map[string][]int64
	Sizes  map[string]int64
}

// ParseShapes parses "input=2x7", the shape of an input, and "dimension=7", the size of a symbolic dimension.
func ParseShapes(list []string) (*Shapes, error) {
	s := &Shapes{Inputs: map[string][]int64{}, Sizes: map[string]int64{}}
	for _, text := range list {
		at := strings.LastIndex(text, "=")
		if at < 1 {
			return nil, fmt.Errorf("%q: write the name of an input and its shape, such as input_ids=1x128, or of a "+
				"dimension and its size, such as sequence=128", text)
		}
		name, value := text[:at], text[at+1:]
		var shape []int64
		for _, d := range strings.Split(value, "x") {
			n, err := strconv.ParseInt(d, 10, 32)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("%q: %q is not a size: sizes are numbers from 1 on, and x separates the "+
					"sizes of a shape, as in 1x128", text, d)
			}
			shape = append(shape, n)
		}
		if _, again := s.Inputs[name]; again || s.Sizes[name] != 0 {
			return nil, fmt.Errorf("%q: %s already has a size", text, name)
		}
		if len(shape) == 1 {
			s.Sizes[name] = shape[0]
		} else {
			s.Inputs[name] = shape
		}
	}
	return s, nil
}

// leastOpset is the oldest opset of targets on onnxruntime's CPU provider: reductions take their axes as inputs.
const leastOpset = 18

// Prepare prepares a model for the target. It fixes the shapes, if s is not nil, and raises an older opset to the
// target's, or to the newest one at which the target's runtime has a kernel for all nodes; limit then says why. An
// error names the requirement of the target and leaves the model partly changed.
func Prepare(m *onnx.Model, t *Target, s *Shapes) (limit error, err error) {
	if s != nil {
		if err := s.fix(m); err != nil {
			return nil, err
		}
	}
	if t.Static {
		if err := static(m, t); err != nil {
			return nil, err
		}
	}
	to := t.Opset
	if m.Opset("") >= to {
		return nil, nil
	}
	if t.OnCPU {
		if to, limit = Raisable(m, infer.Analyze(m), to); to < leastOpset {
			return nil, fmt.Errorf("target %s takes opset %d: %w", t.Name, leastOpset, limit)
		}
	}
	if err := convert.Opset(m, to); err != nil {
		return nil, fmt.Errorf("target %s takes opset %d: %w", t.Name, to, err)
	}
	return limit, nil
}

func (s *Shapes) fix(m *onnx.Model) error {
	inputs, sizes := map[string][]int64{}, map[string]int64{}
	for name, shape := range s.Inputs {
		inputs[name] = shape
	}
	for name, n := range s.Sizes {
		if slices.ContainsFunc(m.Graph.Inputs, func(v *onnx.Value) bool { return v.Name == name }) {
			inputs[name] = []int64{n} // an input with one dimension
		} else {
			sizes[name] = n
		}
	}
	if len(sizes) > 0 {
		if err := convert.Dims(m, sizes); err != nil {
			return err
		}
	}
	if len(inputs) > 0 {
		return convert.Shapes(m, inputs)
	}
	return nil
}

// static returns an error for an input with a dimension that is not a number.
func static(m *onnx.Model, t *Target) error {
	for _, v := range m.Graph.Inputs {
		typ, ok := v.Type()
		if v.Const == nil && (!ok || !typ.HasShape ||
			slices.ContainsFunc(typ.Dims, func(d onnx.Dim) bool { return d.Value < 0 })) {
			return fmt.Errorf("target %s takes static shapes, but input %q is %v: fix it with --shape", t.Name, v.Name,
				typ)
		}
	}
	return nil
}
