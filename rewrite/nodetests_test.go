package rewrite

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/inline"
)

// blocksInNodeTests are the standard's node tests that contain one of our blocks, as an op or as its function body.
var blocksInNodeTests = regexp.MustCompile(
	`^test_((rms_normalization|rotary_embedding|attention|swiglu|linear_attention|causal_conv)|` +
		`(layer_norm|group_norm|flexattention).*_expanded)`)

// TestNodeTests patches the standard's node tests. It must fuse nothing in tests of other ops, and reproduce the
// recorded outputs after fusing.
func TestNodeTests(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("MOJO_ONNX_NODE_TESTS"), "*", "model.onnx"))
	if len(files) == 0 {
		t.Skip("no node tests: set MOJO_ONNX_NODE_TESTS")
	}
	fused := 0
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		m, err := onnx.Read(file)
		if err != nil {
			continue // reliability covers these
		}
		r, err := Apply(m, Request{AssumeAvailable: true, Inline: inline.Auto})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if r.Changed && !blocksInNodeTests.MatchString(name) {
			t.Errorf("%s: %+v", name, r.Sites)
		} else if r.Changed {
			fused++
			givesRecorded(t, filepath.Join(filepath.Dir(file), "test_data_set_0"), name, m)
		}
		m.Close()
	}
	t.Logf("%d models, something fused in %d", len(files), fused)
}

func givesRecorded(t *testing.T, folder, name string, m *onnx.Model) {
	cases, err := golden.Load(folder, m)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	out, err := e.RunTensors(cases[0].Inputs)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	stats, err := golden.CompareAll(out, cases[0].Outputs, golden.Tolerances{})
	if err != nil || !golden.Passed(stats) {
		t.Errorf("%s: %v, %+v", name, err, stats)
	}
}
