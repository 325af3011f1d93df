package rewrite

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

func ids(sites []SiteReport, status string) (list []string) {
	for _, s := range sites {
		if s.Status == status {
			list = append(list, s.ID)
		}
	}
	return list
}

// A site keeps its id when other sites are filtered, checked in another way, or replaced already.
func TestSiteIDs(t *testing.T) {
	m := rewritetest.Block(t, 20, onnx.Float)
	all := ids(planned(t, m).Report.Sites, Fused)
	if unique := slices.Compact(slices.Sorted(slices.Values(all))); len(all) != 6 || len(unique) != len(all) {
		t.Fatalf("ids %q", all)
	}
	for _, id := range all {
		if got := ids(planned(t, rewritetest.Block(t, 20, onnx.Float),
			Request{Sites: []string{id}, Verify: VerifyOff}).Report.Sites,
			Fused); !slices.Equal(got, []string{id}) {
			t.Errorf("asked for %s, got %q", id, got)
		}
	}
	// As a bisection does: one half, then the other.
	whole := rewritetest.Block(t, 20, onnx.Float)
	apply(t, whole)
	for _, half := range [][]string{all[:3], all[3:]} {
		if r := apply(t, m, Request{Sites: half}); !slices.Equal(ids(r.Sites, Fused), half) {
			t.Errorf("asked for %q, got %+v", half, r.Sites)
		}
	}
	if got, want := rewritetest.CountOps(m), rewritetest.CountOps(whole); got["MatMul"] != want["MatMul"] ||
		got["GLU"] != want["GLU"] ||
		got["RMSNorm"] != want["RMSNorm"] || got["Mul"] != 0 {
		t.Errorf("%v, in one go %v", got, want)
	}
	p, err := New(Request{AssumeAvailable: true, Sites: []string{all[0], "SwiGLU:nowhere"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Plan(rewritetest.Block(t, 20, onnx.Float)); err == nil || !strings.Contains(err.Error(),
		"SwiGLU:nowhere") {
		t.Errorf("a site that is not there: %v", err)
	}
}

// A Patcher serves several models, and its reports are independent.
func TestPatcherTwice(t *testing.T) {
	p, err := New(Request{AssumeAvailable: true})
	if err != nil {
		t.Fatal(err)
	}
	var first []byte
	for i := range 2 {
		m := rewritetest.Block(t, 20, onnx.Float)
		r, err := p.Run(m)
		if err != nil {
			t.Fatal(err)
		}
		if r.kernel("cpu_fused_swiglu").Sites != 2 || len(r.Sites) != 6 || r.DryRun || !r.Changed || r.Input == nil {
			t.Errorf("%+v", r)
		}
		b := modelBytes(t, m)
		if i > 0 && !bytes.Equal(first, b) {
			t.Error("the second model differs")
		}
		first = b
	}
	for _, k := range p.Kernels() {
		if k.Sites != 0 {
			t.Errorf("%+v", k)
		}
	}
}

// TestPlanOfManyValues refuses a plan before decoding it takes a hundred times the memory of its text.
func TestPlanOfManyValues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	text := `{"schema": 1, "sites": [{}` + strings.Repeat(",{}", MaxPlanValues) + "]}"
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPlan(path); err == nil || !strings.Contains(err.Error(), "more than 2000000 JSON values") {
		t.Error(err)
	}
}
