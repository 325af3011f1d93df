package prober

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestKeptInputs compares the inputs that a kernel is tried with, which kinds with the same numbers share, with inputs
// made for each kind.
func TestKeptInputs(t *testing.T) {
	kept := 0
	for _, op := range fused.Ops() {
		for _, types := range op.Types {
			sites := op.Examples(types, ProbeOpset)
			if len(sites) == 0 {
				continue
			}
			if testing.Short() && types.Types["T"] != onnx.Float {
				continue
			}
			s := sites[0]
			d, err := define(op, s)
			if err != nil {
				t.Fatal(err)
			}
			var last []*reference.Tensor
			for _, kind := range inputKinds(op, s) {
				got, _, err := d.inputs(s, 0, kind)
				if err != nil {
					t.Fatal(err)
				}
				for i, x := range got {
					if x == nil {
						continue
					}
					made, err := kind.of(s, i)
					if err != nil {
						t.Fatal(err)
					}
					stored, err := made.ToONNX("x")
					if err != nil {
						t.Fatal(err)
					}
					want, err := reference.FromONNX(stored)
					if err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(x.F, want.F) || !slices.Equal(x.I, want.I) {
						t.Errorf("%s, %s inputs, %s: not the numbers of this kind", op.Name, kind.name,
							op.Inputs[i].Name)
					}
					if last != nil && x == last[i] {
						kept++
					}
				}
				last = slices.Clone(got)
			}
		}
	}
	if kept == 0 {
		t.Error("no input was kept")
	}
}
