package planning

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
	"github.com/spf13/cobra"
)

// targetFlags name the target that a model is patched for.
type targetFlags struct {
	name     string
	shapes   []string
	accuracy int64
}

func (f *targetFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "target", target.Mojo,
		"ops that replace a site: mojo (fused ops), or the ops of another runtime: "+otherTargets()+
			"; ort@1.31: for this version")
	c.Flags().StringArrayVar(&f.shapes, "shape", nil,
		"fix the shape of an input, such as input_ids=1x128, or a dimension, such as sequence=128 "+
			"(repeatable)")
	c.Flags().Int64Var(&f.accuracy, "accuracy-level", 0,
		"how products with quantized weights round activations: 0 (not at all) or 4 (to 8 bits: "+
			"faster, but other tokens)")
	cli.CompleteValues(c, "target", targetNames, false)
	cli.Rules(c, "shape requires target", "accuracy-level requires target=ort",
		"target excludes include backend kernels-lib assume-available: its ops have no kernels of ours")
}

// of returns the target, or nil for fused ops, and the fixed shapes of its inputs.
func (f *targetFlags) of() (*target.Target, *target.Shapes, error) {
	t, err := target.Lookup(f.name)
	if err != nil {
		return nil, nil, fmt.Errorf("--target: %w", err)
	}
	if f.accuracy != 0 && f.accuracy != 4 {
		return nil, nil, fmt.Errorf("--accuracy-level %d: must be 0 or 4", f.accuracy)
	}
	shapes, err := target.ParseShapes(f.shapes)
	if err != nil {
		return nil, nil, fmt.Errorf("--shape %w", err)
	}
	return t, shapes, nil
}

func targetNames() []string {
	names := []string{target.Mojo}
	for _, t := range target.All() {
		names = append(names, t.Name)
	}
	return names
}

func otherTargets() string { return strings.Join(targetNames()[1:], ", ") }
