// Package precision makes a whole model compute in another floating-point type.
package precision

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// mostElements bounds the elements of a model's constants if the whole model is evaluated.
const mostElements = 1 << 26

// A DTypeReport describes the change of a model's type.
type DTypeReport struct {
	Before  string `json:"before"`
	After   string `json:"after"`
	Casts   int    `json:"casts"`   // added nodes
	Float32 int    `json:"float32"` // nodes that compute in float32 in a model of a half type
	// OutOfRange lists constants with elements beyond the largest number of the type, which replaces them.
	OutOfRange []string           `json:"out_of_range,omitempty"`
	Check      *prove.CheckReport `json:"check,omitempty"`
}

// Text returns the report in one line.
func (r *DTypeReport) Text() string {
	return fmt.Sprintf("converted from %s to %s: %d casts added, %d nodes compute in float32", r.Before, r.After,
		r.Casts, r.Float32)
}

// Apply converts the model to float32, float16 or bfloat16, as described at convert.Precision. The model must load in
// the given providers of onnxruntime, "cpu" and "cuda"; an empty list means both.
//
// Weights and inputs are rounded to the type, and intermediate rounding changes. Nothing else changes: Apply proves
// that the converted model with rounded weights computes the same as the original without rounding. If the model's
// constants have more than 2^26 elements, this is assumed, and the run lists the assumption. Apply returns an error if
// elements of constants are missing.
func Apply(run *pass.Run, to onnx.DataType, providers ...string) (*DTypeReport, error) {
	return ApplyExcept(run, to, nil, providers...)
}

// ApplyExcept is Apply with additional float32 nodes, as described at convert.PrecisionExcept.
func ApplyExcept(run *pass.Run, to onnx.DataType, wide map[*onnx.Node]bool, providers ...string) (*DTypeReport, error) {
	m, prover := run.Model, run.NewProver()
	what := fmt.Sprintf("the model in %s", to)
	var original *onnx.Model // nil if the claim is assumed
	if assumed, _ := prover.Settled(what, ""); !assumed && size(m) > mostElements {
		prover.Assume(what)
	} else if !assumed {
		var err error
		if original, err = m.Clone(); err != nil {
			return nil, err
		}
	}
	converted, err := convert.PrecisionExcept(m, to, wide, providers...)
	if err != nil {
		return nil, err
	}
	if n := converted.Missing; n > 0 {
		return nil,
			fmt.Errorf("%s without its elements: its data file would have another type than the model; put the "+
				"file beside the model first: %w", english.Counted(n, "constant"), onnx.ErrMissingData)
	}
	r := &DTypeReport{Before: converted.From.String(), After: to.String(), Casts: converted.Casts}
	for _, n := range converted.Float32 {
		r.Float32 += n
	}
	for _, c := range converted.OutOfRange {
		r.OutOfRange = append(r.OutOfRange, c.Name)
	}
	if original == nil {
		return r, nil
	}
	if err := round(original, m, to); err != nil {
		return nil, err
	}
	if err := prover.Prove(claim(what, original, m, to)); err != nil {
		return nil, fmt.Errorf("nothing was changed, because the conversion is not proven: %w", err)
	}
	r.Check = prover.Checked()
	return r, nil
}

// size counts the elements of a model's constants.
func size(m *onnx.Model) (n int64) {
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			n += prove.Elements([][]int64{v.Const.Dims})
		}
	}
	return n
}

// round rounds the constants of a model that have the type in the converted one.
func round(m, converted *onnx.Model, to onnx.DataType) error {
	became := map[string]onnx.DataType{}
	each(converted, func(name string, t *onnx.Tensor) (*onnx.Tensor, error) {
		became[name] = t.DataType
		return t, nil
	})
	return each(m, func(name string, t *onnx.Tensor) (*onnx.Tensor, error) {
		if became[name] != to || t.DataType == to || !t.DataType.IsFloat() {
			return t, nil
		}
		narrow, err := golden.Convert(t, to)
		if err != nil {
			return nil, err
		}
		return golden.Convert(narrow, t.DataType)
	})
}

// each replaces the constants of a model, initializers and values of Constant nodes.
func each(m *onnx.Model, change func(name string, t *onnx.Tensor) (*onnx.Tensor, error)) error {
	var failed error
	set := func(name string, t **onnx.Tensor) {
		made, err := change(name, *t)
		if *t = made; err != nil {
			failed = errors.Join(failed, fmt.Errorf("constant %q: %w", name, err))
		}
	}
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			set(v.Name, &v.Const)
		}
		for _, n := range g.Nodes {
			if a := n.Attr("value"); n.Is("Constant") && a != nil && a.Tensor != nil {
				set(n.Outputs[0].Name, &a.Tensor)
			}
		}
	}
	return failed
}

// trials are the sizes and seeds of random inputs.
var trials = []struct {
	seed uint64
	dims map[string]int64
}{{1, nil}, {2, map[string]int64{"batch": 1, "sequence": 1}}}

// claim claims that the converted model computes the same as the original without rounding.
func claim(what string, original, converted *onnx.Model, to onnx.DataType) *prove.Claim {
	var outputs []string
	for _, v := range original.Graph.Outputs {
		outputs = append(outputs, v.Name)
	}
	after := prove.Model(converted)
	return &prove.Claim{What: what, Outputs: outputs, Exact: prove.Structural, Before: prove.Model(original),
		After: func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
			typed := make([]*reference.Tensor, len(in))
			for i, x := range in {
				if x == nil {
					continue // its default
				}
				t, _ := converted.Graph.Inputs[i].Type()
				y := *x
				y.DataType, typed[i] = t.DataType, &y
			}
			return after(o, typed)
		},
		Trials: func(yield func(prove.Trial, error) bool) {
			for i, t := range trials {
				given, err := golden.RandomInputs(original, t.seed, t.dims)
				if err != nil && i > 0 {
					continue // it has no such dimension
				}
				trial := prove.Trial{Name: fmt.Sprintf("random inputs %d", i),
					Inputs: make([]*reference.Tensor, len(original.Graph.Inputs))}
				for _, x := range given { // inputs with a default are not given
					made, e := reference.FromONNX(x)
					err = errors.Join(err, e)
					if e == nil && made.IsFloat() {
						made = prove.Clone(made)
						prove.RoundAll(to, made.F)
					}
					trial.Inputs[slices.IndexFunc(original.Graph.Inputs,
						func(v *onnx.Value) bool { return v.Name == x.Name })] = made
				}
				if !yield(trial, err) {
					return
				}
			}
		}}
}
