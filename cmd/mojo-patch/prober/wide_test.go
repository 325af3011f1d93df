package prober

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// TestKernelsAtRealWidths runs the CPU kernel of every op at the widths of real models, including QMoE, which the
// command kernels skips.
func TestKernelsAtRealWidths(t *testing.T) {
	p, err := New(orttest.Library(t), orttest.Kernels(t), session.ProviderCPU)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, op := range fused.Ops() {
		if len(op.Devices) == 0 {
			continue // no kernel
		}
		tried := 0
		for _, types := range op.Types {
			if testing.Short() && types.Types["T"] != onnx.Float {
				continue
			}
			for _, s := range op.WideExamples(types, ProbeOpset) {
				tried++
				if _, err := p.TryForms(op, []fused.Site{s}, true); err != nil && (op.Open(s) == 0 ||
					!strings.Contains(err.Error(), "differs")) {
					t.Errorf("%s %v: %v", op.Name, s.Dims, err)
				}
			}
		}
		t.Logf("%s: %d sites", op.Name, tried)
	}
}
