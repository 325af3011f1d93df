package main

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestKernelsAtRealWidths runs the CPU kernel of every op at the widths of real models, including QMoE, which the
// command kernels skips.
func TestKernelsAtRealWidths(t *testing.T) {
	onnxruntime, kernels := testEnvironment(t)
	if onnxruntime == "" || kernels == "" {
		t.Skip("needs onnxruntime and the kernel library: make fetch all")
	}
	p, err := newProber(onnxruntime, kernels, providerCPU)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, op := range fused.Ops() {
		tried := 0
		for _, types := range op.Types {
			if testing.Short() && types.Types["T"] != onnx.Float {
				continue
			}
			for _, s := range op.WideExamples(types, probeOpset) {
				tried++
				if _, err := p.tryForms(op, []fused.Site{s}, true); err != nil && (op.Open(s) == 0 ||
					!strings.Contains(err.Error(), "differs")) {
					t.Errorf("%s %v: %v", op.Name, s.Dims, err)
				}
			}
		}
		t.Logf("%s: %d sites", op.Name, tried)
	}
}
