package op

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// WideExamplesHold is TestWideExamples for one op.
func WideExamplesHold(t *testing.T, o *Op) {
	forms, widest := o.wideForms(), int64(0)
	for _, f := range forms {
		taken := slices.ContainsFunc(o.Types, func(c Combination) bool {
			return len(o.sites([]Form{f}, c, 20)) > 0
		})
		if !taken {
			t.Errorf("%s takes no types with %v", o.Name, f.Dims)
		}
		for _, d := range f.Dims {
			widest = max(widest, slices.Max(append(d, 0)))
		}
	}
	if widest < WideHeads {
		t.Errorf("%s has %d forms, the widest of %d", o.Name, len(forms), widest)
	}
	for _, typ := range []onnx.DataType{F32, F16, BF16} {
		count := 0
		for _, c := range o.Types {
			if c.Types["T"] == typ {
				count += len(o.WideExamples(c, 20))
			}
		}
		if count == 0 && !o.Family.Stored {
			t.Errorf("%s has none for %s", o.Name, typ)
		}
	}
}
