package feeds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/rewrite/dims"
)

// InHalf converts float32 outputs of a model in half precision to that type, which is their real precision.
func InHalf(m *onnx.Model, cases []golden.Case) error {
	half := golden.Half(m)
	for _, c := range cases {
		for i, t := range c.Outputs {
			if half == onnx.Undefined || t.DataType != onnx.Float {
				continue
			}
			var err error
			if c.Outputs[i], err = golden.Convert(t, half); err != nil {
				return err
			}
		}
	}
	return nil
}

// RecordedCases returns the inputs of a file: cases of the model, or recorded generations.
func RecordedCases(path string, m *onnx.Model) ([]golden.Case, error) {
	if list, err := ReadRecorded(path); err == nil {
		return PromptCases(m, list)
	}
	return loadCases(path, m)
}

// PromptCases turns prompts with their generated tokens into inputs of the model: one sequence without a past.
func PromptCases(m *onnx.Model, list []generate.Recorded) ([]golden.Case, error) {
	dims, ids := map[string]int64{}, (*roles.Input)(nil)
	inputs := roles.Find(m)
	for _, in := range inputs {
		if in.Role == roles.Index && ids == nil && len(in.Dims) == 2 {
			ids = in
		}
	}
	if ids == nil {
		return nil, fmt.Errorf("%s has no input [batch, sequence] of token ids for a recorded generation", m.Path)
	}
	for _, in := range inputs {
		for i, d := range in.Dims {
			if in.Role == roles.Past && i > 0 && d.Param != "" {
				dims[d.Param] = 0
			}
		}
	}
	var cases []golden.Case
	for _, r := range list {
		all := slices.Concat(r.Prompt, r.IDs)
		for i, size := range []int64{1, int64(len(all))} {
			if d := ids.Dims[i]; d.Value < 0 && d.Param != "" {
				dims[d.Param] = size
			} else if d.Value != size {
				return nil, fmt.Errorf("%s takes token ids of shape %v, but a recorded generation has [1 %d]", m.Path,
					ids.Dims, len(all))
			}
		}
		tensors, err := golden.RandomInputs(m, 0, dims)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		for i, t := range tensors {
			if t.Name != ids.Value.Name {
				continue
			}
			var raw []byte
			for _, id := range all {
				if t.DataType == onnx.Int32 {
					raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
				} else {
					raw = binary.LittleEndian.AppendUint64(raw, uint64(id))
				}
			}
			if tensors[i], err = onnx.NewTensor(t.Name, t.DataType, t.Dims, raw); err != nil {
				return nil, err
			}
		}
		cases = append(cases, golden.Case{Inputs: tensors})
	}
	return cases, nil
}

// RecordedInputs reads the inputs of recorded cases. Caches that an earlier case computed come from its outputs.
func RecordedInputs(path string, m *onnx.Model) ([][]*onnx.Tensor, error) {
	cases, err := RecordedCases(path, m)
	if err != nil {
		return nil, err
	}
	var list [][]*onnx.Tensor
	for i, c := range cases {
		if c, err = c.Followed(cases[:i]); err != nil {
			return nil, fmt.Errorf("case %d of %s: %w", i, path, err)
		}
		list = append(list, c.Inputs)
	}
	return list, nil
}

// ReadRecorded reads promptN, greedyN, top2gapN and logits_lastN for N from 0.
func ReadRecorded(path string) ([]generate.Recorded, error) {
	cases, err := golden.Load(path, nil)
	if err != nil {
		return nil, err
	}
	var list []generate.Recorded
	for len(cases) > 0 {
		n := strconv.Itoa(len(list))
		prompt, ids := cases[0].Input("prompt"+n), cases[0].Input("greedy"+n)
		if prompt == nil || ids == nil {
			break
		}
		var r generate.Recorded
		var last []float64
		var errs [4]error
		r.Prompt, errs[0] = golden.Int64s(prompt)
		r.IDs, errs[1] = golden.Int64s(ids)
		if t := cases[0].Input("top2gap" + n); t != nil {
			r.Gaps, errs[2] = golden.Float64s(t)
		}
		if t := cases[0].Input("logits_last" + n); t != nil {
			last, errs[3] = golden.Float64s(t)
		}
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, x := range last {
			r.Last = append(r.Last, float32(x))
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s does not hold a recorded generation: it needs arrays prompt0 and greedy0 of token "+
			"ids", path)
	}
	return list, nil
}

// RecordedOf loads recorded cases whose sizes in these dimensions may differ from the model's.
func RecordedOf(path string, m *onnx.Model, list []*dims.Dim) ([]golden.Case, error) {
	open, err := dims.Open(m, list)
	if err != nil {
		return nil, err
	}
	defer open.Close()
	return Recorded(path, open)
}

// AsDeclared converts floats to the types that inputs of the model have.
func AsDeclared(inputs []*onnx.Value, given []*onnx.Tensor) ([]*onnx.Tensor, error) {
	given = slices.Clone(given)
	for i, x := range given {
		at := slices.IndexFunc(inputs, func(v *onnx.Value) bool { return v.Name == x.Name })
		if at < 0 || !x.DataType.IsFloat() {
			continue
		}
		t, _ := inputs[at].Type()
		var err error
		if given[i], err = golden.Convert(x, t.DataType); err != nil {
			return nil, err
		}
	}
	return given, nil
}
