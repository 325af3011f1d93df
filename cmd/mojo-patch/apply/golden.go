package apply

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/feeds"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/rewrite/dims"
	"github.com/spf13/cobra"
)

// cases returns the recorded cases that the patched model must reproduce, or nil without --golden.
func (f *options) cases(m *onnx.Model) ([]golden.Case, error) {
	if f.Golden == "" {
		return nil, nil
	}
	list, err := dims.FindAll(m, f.Free)
	if err != nil {
		return nil, fmt.Errorf("--free: %w", err)
	}
	return feeds.RecordedOf(f.Golden, m, list)
}

// stage writes the model under another name and checks it there, so that a failed check leaves an older output
// untouched. If a check fails, stage returns the staged model and an error with an exit code. After any other error the
// model is nil.
func (f *options) stage(a *cli.App, m *onnx.Model, out string, cases []golden.Case) (_ *onnx.Staged, failure error) {
	var options []onnx.WriteOption
	if f.externalOver > 0 {
		options = append(options, onnx.ExternalDataOver(f.externalOver))
	}
	if f.linkWeights {
		options = append(options, onnx.LinkData())
	}
	staged, err := onnx.Stage(out, m, options...)
	if err != nil {
		return nil, err
	}
	f.data, f.dataWritten = staged.DataFiles(), staged.Data()
	failure = f.readAgain(a, staged.Path(), m)
	if failure == nil && f.Golden != "" {
		failure = f.reproduce(a, staged.Path(), cases)
	}
	return staged, failure
}

// reproduce runs the patched model on the recorded inputs; its error has an exit code.
func (f *options) reproduce(a *cli.App, path string, cases []golden.Case) error {
	b := session.Backend{Evaluator: f.evaluator, Kernels: session.KernelsAuto, KernelsLib: f.KernelsLib,
		Onnxruntime: f.Onnxruntime,
		Optimize:    "all", Devices: f.Devices}
	if err := b.Place(); err != nil {
		return err
	}
	if _, err := ort.Find(f.Onnxruntime); err != nil && f.Onnxruntime == "" && !b.Evaluator {
		a.Say("onnxruntime was not found: the built-in evaluator runs the patched model for the comparison")
		b.Evaluator = true
	}
	patched, err := a.Read(path)
	if err != nil {
		return cli.Failed(err)
	}
	defer patched.Close()
	run, what, err := b.Open(a, patched)
	if err != nil {
		return cli.Failed(fmt.Errorf("the patched model cannot be compared with %s: %w", f.Golden, err))
	}
	defer run.Close()
	if f.DType != "" {
		cases = slices.Clone(cases)
		for i, c := range cases {
			if cases[i].Inputs, err = feeds.AsDeclared(patched.Graph.Inputs, c.Inputs); err != nil {
				return cli.Failed(fmt.Errorf("case %d of %s: %w", i, f.Golden, err))
			}
		}
	}
	if cases, err = golden.WithOwnPasts(patched, cases); err != nil {
		return cli.Failed(fmt.Errorf("%s: %w", f.Golden, err))
	}
	given := make([]golden.Case, len(cases))
	for i, c := range cases {
		if c, err = golden.InBuffers(patched, c); err == nil {
			c, err = c.Followed(given[:i])
		}
		if err != nil {
			return cli.Failed(fmt.Errorf("case %d of %s: %w", i, f.Golden, err))
		}
		want := c.Outputs
		got, err := run.Run(c.Inputs)
		if err != nil {
			return cli.Failed(err)
		}
		given[i].Outputs = got
		if f.LastLogits {
			if want, err = lastPositions(got, want); err != nil {
				return cli.Failed(fmt.Errorf("case %d of %s: %w", i, f.Golden, err))
			}
		}
		stats, err := golden.CompareAll(got, want, golden.Tolerances{})
		if err != nil {
			return cli.Failed(fmt.Errorf("case %d of %s: %w", i, f.Golden, err))
		}
		for j, s := range stats {
			if !s.Passed && f.Safe.Safe {
				if s, err = asHalf(got, want[j]); err != nil {
					return cli.Failed(err)
				}
			}
			if !s.Passed {
				return cli.Failed(fmt.Errorf("the patched model does not reproduce case %d of %s in %s: %s", i,
					f.Golden,
					what, s.Summary()))
			}
		}
	}
	a.Say("reproduces the %s of %s in %s", cli.Counted(len(cases), "case"), f.Golden, what)
	return nil
}

// asHalf compares an output that stays float32 in a float16 model with the tolerance of float16.
func asHalf(got []*onnx.Tensor, want *onnx.Tensor) (golden.Stats, error) {
	at := slices.IndexFunc(got, func(g *onnx.Tensor) bool { return g.Name == want.Name })
	return golden.Compare(got[at], want, golden.Tolerances{}.Inner(want.Name, got[at].DataType, onnx.Float16))
}

// lastPositions keeps only the last position of expected outputs for which the model returned a single position, as it
// does when it computes logits for the last position only.
func lastPositions(got, want []*onnx.Tensor) ([]*onnx.Tensor, error) {
	want = slices.Clone(want)
	for i, w := range want {
		at := slices.IndexFunc(got, func(g *onnx.Tensor) bool { return g.Name == w.Name })
		if at < 0 || len(w.Dims) != 3 || w.Dims[1] < 2 ||
			!slices.Equal(got[at].Dims, []int64{w.Dims[0], 1, w.Dims[2]}) || w.DataType.Bits() < 8 {
			continue
		}
		b, err := w.Bytes()
		if err != nil {
			return nil, err
		}
		row := int(w.Dims[2]) * w.DataType.Bits() / 8
		var last []byte
		for at := (int(w.Dims[1]) - 1) * row; at < len(b); at += int(w.Dims[1]) * row {
			last = append(last, b[at:at+row]...)
		}
		if want[i], err = onnx.NewTensor(w.Name, w.DataType, got[at].Dims, last); err != nil {
			return nil, err
		}
	}
	return want, nil
}

// SecondReader decodes the model file at path with an independent decoder, compares it with m and says what is equal.
// It is nil in a program built without -tags crosscheck: see second_reader.go.
var SecondReader func(path string, m *onnx.Model) (result string, err error)

// crosscheckFlags are the flags of apply for the second reader.
type crosscheckFlags struct {
	crosscheck bool
	agreed     string // the result of the comparison, once it is known
}

func (f *crosscheckFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.crosscheck, "crosscheck", false,
		"decode the written model with another ONNX reader (onnx-go) and compare the graphs; if they differ, "+
			"remove the output")
}

// possible returns an error if --crosscheck is given and the second reader is not built in, or has no file to read.
func (f *crosscheckFlags) possible() error {
	if f.crosscheck && SecondReader == nil {
		return cli.Environment(errors.New("--crosscheck: this program was built without the second reader; build it " +
			"from source with: go build -tags crosscheck ./cmd/mojo-patch (because of the license of its tensor " +
			"library, gorgonia.org/tensor: see THIRD_PARTY.md)"))
	}
	return nil
}

// readAgain compares the file written to path with m. Its error has an exit code.
func (f *crosscheckFlags) readAgain(a *cli.App, path string, m *onnx.Model) error {
	if !f.crosscheck {
		return nil
	}
	result, err := SecondReader(path, m)
	if err != nil {
		return cli.Failed(err)
	}
	f.agreed = result
	a.Say("crosscheck: %s", result)
	return nil
}
