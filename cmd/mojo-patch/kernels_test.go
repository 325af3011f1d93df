package main

import (
	"bytes"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prober"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort"
)

// TestAllKernels runs the commands that try all kernels. They take the rows of one try, since it takes long. doctor
// also looks at a patched model and opens every provider.
func TestAllKernels(t *testing.T) {
	onnxruntime, library := testEnvironment(t)
	if onnxruntime == "" || library == "" {
		t.Skip("needs onnxruntime and the kernel library")
	}
	t.Setenv(ort.LibraryVariable, onnxruntime)
	t.Setenv(fused.LibraryVariable, library)
	t.Setenv(metVariable, t.TempDir())
	try, tries := prober.TryKernels, 0
	defer func() { prober.TryKernels = try }()
	rows := sync.OnceValues(func() ([]prober.KernelRow, error) { return try(&cli.App{Err: io.Discard}, "", "") })
	prober.TryKernels = func(*cli.App, string, string) ([]prober.KernelRow, error) {
		tries++
		return rows()
	}
	patched := filepath.Join(t.TempDir(), "patched.onnx")
	model := repository + "/models/deepseek3-batched_mm-ts-fp32.onnx"
	for _, c := range []struct {
		args     string
		code     int
		said, no []string
	}{
		{"apply " + model + " --target ascend -q -o", cli.ExitDone, nil, nil},
		{"kernels", cli.ExitDone, []string{
			`cpu_fused_rmsnorm +AddRMSNorm +float16, float16, float16 +cpu +runs`,
			`cpu_fused_swiglu +GLU +bfloat16, bfloat16 +cpu +runs`,
			`cpu_fused_rope +RotaryEmbedding +float32, float32, float32 +cpu +runs +[1-9][0-9]*`,
			`cpu_fused_rope +NormRotary +float32, float32, float32, float32 +cpu +runs +[1-9][0-9]*`,
			`cpu_fused_rope +NormRotary +float32, float16, float16, float16 +cpu +runs +[1-9][0-9]*`,
			`cpu_fused_moe +TopKRouter +float16, float32 +cpu +runs +[1-9][0-9]*`,
			`cpu_fused_moe +MoE +float16, float32, int64, bfloat16, bfloat16, bfloat16, bfloat16 +cpu +runs +[1-9]`,
			`cpu_fused_linear +Linear +float32, uint8, float16, .* cpu +runs`,
			`cpu_fused_linear +Embedding +int64, uint8, .* cpu +runs`,
			`onnx_layernorm +LayerNorm +any +standard`,
			`onnx_softmax +ShiftedSoftmax +any +standard`,
			`onnx_transpose +KeyTranspose +any +standard`,
			`cuda_fused_moe +MoE +float32, float32, int64, float32, float32, float32, float32 +cuda +unknown`,
			`^the kernels for cuda were not tried: `,
		}, []string{`fails`}},
		{"doctor -v --provider cpu --model", cli.ExitDone, []string{
			`^ok +kernels +[0-9]+ of [0-9]+ run and agree`,
			`^ok +CUDA kernels +not tried: `,
			`ok +CPU +runs a product of two matrices`,
			`device CPU of `,
			`ok +ascend +\S+patched.onnx: it supports 17 of 17 fused ops`,
			`open +ascend310p +\S+patched.onnx: it supports 11 of 17 fused ops`,
			`RotaryEmbedding: target ascend310p: its pairs are interleaved.* and 3 more`,
		}, nil},
		{"doctor --target ascend310p --json --model", cli.ExitFailed, []string{
			`"what": "kernels",\n +"found": "[0-9]+ of [0-9]+ run and agree`,
			`"what": "ascend310p",\n`,
			`"name": "CPUExecutionProvider",\n +"opens": true`,
			`"type": "CPU"`,
		}, []string{`"what": "ascend",`, `"what": "CPU"`}},
	} {
		args := strings.Fields(c.args)
		if args[0] != "kernels" {
			args = append(args, patched)
		}
		var out, said bytes.Buffer
		if code := execute(args, &out, &said); code != c.code {
			t.Fatalf("%q: exit code %d, want %d: %s", args, code, c.code, &said)
		}
		for _, want := range c.said {
			if !regexp.MustCompile("(?m)" + want).Match(out.Bytes()) {
				t.Errorf("%q does not print %s:\n%s", args, want, &out)
			}
		}
		for _, no := range c.no {
			if regexp.MustCompile("(?m)" + no).Match(out.Bytes()) {
				t.Errorf("%q prints %s:\n%s", args, no, &out)
			}
		}
		if strings.Contains(c.args, "--json") {
			if err := conforms(args, schemaFolder, out.Bytes()); err != nil {
				t.Error(err)
			}
		}
	}
	if tries != 3 {
		t.Errorf("all kernels were to be tried %d times, want 3", tries)
	}
}
