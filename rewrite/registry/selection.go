package registry

import "slices"

// A Selection is a set of kernels for sites.
type Selection struct {
	kernels   []*Kernel
	byOp      map[string]*Kernel
	byPattern map[string]*Kernel // selected or not
}

// Select returns a selection of kernels. The first kernel for an op has precedence.
func Select(kernels []*Kernel) *Selection {
	s := &Selection{kernels: kernels, byOp: map[string]*Kernel{}, byPattern: map[string]*Kernel{}}
	for _, k := range kernels {
		for _, op := range k.Ops {
			if s.byOp[op] == nil {
				s.byOp[op] = k
			}
		}
	}
	for _, k := range ScanAllKernels() {
		for _, name := range k.Patterns {
			s.byPattern[name] = k
		}
	}
	return s
}

// IsEmpty reports whether no kernel is selected.
func (s *Selection) IsEmpty() bool { return len(s.kernels) == 0 }

// ForOp returns the kernel for a fused op, or nil.
func (s *Selection) ForOp(op string) *Kernel { return s.byOp[op] }

// HasKernel reports whether a kernel runs a fused op, instead of its definition.
func (s *Selection) HasKernel(op string) bool {
	k := s.byOp[op]
	return k != nil && !IsDefinition(k)
}

// ForPattern returns the kernel that names a built-in pattern, or nil, and whether it is selected.
func (s *Selection) ForPattern(name string) (k *Kernel, selected bool) {
	k = s.byPattern[name]
	return k, slices.Contains(s.kernels, k)
}

// Uses reports whether a kernel of a device is selected.
func (s *Selection) Uses(device string) bool {
	return slices.ContainsFunc(s.kernels, func(k *Kernel) bool { return k.Device == device })
}
