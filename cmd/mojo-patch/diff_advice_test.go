package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// The messages of diff that say what to try next.
const (
	adviseSensitivity = "round activations to 8 bits, so a difference in the last digit may become a whole step: try " +
		"--sensitivity"
	adviseTies     = "routes tokens to experts: with --layers --router-ties diff reports"
	adviseOptimize = "itself has different outputs when onnxruntime does not optimize it: compare with --optimize " +
		"none"
	adviseSeed     = "is random: every run differs unless it has a seed"
	adviseAccuracy = "configuration has session.qdq_matmulnbits_accuracy_level=0"
)

// TestDiffAdvice compares models that differ. Each kind of model must get the advice for its nodes and no other advice.
func TestDiffAdvice(t *testing.T) {
	if onnxruntime, _ := testEnvironment(t); onnxruntime == "" {
		t.Skip("needs onnxruntime: make fetch")
	}
	ones := func(n int) []float32 {
		f := make([]float32, n)
		for i := range f {
			f[i] = 1
		}
		return f
	}
	body := map[string]func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value{
		"nothing known": func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value { return b.Op("Neg", x) },
		"random":        func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value { return b.Op("RandomNormalLike", x) },
		"dynamic": func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			q := b.Ops(3, "DynamicQuantizeLinear", x)
			return b.Op("DequantizeLinear", q[0], q[1], q[2])
		},
		"router": func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value { return b.Ops(2, "TopK", x, []int64{2})[0] },
		// onnxruntime adds the two constants first, and x remains. The model's own order loses digits of x.
		"optimized": func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			x = b.Op("Reshape", x, []int64{-1, 1, 4, 4})
			x = b.Op("Conv", x, b.Floats([]int64{1, 1, 1, 1}, 1), b.Floats([]int64{1}, 1e8))
			return b.Op("Add", x, b.Floats([]int64{1, 1, 1}, -1e8))
		},
		// onnxruntime turns the two nodes into MatMulNBits, which rounds x.
		"rounded by onnxruntime": func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
			w, err := onnx.NewTensor("w", onnx.Int4, []int64{16, 4}, bytes.Repeat([]byte{0x12}, 32))
			if err != nil {
				t.Fatal(err)
			}
			return b.Op("MatMul", x, b.Op("DequantizeLinear", b.Constant(w), b.Floats([]int64{1, 4}, ones(4)...),
				onnx.IntAttr("axis", 0), onnx.IntAttr("block_size", 16)))
		},
	}
	model := func(kind string, second bool) string {
		b := onnxtest.New(21)
		y := body[kind](b, b.Input("x", onnx.Float, 4, 16))
		if second {
			y = b.Op("Add", y, 1.0)
		}
		y.Name = "y"
		b.Output(y)
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := onnx.Write(path, b.Model); err != nil {
			t.Fatal(err)
		}
		return path
	}
	all := []string{adviseSensitivity, adviseTies, adviseOptimize, adviseSeed, adviseAccuracy}
	for _, test := range []struct {
		kind  string
		flags []string
		want  []string
	}{
		{"nothing known", nil, nil},
		{"random", nil, []string{adviseSeed}},
		{"dynamic", nil, []string{adviseSensitivity}},
		{"dynamic", []string{"--sensitivity"}, nil},
		{"router", nil, []string{adviseTies}},
		{"router", []string{"--layers", "--router-ties"}, nil},
		{"optimized", nil, []string{adviseOptimize}},
		{"optimized", []string{"--optimize", "none"}, nil},
		{"rounded by onnxruntime", nil, []string{adviseOptimize, adviseAccuracy}},
	} {
		var out, said bytes.Buffer
		args := append([]string{"diff", model(test.kind, false), model(test.kind, true)}, test.flags...)
		if code := execute(args, &out, &said); code != cli.ExitFailed {
			t.Errorf("%s %v: exit code %d, want %d", test.kind, test.flags, code, cli.ExitFailed)
		}
		var got []string
		for _, advice := range all {
			if strings.Contains(said.String(), advice) {
				got = append(got, advice)
			}
		}
		if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
			t.Errorf("%s %v: advice %q, want %q, in\n%s", test.kind, test.flags, got, test.want, said.String())
		}
	}
}
