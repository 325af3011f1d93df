package session

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/trace"
)

// InlineOthers inlines the functions that are not fused ops, so that their inner values can be compared.
func InlineOthers(m *onnx.Model) error {
	_, err := new(edit.Change).InlineFunctions(m, func(f *onnx.Function) bool { return f.Domain == fused.Domain })
	if err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	return nil
}

// Pieces returns a function that opens pieces of a model as the flags say, and reports the runtime once.
func (b *Backend) Pieces(a *cli.App, what *string) trace.Open {
	said := a
	inMemory := *b
	inMemory.OpenModel = func(m *onnx.Model, options ...ort.Option) (*ort.Session, error) {
		model, err := onnx.Marshal(m)
		if err != nil {
			return nil, err
		}
		return ort.OpenBytes(model, m.Path, options...)
	}
	return func(m *onnx.Model) (trace.Runner, error) {
		r, text, err := inMemory.Open(said, m)
		quiet := *a
		quiet.Quiet, quiet.Verbose = true, false
		said, *what = &quiet, text
		return r, err
	}
}
