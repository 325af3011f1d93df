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

// Shapes are what the shapes of a model's inputs are fixed to: those of inputs, and the sizes of symbolic dimensions,
// by name.
type Shapes struct {
	Inputs map[string][]int64
	Sizes  map[string]int64
}

// ParseShapes reads "input=2x7", the shape of an input, and "dimension=7", the size of a symbolic dimension.
func ParseShapes(list []string) (*Shapes, error) {
	s := &Shapes{Inputs: map[string][]int64{}, Sizes: map[string]int64{}}
	for _, text := range list {
		at := strings.LastIndex(text, "=")
		if at < 1 {
			return nil, fmt.Errorf("%q: it is the name of an input and its shape, such as input_ids=1x128, or of a "+
				"dimension and its size, such as sequence=128", text)
		}
		name, value := text[:at], text[at+1:]
		var shape []int64
		for _, d := range strings.Split(value, "x") {
			n, err := strconv.ParseInt(d, 10, 32)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("%q: %q is no size: sizes are numbers from 1 on, and those of a shape stand "+
					"between x, as in 1x128", text, d)
			}
			shape = append(shape, n)
		}
		if _, again := s.Inputs[name]; again || s.Sizes[name] != 0 {
			return nil, fmt.Errorf("%q: %s is given a size before", text, name)
		}
		if len(shape) == 1 {
			s.Sizes[name] = shape[0]
		} else {
			s.Inputs[name] = shape
		}
	}
	return s, nil
}

// leastOpset is the oldest opset that targets write on onnxruntime's CPU provider: reductions take axes as inputs.
const leastOpset = 18

// Prepare brings a model to what the target writes: its inputs to the shapes, if any are given, and a model of an older
// opset to the target's, or to the newest at which the target's runtime has a kernel for all nodes; limit says why it
// is not the target's. An error says what the target takes, and leaves the model changed in part.
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
			inputs[name] = []int64{n} // an input of one dimension
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

// static errs on an input with a dimension that is no number.
func static(m *onnx.Model, t *Target) error {
	for _, v := range m.Graph.Inputs {
		typ, ok := v.Type()
		if v.Const == nil && (!ok || !typ.HasShape ||
			slices.ContainsFunc(typ.Dims, func(d onnx.Dim) bool { return d.Value < 0 })) {
			return fmt.Errorf("target %s takes static shapes, and input %q is %v: fix it with --shape", t.Name, v.Name,
				typ)
		}
	}
	return nil
}
