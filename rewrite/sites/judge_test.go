package sites_test

import (
	"fmt"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
)

type (
	builder = *onnxtest.Builder
	value   = *onnx.Value
)

// verdict is the outcome of the check of one site.
type verdict struct {
	fused  bool
	code   reason.Code
	reason string // why it is not fused
	check  *prove.CheckReport
}

func (v verdict) String() string {
	if v.fused {
		return fmt.Sprintf("fused %+v", v.check)
	}
	return fmt.Sprintf("refused (%s): %s %+v", v.code, v.reason, v.check)
}

// judge checks one handmade match, whose replacement is one fused op with the match's inputs.
func judge(t *testing.T, m *onnx.Model, match *patterns.Match, kernel ...pass.Kernel) verdict {
	t.Helper()
	match.Domain = fused.Domain
	rewritetest.OneNode(match, m.Opset(""))
	match.Root = match.Outputs[0].Producer
	match.Nodes = []*onnx.Node{match.Root}
	run := &pass.Run{Editor: edit.Editor{Model: m}, Facts: infer.Analyze(m),
		HasKernel: func(string) bool { return true }}
	if len(kernel) > 0 {
		run.Kernel = kernel[0]
	}
	check, err := checkOf(run, match)
	v := verdict{fused: err == nil, check: check}
	if err != nil {
		if v.reason = err.Error(); reason.As(err) != nil {
			v.code = reason.As(err).Code
		}
	}
	return v
}

func checkOf(run *pass.Run, match *patterns.Match) (*prove.CheckReport, error) {
	c, err := sites.NewSite(match, run.Scopes()[0], run.Facts)
	if err != nil {
		return nil, err
	}
	for _, n := range match.Replacement.Nodes {
		call, err := c.AddCall(n, &registry.Kernel{ID: "handmade", Device: "CPU"}, run.Model.Opset(""))
		if err != nil {
			return nil, err
		}
		f, err := call.Op.Function(call.Site)
		if err != nil {
			return nil, err
		}
		n.Overload = f.Overload
		c.Functions = append(c.Functions, f)
	}
	if err := c.Cut(run.Facts); err != nil {
		return nil, err
	}
	if err := c.CheckOrder(); err != nil {
		return nil, err
	}
	return sites.NewChecker(run).Check(c)
}

// judgeExperts checks whether an op computes the experts whose sum is y.
func judgeExperts(m *rewritetest.MoE, y value, activation string, kernel ...pass.Kernel) verdict {
	m.T.Helper()
	m.Out(y, "tokens", m.Hidden)
	return judge(m.T, m.Model, m.Match(y, activation), kernel...)
}
