// Package applytest patches models in the tests of packages that package rewrite imports. (Their tests cannot use
// package rewritetest for that, because rewrite's own tests import it.)
package applytest

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// Apply patches a model with all kernels, available or not, and at most one request.
func Apply(t *testing.T, m *onnx.Model, request ...rewrite.Request) *rewrite.Report {
	t.Helper()
	plan := Plan(t, m, request...)
	if err := plan.Replace(); err != nil {
		t.Fatal(err)
	}
	return plan.Report
}

// Plan is Apply without the replacement.
func Plan(t *testing.T, m *onnx.Model, request ...rewrite.Request) *rewrite.Plan {
	t.Helper()
	q := rewrite.Request{}
	if len(request) > 0 {
		q = request[0]
	}
	q.AssumeAvailable = true
	p, err := rewrite.New(q)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := p.Plan(m)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// Target returns a target by name.
func Target(t *testing.T, name string) *target.Target {
	t.Helper()
	to, err := target.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return to
}
