package main

import (
	"errors"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/spf13/cobra"
)

// secondReader decodes the model file at path with a decoder of others, compares it with m and says what is equal. It
// is nil in a program built without -tags crosscheck: see second_reader.go.
var secondReader func(path string, m *onnx.Model) (result string, err error)

// crosscheckFlags are the flags of apply for the second reader.
type crosscheckFlags struct {
	crosscheck bool
	agreed     string // what was equal, once that is known
}

func (f *crosscheckFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.crosscheck, "crosscheck", false,
		"decode what was written with another ONNX reader (onnx-go) and compare the graphs; nothing is left when "+
			"they differ")
}

// possible errs when the second reader is asked for and is not built in, or will get nothing to read.
func (f *crosscheckFlags) possible(dryRun bool) error {
	if f.crosscheck && dryRun {
		return errors.New("--crosscheck is about what was written, and --dry-run writes nothing")
	}
	if f.crosscheck && secondReader == nil {
		return environment(errors.New("--crosscheck: this program was built without the second reader; build it from " +
			"source with: go build -tags crosscheck ./cmd/mojo-patch (the licence of onnx-go's tensor library, " +
			"gorgonia.org/tensor, is the reason: see THIRD_PARTY.md)"))
	}
	return nil
}

// readAgain compares what was written to path with m; its error has an exit code.
func (f *crosscheckFlags) readAgain(a *app, path string, m *onnx.Model) error {
	if !f.crosscheck {
		return nil
	}
	result, err := secondReader(path, m)
	if err != nil {
		return failed(err)
	}
	f.agreed = result
	a.say("crosscheck: %s", result)
	return nil
}
