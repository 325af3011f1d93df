package infer

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
)

// Loose reports whether elements of v are known, but depend on open sizes by more than sums and products, such as a
// comparison. Even if they are the same in all worlds, they may differ at other sizes.
func (f *Facts) Loose(v *onnx.Value) bool {
	x := f.of(v)
	return x.Follows == rules.Loose && x.Value[0] != nil
}
