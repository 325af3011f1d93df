// Package precision holds the flags and steps of commands that change the type of a model.
package precision

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/streams"
	"github.com/spf13/cobra"
)

// SafeFlags configure how overflow in float16 is prevented.
type SafeFlags struct {
	Safe     bool // --safe
	inputs   string
	headroom float64
	Strict   bool // --strict
}

// AddTo adds the flags to a command. source names the default inputs for measurements. A command whose --strict has
// another meaning sets strict itself.
func (f *SafeFlags) AddTo(c *cobra.Command, source string) {
	fl := c.Flags()
	fl.BoolVar(&f.Safe, "safe", false,
		"scale values that would overflow, such as the residual stream, by powers of two")
	fl.StringVar(&f.inputs, "safe-inputs", "",
		"recorded cases to measure magnitudes on (default: "+source+")")
	fl.Float64Var(&f.headroom, "safe-headroom", streams.Headroom,
		"how many times the measured magnitude must fit into float16")
	cli.Rules(c, "safe requires dtype=float16", "safe-inputs safe-headroom requires safe")
	if fl.Lookup("strict") == nil {
		fl.BoolVar(&f.Strict, "strict", false, "write nothing if a value has to stay in float32")
		cli.Rules(c, "strict requires safe")
	}
	cli.CompleteFile(c, "safe-inputs", "npz")
}

// Options returns nil without --safe. Cases come from the golden file if no other file is named; golden may be "".
func (f *SafeFlags) Options(dtype onnx.DataType, golden string) (*streams.Options, error) {
	switch {
	case !f.Safe:
		return nil, nil
	case !(f.headroom >= 1 && f.headroom <= 1<<14):
		return nil, fmt.Errorf("--safe-headroom %g: must be a number from 1 to %d", f.headroom, 1<<14)
	}
	o := &streams.Options{Headroom: f.headroom, Strict: f.Strict}
	path := f.inputs
	if path == "" {
		path = golden
	}
	if path != "" {
		o.Inputs = func(m *onnx.Model) ([][]*onnx.Tensor, error) { return feeds.RecordedInputs(path, m) }
	}
	return o, nil
}

// Convert converts a model that has its weights, and reports the changes.
func (f *SafeFlags) Convert(m *onnx.Model, dtype onnx.DataType, o *streams.Options) (*rewrite.Report, error) {
	r, err := onlyChanged(m, rewrite.Request{DType: dtype, Safe: o})
	return r, Strictly(err)
}

// Strictly marks an error of --safe --strict as a failure of the model, not of the command line.
func Strictly(err error) error {
	var stays *streams.StaysError
	if errors.As(err, &stays) {
		return cli.Failed(err)
	}
	return err
}

// onlyChanged makes the changes of a request without fusing blocks.
func onlyChanged(m *onnx.Model, request rewrite.Request) (*rewrite.Report, error) {
	request.Kernels, request.Version = rewrite.None, cli.Version()
	p, err := rewrite.New(request)
	if err != nil {
		return nil, err
	}
	return p.Run(m)
}

// Through writes a model to a temporary folder beside output and passes a copy read from there to use. So weights that
// are computed when read are computed once and then mapped.
func Through(a *cli.App, m *onnx.Model, output string, use func(*onnx.Model) error) (err error) {
	folder, err := atomicfile.MkdirTemp(filepath.Dir(filepath.Clean(output)), ".mojo-patch-folder-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, atomicfile.Remove(folder)) }()
	path := filepath.Join(folder, "model.onnx")
	if err := onnx.Write(path, m, onnx.ExternalDataOver(DefaultExternalOver)); err != nil {
		return err
	}
	again, err := a.Read(path)
	if err != nil {
		return err
	}
	defer again.Close()
	return use(again)
}
