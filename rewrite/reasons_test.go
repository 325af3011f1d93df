package rewrite

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// A refusal has a code, which selects a hint, and the figures of its text.
func TestReasonsOfRefusals(t *testing.T) {
	right := func(b *rewritetest.Builder, x, scale value) value { return b.Norm(x, scale, 1e-6) }
	for _, c := range []struct {
		name    string
		typ     onnx.DataType
		attrs   []*onnx.Attribute
		build   func(b *rewritetest.Builder, x, scale value) value
		problem string
		code    reason.Code
		figure  string
		hint    string
	}{
		{"opset", onnx.Float, normAttributes(1e-6, 0), right, "mojo.RMSNorm needs opset 13 or newer", reason.Opset,
			"opset", "version_converter"},
		{"types", onnx.Double, normAttributes(1e-6, 0), right, "", reason.Types, "op", "float32, float16"},
		{"attributes", onnx.Float, normAttributes(1e-6, 0)[:2], right, "", reason.Signature, "op", ""},
		{"another input", onnx.Float, normAttributes(1e-6, 0), func(b *rewritetest.Builder, x, scale value) value {
			return b.Op("Add", b.Norm(x, scale, 1e-6), b.In("other", 16))
		}, "", reason.Depends, "", "not an input of the op"},
		{"random numbers", onnx.Float, normAttributes(1e-6, 0),
			func(b *rewritetest.Builder, x, scale value) value {
				return b.Op("Add", b.Norm(x, scale, 1e-6), b.Op("RandomNormalLike", x))
			}, "", reason.Random, "", "model.eval()"},
		{"another function", onnx.Float, normAttributes(1e-5, 0), right, "", reason.Differs, "inputs", "hard inputs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := rewritetest.New(t, 20, c.typ)
			x, scale := b.In("x", "batch", "seq", 16), b.Weight("scale", 16)
			y := c.build(b, x, scale)
			b.Out(y, "batch", "seq", 16)
			match := &patterns.Match{Pattern: "P", Op: "RMSNorm", Inputs: []value{x, scale},
				Outputs: []value{y}, Attributes: c.attrs}
			if c.problem != "" {
				match.Problem = reasonText(c.problem)
			}
			s := judgeOne(t, b.Model, match)
			if s.Status != Refused || s.Code != c.code || c.figure != "" && s.Figures[c.figure] == nil {
				t.Errorf("%s (%s, %v): %s; want %s with %q", s.Status, s.Code, s.Figures, s.Reason, c.code, c.figure)
			}
			if hint := s.Code.Hint(); !strings.Contains(hint, c.hint) || (hint == "") != (c.hint == "") {
				t.Errorf("hint %q, want %q", hint, c.hint)
			}
		})
	}
}

type reasonText string

func (r reasonText) Error() string { return string(r) }

// Missing weights have a separate code, whatever needed them.
func TestMissingWeightsAreAReason(t *testing.T) {
	for _, err := range []error{&prove.EvalError{Err: onnx.ErrMissingData},
		reason.New(reason.NodesFail, nil, "the nodes fail: %w", onnx.ErrMissingData)} {
		var s SiteReport
		if s.explain(err); s.Code != reason.MissingWeights || s.Reason != err.Error() {
			t.Errorf("%s: %s", s.Code, s.Reason)
		}
	}
}
