package sites_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

// evaluated is a Runtime that supports all ops.
func evaluated(m *onnx.Model, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		return nil, err
	}
	return e.RunTensors(inputs)
}

// TestRuntimeRefuses: nodes that a target's runtime cannot run, or computes differently, are not used, unless the
// runtime fails on the original nodes, too.
func TestRuntimeRefuses(t *testing.T) {
	has := func(m *onnx.Model, op string) bool { return slices.Contains(sites.OpNames(m.Graph.Nodes), op) }
	const gate = "com.microsoft.QuickGelu"
	for _, c := range []struct {
		name    string
		runtime func(m *onnx.Model) (factor float64, err error)
		reason  string
	}{
		{"all runs", func(*onnx.Model) (float64, error) { return 1, nil }, ""},
		{"has no kernel", func(m *onnx.Model) (float64, error) {
			if has(m, gate) {
				return 1, errors.New("no kernel for QuickGelu")
			}
			return 1, nil
		}, "its nodes do not run on normal inputs: no kernel for QuickGelu"},
		{"runs nothing", func(*onnx.Model) (float64, error) { return 1, errors.New("no kernels") }, ""},
		{"means something else", func(m *onnx.Model) (float64, error) {
			if has(m, gate) {
				return 1.01, nil
			}
			return 1, nil
		}, "its nodes return other results on normal inputs"},
		{"rounds in its own way", func(*onnx.Model) (float64, error) { return 1.01, nil }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := rewritetest.Block(t, 20, onnx.Float)
			r := applytest.Apply(t, m, rewrite.Request{Target: applytest.Target(t, "ort"),
				Runtime: func(m *onnx.Model, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
					factor, err := c.runtime(m)
					if err != nil {
						return nil, err
					}
					out, err := evaluated(m, inputs)
					for i, x := range out {
						y, _ := reference.FromONNX(x)
						for k := range y.F {
							y.F[k] *= factor
						}
						out[i], _ = y.ToONNX(x.Name)
					}
					return out, err
				}})
			norms := 0
			for _, s := range r.Sites {
				if strings.Contains(s.Pattern, "RMSNorm") {
					norms++
				}
				if s.Pattern != "SwiGLU" {
					continue
				}
				if c.reason == "" && s.Status != rewrite.Fused || c.reason != "" && (s.Status != rewrite.Open ||
					s.Code != reason.Target || !strings.Contains(s.Reason, c.reason)) {
					t.Errorf("%s %s: %s", s.Status, s.Code, s.Reason)
				}
			}
			if r.Fused() < norms {
				t.Errorf("%d sites are fused of %d norms", r.Fused(), norms)
			}
		})
	}
}
