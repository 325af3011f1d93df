package convert

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestPrecisionLimitsMasks: the lowest float32 of a mask becomes the lowest number of the type instead of infinity,
// even if arithmetic in float32 computes the mask, and that numbers that are too large are counted.
func TestPrecisionLimitsMasks(t *testing.T) {
	build := func() *head {
		h := newHead()
		lowest := h.Floats(nil, -math.MaxFloat32)
		keep := h.Op("Cast", h.Graph.Inputs[0], onnx.IntAttr("to", int64(onnx.Float)))
		mask := h.Op("Mul", h.Op("Sub", h.Floats(nil, 1), keep), lowest) // 0 for an id of 1
		scores := h.Op("Mul", h.tied(h.rows), h.Floats([]int64{5}, 1, 1, 1, 1e6, 1))
		h.out(h.Op("Add", scores, h.Op("Unsqueeze", mask, h.Ints(2))))
		return h
	}
	ids := onnx.NewInt64s("ids", []int64{1, 0, 1, 0})
	ids.Dims = []int64{2, 2}
	for _, to := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
		h := build()
		r, err := Precision(h.Model, to, "cuda")
		if err != nil {
			t.Fatal(err)
		}
		want := map[onnx.DataType]int{onnx.Float16: 2, onnx.BFloat16: 1}[to]
		if len(r.OutOfRange) != want || r.OutOfRange[0].Elements != 1 {
			t.Errorf("%s: %+v", to, r.OutOfRange)
		}
		m, _ := rewritten(t, h.Model)
		got, err := evaluated(m, []*onnx.Tensor{ids})
		if err != nil {
			t.Fatal(err)
		}
		x, err := reference.FromONNX(got[0])
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range x.F[5:10] { // row of id 0, which is masked
			if math.IsInf(f, 0) && i != 3 || f > -greatest(to)/2 && i != 3 {
				t.Errorf("%s: masked element %d is %g", to, i, f)
			}
		}
	}
}

// TestPrecisionInlines: model-local functions are replaced by their bodies, whose Casts have one type.
func TestPrecisionInlines(t *testing.T) {
	h := newHead()
	h.Model.ImportOpset("local", 1)
	f := onnx.NewFunction("local", "Twice", "", 17)
	x := f.Body.AddInput("x", onnx.Type{})
	c, y := f.Body.NewValue("c"), f.Body.NewValue("y")
	f.Body.AddNode("Cast", []*onnx.Value{x}, []*onnx.Value{c}, onnx.IntAttr("to", int64(onnx.Float)))
	f.Body.AddNode("Add", []*onnx.Value{c, c}, []*onnx.Value{y})
	f.Body.AddOutput(y)
	h.Model.Functions = append(h.Model.Functions, f)
	h.out(h.Op("local:Twice", h.tied(h.rows)))
	r, err := Precision(h.Model, onnx.Float16)
	if err != nil {
		t.Fatal(err)
	}
	if r.Inlined != 1 || len(h.Model.Functions) != 0 || r.Casts != 0 || r.Removed != 1 {
		t.Errorf("%+v\n%s", r, text(h.Model))
	}
}

// TestPrecisionErrs: each error says why the model cannot be converted.
func TestPrecisionErrs(t *testing.T) {
	plain := func(build func(h *head)) *onnx.Model {
		h := newHead()
		build(h)
		return h.Model
	}
	for name, c := range map[string]struct {
		m         *onnx.Model
		to        onnx.DataType
		providers []string
		want      string
	}{
		"no model": {nil, onnx.Float16, nil, "no model"},
		"integers": {plain(func(h *head) {}), onnx.Int8, nil,
			"cannot convert to int8: choose float32, float16 or bfloat16"},
		"provider": {plain(func(h *head) {}), onnx.Float16, []string{"rocm"}, `unknown provider "rocm"`},
		"opset":    {onnx.New(7, 12), onnx.Float16, nil, "only opset 13 and newer"},
		"patched": {plain(func(h *head) { h.Op("mojo:RMSNorm", h.rows) }), onnx.Float16, nil,
			"the model is already patched: convert it to float16 before"},
		"sequence": {plain(func(h *head) { h.Op("SequenceConstruct", h.rows) }), onnx.BFloat16, nil,
			"models with sequences"},
		"unknown": {plain(func(h *head) { h.Op("far:Strange", h.rows) }), onnx.Float16, nil,
			"declare it (value_info)"},
	} {
		if _, err := Precision(c.m, c.to, c.providers...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPrecisionOfPyTorchsBFloat16: an export in bfloat16, which onnxruntime's CPU provider refuses, loads after
// conversion.
func TestPrecisionOfPyTorchsBFloat16(t *testing.T) {
	path := filepath.Join(root, "models", "llama-dynamo-bf16.onnx")
	library := ort.WithLibrary(orttest.Library(t))
	m := read(t, path)
	cases, err := golden.Load(strings.TrimSuffix(path, ".onnx")+".npz", m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runtime(path, library, &cases[0]); err == nil {
		t.Skip("onnxruntime runs it as it is")
	}
	r, err := Precision(m, onnx.BFloat16)
	if err != nil {
		t.Fatal(err)
	}
	if r.From != onnx.BFloat16 {
		t.Errorf("%+v", r)
	}
	_, file := rewritten(t, m)
	got, err := runtime(file, library, &cases[0])
	if err != nil {
		t.Fatal(err)
	}
	near(t, got[0], cases[0].Outputs[0], 8)
}
