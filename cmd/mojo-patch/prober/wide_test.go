package prober

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// TestKernelsAtRealWidths runs, at the widths of real models, the CPU kernels that the command kernels skips, such as
// QMoE's. cmd/mojo-patch.TestAllKernels runs the others.
func TestKernelsAtRealWidths(t *testing.T) {
	p, err := New(orttest.Library(t), orttest.Kernels(t), session.ProviderCPU)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tried := 0
	for _, op := range fused.Ops() {
		if len(op.Devices) == 0 {
			continue // no kernel
		}
		for _, types := range op.Types {
			for _, s := range op.WideExamples(types, ProbeOpset) {
				if op.Name != fused.QMoEName && op.OnEvery(fused.CPU, s) {
					continue
				}
				tried++
				if _, err := p.TryForms(op, []fused.Site{s}, true); err != nil && (op.Open(s) == 0 ||
					!strings.Contains(err.Error(), "differs")) {
					t.Errorf("%s %v: %v", op.Name, s.Dims, err)
				}
			}
		}
	}
	if tried == 0 {
		t.Error("QMoE was not tried")
	}
}
