// Package feeds holds the inputs of models for commands: their flags, recorded cases, and runs on them.
package feeds

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/spf13/cobra"
)

// InputFlags choose the inputs that a model runs on: inputs from a file, or random ones.
type InputFlags struct {
	File string // --inputs, or "" for random ones
	Seed uint64 // of random inputs
	dims []string
}

// AddTo adds the flags to a command.
func (f *InputFlags) AddTo(c *cobra.Command) {
	c.Flags().StringVar(&f.File, "inputs", "",
		"inputs to run on: .npz, or a folder of ONNX test data (default: random)")
	cli.CompleteFile(c, "inputs", "npz")
	c.Flags().Uint64Var(&f.Seed, "seed", 1, "seed of random inputs")
	c.Flags().StringArrayVar(&f.dims, "dim", nil,
		"NAME=VALUE: a symbolic dimension of random inputs, or batch, sequence, past; repeatable")
	cli.Rules(c, "inputs excludes seed dim: --seed and --dim set random inputs")
}

// Check returns an error if flags conflict or a size is wrong.
func (f *InputFlags) Check(c *cobra.Command) error {
	_, err := f.Sizes()
	return err
}

// Sizes returns the values of --dim by name.
func (f *InputFlags) Sizes() (map[string]int64, error) {
	dims := map[string]int64{}
	for _, d := range f.dims {
		name, value, ok := strings.Cut(d, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if !ok || name == "" || err != nil || n < 0 {
			return nil, fmt.Errorf("--dim %q: write NAME=VALUE with a number of 0 or more, and repeat --dim for each "+
				"dimension",
				d)
		}
		dims[name] = n
	}
	return dims, nil
}

// Cases returns the inputs to run the model on: the cases of the file, or count random ones with consecutive seeds.
func (f *InputFlags) Cases(m *onnx.Model, count int) ([]golden.Case, error) {
	if f.File != "" {
		return loadCases(f.File, m)
	}
	dims, err := f.Sizes()
	if err != nil {
		return nil, err
	}
	list := make([]golden.Case, count)
	for i := range list {
		if list[i].Inputs, err = golden.RandomInputs(m, f.Seed+uint64(i), dims); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	return list, nil
}

// loadCases reads the cases of a file. It returns an error if the model cannot run on one of them.
func loadCases(path string, m *onnx.Model) ([]golden.Case, error) {
	cases, err := golden.Load(path, m)
	if err != nil {
		return nil, err
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("%s holds no cases", path)
	}
	if cases, err = OwnParts(m, cases); err != nil {
		return nil, err
	}
	if cases, err = golden.WithOwnPasts(m, cases); err != nil {
		return nil, fmt.Errorf("cannot run %s on %s: %w", m.Path, path, err)
	}
	for i, c := range cases {
		if cases[i], err = Fitted(m, c); err != nil {
			return nil, fmt.Errorf("cannot run %s on case %d of %s: %w", m.Path, i, path, err)
		}
	}
	return cases, nil
}

// Fitted returns a case in the form that the model takes, with caches in buffers if the model has such.
func Fitted(m *onnx.Model, c golden.Case) (golden.Case, error) {
	c, err := golden.InBuffers(m, c)
	if err == nil {
		err = golden.FitInputs(m, c)
	}
	return c, err
}

// Recorded reads cases to compare with. Each must have outputs.
func Recorded(path string, m *onnx.Model) ([]golden.Case, error) {
	cases, err := loadCases(path, m)
	if err != nil {
		return nil, err
	}
	for i, c := range cases {
		if len(c.Outputs) == 0 {
			return nil, fmt.Errorf("case %d of %s has no outputs to compare with", i, path)
		}
	}
	return cases, nil
}

// FixInputDims sets the sizes of a model's inputs to a run's, and returns the sizes of its symbolic dimensions.
func FixInputDims(m *onnx.Model, f *InputFlags) (map[string]int64, error) {
	cases, err := f.Cases(m, 1)
	if err != nil {
		return nil, err
	}
	dims := map[string]int64{}
	for _, v := range m.Graph.Inputs {
		t, _ := v.Type()
		x := cases[0].Input(v.Name)
		if x == nil || len(t.Dims) != len(x.Dims) {
			continue
		}
		t.Dims = slices.Clone(t.Dims)
		for axis, d := range t.Dims {
			if d.Value < 0 && d.Param != "" {
				dims[d.Param] = x.Dims[axis]
			}
			t.Dims[axis] = onnx.Dim{Value: x.Dims[axis]}
		}
		v.SetType(t)
	}
	return dims, nil
}
