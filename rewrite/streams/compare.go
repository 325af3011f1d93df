package streams

import (
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// Compare evaluates the converted model, and the model as it is in float16 and bfloat16 without scales, on the inputs,
// and compares the outputs with those in float32.
func (s *Safe) Compare(converted *onnx.Model) error {
	brain, err := s.original.Clone()
	if err != nil {
		return err
	}
	// The provider for which arithmetic is in the type, too.
	if _, err := convert.Precision(brain, onnx.BFloat16, "cuda"); err != nil {
		brain = nil // an op that the opset lacks in bfloat16
	}
	for _, x := range []struct {
		m    *onnx.Model
		v    Variant
		safe bool
	}{{converted, Variant{Type: "float16", Safe: true}, true}, {s.plain, Variant{Type: "float16"}, false},
		{brain, Variant{Type: "bfloat16"}, false}} {
		if x.m == nil {
			continue
		}
		if err := s.compare(x.m, &x.v); err != nil {
			return fmt.Errorf("the model in %s cannot be evaluated: %w", x.v.Type, err)
		}
		s.Report.Compare = append(s.Report.Compare, x.v)
	}
	return nil
}

func (s *Safe) compare(m *onnx.Model, v *Variant) error {
	vocabulary := golden.Vocabulary(s.original)
	var logits []golden.LogitStats
	for i, inputs := range s.inputs {
		got, err := run(m, inputs, func(n *onnx.Node, made []*reference.Tensor) error {
			for _, t := range made {
				if v.FirstNaN == "" && t != nil && hasNaN(t.F) {
					v.FirstNaN = n.Label()
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for j, want := range s.outputs[i] {
			if want.F == nil || got[j].F == nil || len(want.F) != len(got[j].F) {
				continue
			}
			v.differ(got[j].F, want.F)
			name := s.original.Graph.Outputs[j].Name
			w, err := want.ToONNX(name)
			if err != nil {
				return err
			}
			g, err := got[j].ToONNX(name)
			if err != nil {
				return err
			}
			if golden.IsLogits(w, vocabulary) {
				stats, err := golden.CompareLogits(g, w)
				if err != nil {
					return err
				}
				logits = append(logits, stats)
			}
		}
	}
	v.Logits = together(logits)
	return nil
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
	if all > 0 {
		v.Error = max(v.Error, golden.Number(math.Sqrt(off/all)))
	}
}

// together joins the figures of several outputs.
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

func hasNaN(list []float64) bool {
	for _, x := range list {
		if math.IsNaN(x) {
			return true
		}
	}
	return false
}
