package main

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
	"github.com/spf13/cobra"
)

// safeFlags say how a model is kept from overflowing in float16.
type safeFlags struct {
	safe     bool
	inputs   string
	headroom float64
	strict   bool
}

func (f *safeFlags) flags(c *cobra.Command) {
	fl := c.Flags()
	fl.BoolVar(&f.safe, "safe", false,
		"with --dtype float16: scale what would overflow, such as the residual stream, by powers of two")
	fl.StringVar(&f.inputs, "safe-inputs", "",
		"with --safe: recorded cases to measure magnitudes on (default: those of --golden, else random inputs)")
	fl.Float64Var(&f.headroom, "safe-headroom", streams.Headroom,
		"with --safe: how many times the measured magnitude must fit into float16")
	fl.BoolVar(&f.strict, "strict", false, "with --safe: write nothing if a value has to stay in float32")
	completeFile(c, "safe-inputs", "npz")
}

// options returns nil without --safe. Cases are read from the golden file if no other is named; it may be "".
func (f *safeFlags) options(dtype onnx.DataType, golden string) (*streams.Options, error) {
	switch {
	case !f.safe && (f.inputs != "" || f.strict || f.headroom != streams.Headroom):
		return nil, errors.New("--safe-inputs, --safe-headroom and --strict are about --safe, which is not given")
	case !f.safe:
		return nil, nil
	case dtype != onnx.Float16:
		return nil, errors.New("--safe is about --dtype float16, which is not given")
	case !(f.headroom >= 1 && f.headroom <= 1<<14):
		return nil, fmt.Errorf("--safe-headroom %g: it is a number from 1 to %d", f.headroom, 1<<14)
	}
	o := &streams.Options{Headroom: f.headroom, Strict: f.strict}
	path := f.inputs
	if path == "" {
		path = golden
	}
	if path != "" {
		o.Inputs = func(m *onnx.Model) ([][]*onnx.Tensor, error) { return recordedInputs(path, m) }
	}
	return o, nil
}

// recordedInputs reads the inputs of recorded cases. Caches that an earlier case made are taken from its outputs.
func recordedInputs(path string, m *onnx.Model) ([][]*onnx.Tensor, error) {
	cases, err := loadCases(path, m)
	if err != nil {
		return nil, err
	}
	var list [][]*onnx.Tensor
	for i, c := range cases {
		if c, err = c.Followed(cases[:i]); err != nil {
			return nil, fmt.Errorf("case %d of %s: %w", i, path, err)
		}
		list = append(list, c.Inputs)
	}
	return list, nil
}
