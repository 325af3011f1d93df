package streams

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// Compare evaluates the converted model, and the original model in float16 and bfloat16 without scales, on the inputs,
// and compares the outputs with those in float32. It returns an error if the converted model still overflows, inside an
// op.
func (s *Safe) Compare(converted *onnx.Model) error {
	brain, err := s.original.Clone()
	if err != nil {
		return err
	}
	// This provider's arithmetic is in the type too.
	if _, err := convert.Precision(brain, onnx.BFloat16, "cuda"); err != nil {
		brain = nil // the opset lacks an op in bfloat16
	}
	for _, x := range []struct {
		m *onnx.Model
		v Variant
	}{{converted, Variant{Type: "float16", Safe: true}}, {s.plain, Variant{Type: "float16"}},
		{brain, Variant{Type: "bfloat16"}}} {
		if x.m == nil {
			continue
		}
		overflows, err := s.compare(x.m, &x.v)
		if err != nil {
			return fmt.Errorf("the model in %s cannot be evaluated: %w", x.v.Type, err)
		}
		s.Report.Compare = append(s.Report.Compare, x.v)
		if x.v.Safe && overflows != "" {
			return fmt.Errorf("the model still overflows in float16, at node %q first: keep it in float32 or bfloat16",
				overflows)
		}
	}
	return nil
}

// compare adds to the figures of a model, and returns the first node that overflows.
func (s *Safe) compare(m *onnx.Model, v *Variant) (overflows string, err error) {
	vocabulary := golden.Vocabulary(s.original)
	var logits []golden.LogitStats
	graphs := numbers(m)
	for i, inputs := range s.inputs {
		got, err := run(m, inputs, func(n *onnx.Node, made []*reference.Tensor) error {
			for _, t := range made {
				if v.FirstNaN == "" && t != nil && slices.ContainsFunc(t.F, math.IsNaN) {
					v.FirstNaN = n.Label()
				}
			}
			for i, w := range n.Outputs {
				if i >= len(made) || w == nil || made[i] == nil {
					continue
				}
				if overflows == "" && s.finite[place{graphs[w.Graph], w.Name}] && !allFinite(made[i].F) {
					overflows = n.Label()
				}
			}
			return nil
		})
		if err != nil {
			return "", err
		}
		for j, want := range s.outputs[i] {
			if want.F == nil || got[j].F == nil || len(want.F) != len(got[j].F) {
				continue
			}
			v.differ(got[j].F, want.F)
			name := s.original.Graph.Outputs[j].Name
			w, err := want.ToONNX(name)
			if err != nil {
				return "", err
			}
			g, err := got[j].ToONNX(name)
			if err != nil {
				return "", err
			}
			if golden.IsLogits(w, vocabulary) {
				stats, err := golden.CompareLogits(g, w)
				if err != nil {
					return "", err
				}
				logits = append(logits, stats)
			}
		}
	}
	v.Logits = together(logits)
	return overflows, nil
}

// differ adds the difference of an output to the figures.
func (v *Variant) differ(got, want []float64) {
	var off, all float64
	for i, w := range want {
		if math.IsNaN(w) || math.IsInf(w, 0) {
			continue
		}
		if math.IsNaN(got[i]) || math.IsInf(got[i], 0) {
			v.NotFinite++
			continue
		}
		off += (got[i] - w) * (got[i] - w)
		all += w * w
	}
	if v.NotFinite > 0 {
		v.Error = golden.Number(math.Inf(1))
	} else if all > 0 {
		v.Error = max(v.Error, golden.Number(math.Sqrt(off/all)))
	}
}

// together combines the figures of several outputs.
func together(list []golden.LogitStats) *golden.LogitStats {
	if len(list) == 0 {
		return nil
	}
	all := golden.LogitStats{Classes: list[0].Classes, Passed: true}
	var kl, top float64
	for _, s := range list {
		n := float64(s.Positions)
		kl, top = kl+n*float64(s.MeanKL), top+n*s.Top1
		all.Positions, all.Undefined = all.Positions+s.Positions, all.Undefined+s.Undefined
		all.MaxKL = max(all.MaxKL, s.MaxKL)
	}
	if n := float64(all.Positions); n > 0 {
		all.MeanKL, all.Top1 = golden.Number(kl/n), top/n
	}
	return &all
}
