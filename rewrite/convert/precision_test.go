package convert

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
)

// halves lists the half types, each with the providers of the converted model.
var halves = []struct {
	to        onnx.DataType
	providers []string
}{{onnx.Float16, nil}, {onnx.BFloat16, nil}, {onnx.BFloat16, []string{"cuda"}}}

// TestPrecisionOfBundledModels converts every bundled float32 model to the half types. Each loads in onnxruntime's CPU
// provider, except bfloat16 models for CUDA, which the built-in evaluator runs. The results must match PyTorch's
// float32 results within a few units of the half type.
func TestPrecisionOfBundledModels(t *testing.T) {
	for name, path := range bundled(t) {
		if !strings.HasSuffix(name, "fp32") || strings.Contains(path, "near") {
			continue
		}
		for _, half := range halves {
			if half.providers != nil && !strings.Contains(name, "dynamo") {
				continue // the evaluator is slow
			}
			if half.to == onnx.Float16 && strings.HasPrefix(name, "moe-") && !strings.Contains(name, "grouped") &&
				!strings.Contains(name, "loop") {
				continue // the same ops as in bfloat16
			}
			t.Run(fmt.Sprint(name, half.to, half.providers), func(t *testing.T) {
				m := read(t, path)
				cases, err := golden.Load(strings.TrimSuffix(path, ".onnx")+".npz", m)
				if err != nil {
					t.Fatal(err)
				}
				r, err := Precision(m, half.to, half.providers...)
				if err != nil {
					t.Fatal(err)
				}
				if r.From != onnx.Float || r.To != half.to || r.Initializers == 0 || r.Casts == 0 || r.Missing != 0 {
					t.Errorf("%+v", r)
				}
				m, file := rewritten(t, m)
				for _, v := range append(m.Graph.Inputs[:len(m.Graph.Inputs):len(m.Graph.Inputs)], m.Graph.Outputs...) {
					if d, _ := v.Type(); d.DataType.IsFloat() && d.DataType != half.to {
						t.Errorf("%q is of %s", v.Name, d.DataType)
					}
				}
				c := cases[0]
				c.Inputs = narrowed(t, c.Inputs, half.to)
				var got []*onnx.Tensor
				if half.providers != nil {
					got, err = evaluated(m, c.Inputs)
				} else {
					if name == "llama-dynamo23-fp32" { // its rotary op, as exported, runs only at batch 1
						c.Inputs = narrowed(t, cases[1].Inputs, half.to)
						c = golden.Case{Inputs: c.Inputs, Outputs: cases[1].Outputs}
					}
					got, err = runtime(file, ort.WithLibrary(orttest.Library(t)), &c)
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, g := range got {
					near(t, g, c.Output(g.Name), 8)
				}
			})
		}
	}
}

// narrowed returns the inputs with floats in another type.
func narrowed(t *testing.T, inputs []*onnx.Tensor, to onnx.DataType) []*onnx.Tensor {
	t.Helper()
	var list []*onnx.Tensor
	for _, in := range inputs {
		if in.DataType.IsFloat() && in.DataType != to {
			x, err := reference.FromONNX(in)
			if err != nil {
				t.Fatal(err)
			}
			x.DataType = to
			if in, err = x.ToONNX(in.Name); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, in)
	}
	return list
}

// near checks that a half-type tensor is within the given units in the last place of the largest magnitude.
func near(t *testing.T, got, want *onnx.Tensor, units float64) {
	t.Helper()
	if want == nil || !got.DataType.IsFloat() {
		return
	}
	x, err := reference.FromONNX(got)
	if err != nil {
		t.Fatal(err)
	}
	y, err := reference.FromONNX(want)
	if err != nil {
		t.Fatal(err)
	}
	var worst, greatest float64
	for i := range y.F {
		d := math.Abs(x.F[i] - y.F[i])
		if d != d || d > worst {
			worst = d
		}
		greatest = max(greatest, math.Abs(y.F[i]))
	}
	unit := 0x1p-11
	if got.DataType == onnx.BFloat16 {
		unit = 0x1p-8
	}
	if !(worst <= units*unit*greatest) {
		t.Errorf("%q differs by %g: %.1f units of the greatest magnitude", got.Name, worst, worst/unit/greatest)
	}
	if len(y.Shape) != 3 {
		return
	}
	stats, err := golden.CompareLogits(got, want)
	if err != nil {
		t.Fatal(err)
	}
	if limit := 4 * unit * unit * 16; float64(stats.MaxKL) > limit {
		t.Errorf("%q: the divergence is %g, more than %g", got.Name, float64(stats.MaxKL), limit)
	}
}
