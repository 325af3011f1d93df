package main

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/rewrite/target"
	"github.com/spf13/cobra"
)

// targetFlags say what a model is patched for.
type targetFlags struct {
	name   string
	shapes []string
}

func (f *targetFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "target", target.Mojo,
		"what takes the place of a site: mojo (fused ops), or what another runtime has: "+otherTargets())
	c.Flags().StringArrayVar(&f.shapes, "shape", nil,
		"with --target: fix an input's shape, such as input_ids=1x128, or a dimension, such as sequence=128 "+
			"(repeatable)")
	completeValues(c, "target", targetNames, false)
	// about kernels of fused ops
	for _, other := range []string{"include", "backend", "kernels-lib", "check-kernels", "assume-available"} {
		c.MarkFlagsMutuallyExclusive("target", other)
	}
}

// of returns the target, nil for fused ops, and the shapes that inputs are fixed to for it.
func (f *targetFlags) of() (*target.Target, *target.Shapes, error) {
	t, err := target.Lookup(f.name)
	if err != nil {
		return nil, nil, fmt.Errorf("--target: %w", err)
	}
	if t == nil && len(f.shapes) > 0 {
		return nil, nil, fmt.Errorf("--shape is about --target, which is not given")
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
