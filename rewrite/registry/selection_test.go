package registry

import "testing"

// TestSelect: the first kernel of a selection runs an op, and a definition is not a kernel.
func TestSelect(t *testing.T) {
	first, second := &Kernel{ID: "first", Device: "cpu", Ops: []string{"GLU"}},
		&Kernel{ID: "second", Device: "npu", Ops: []string{"GLU", "RMSNorm"}}
	s := Select([]*Kernel{first, second})
	if s.IsEmpty() || s.ForOp("GLU") != first || s.ForOp("RMSNorm") != second || s.ForOp("MoE") != nil {
		t.Errorf("GLU is taken by %v, RMSNorm by %v, MoE by %v", s.ForOp("GLU"), s.ForOp("RMSNorm"), s.ForOp("MoE"))
	}
	if !s.Uses("npu") || s.Uses("cuda") || !s.HasKernel("GLU") || s.HasKernel("MoE") {
		t.Error("not the devices and ops of the two kernels")
	}
	if Select([]*Kernel{definition()}).HasKernel("GLU") {
		t.Error("a definition is no kernel")
	}
	var named *Kernel
	for _, k := range ScanAllKernels() {
		if len(k.Patterns) > 0 {
			named = k
		}
	}
	if k, selected := s.ForPattern(named.Patterns[0]); k != named || selected {
		t.Errorf("%s is of %v, selected %t", named.Patterns[0], k, selected)
	}
	if _, selected := Select([]*Kernel{named}).ForPattern(named.Patterns[0]); !selected {
		t.Error("its kernel is selected")
	}
	if !Select(nil).IsEmpty() {
		t.Error("a selection of nothing is empty")
	}
}
