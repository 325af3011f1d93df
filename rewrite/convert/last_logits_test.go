package convert

import (
	"errors"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// TestLastLogitsOfBundledModels: every bundled language model then reproduces the last positions of its goldens, in
// onnxruntime if it has the kernels and otherwise in the built-in evaluator. A second call has nothing to do.
func TestLastLogitsOfBundledModels(t *testing.T) {
	tried := 0
	for name, path := range bundled(t) {
		m := read(t, path)
		// Image logits have two axes.
		if d, _ := m.Graph.Outputs[0].Type(); m.Graph.Outputs[0].Name != "logits" || len(d.Dims) != 3 {
			continue
		}
		tried++
		t.Run(name, func(t *testing.T) {
			cases, err := golden.Load(strings.TrimSuffix(path, ".onnx")+".npz", m)
			if err != nil {
				t.Fatal(err)
			}
			if err := LastLogits(m); err != nil {
				t.Fatal(err)
			}
			m, file := rewritten(t, m)
			if d, _ := m.Graph.Outputs[0].Type(); len(d.Dims) != 3 || d.Dims[1].Value != 1 {
				t.Errorf("the output is declared as %+v", d)
			}
			for i, c := range cases[:1] {
				c.Outputs = append([]*onnx.Tensor{}, c.Outputs...)
				for i, o := range c.Outputs {
					if o.Name == "logits" {
						c.Outputs[i] = lastPosition(t, o)
					}
				}
				got, err := runtime(file, ort.WithLibrary(orttest.Library(t)), &c)
				// its rotary tables have batch 1
				if err != nil && (strings.Contains(name, "bf16") || name == "llama-dynamo23-fp32") {
					got, err = evaluated(m, c.Inputs)
				}
				if err == nil {
					err = within(got, &c)
				}
				if err != nil {
					t.Errorf("case %d: %v", i, err)
				}
			}
			if err := LastLogits(m); !errors.Is(err, ErrLastOnly) {
				t.Errorf("once more: %v", err)
			}
		})
	}
	if tried < 10 {
		t.Errorf("%d models have logits", tried)
	}
}

// lastPosition returns the [batch, 1, vocabulary] part of [batch, sequence, vocabulary].
func lastPosition(t *testing.T, o *onnx.Tensor) *onnx.Tensor {
	t.Helper()
	b, err := o.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	batch, positions := int(o.Dims[0]), int(o.Dims[1])
	row := len(b) / batch / positions
	var last []byte
	for i := range batch {
		at := (i*positions + positions - 1) * row
		last = append(last, b[at:at+row]...)
	}
	r, err := onnx.NewTensor(o.Name, o.DataType, []int64{o.Dims[0], 1, o.Dims[2]}, last)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
