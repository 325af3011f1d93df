package convert_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// TestPrecisionKeepsSites: a converted model has as many sites as before, each of the same pattern.
func TestPrecisionKeepsSites(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "models", "*-fp32.onnx"))
	if len(files) == 0 {
		t.Fatal("no models")
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".onnx"), func(t *testing.T) {
			before := sites(t, convert.Read(t, path))
			if before == "" {
				t.Fatal("no sites")
			}
			for _, half := range []struct {
				to        onnx.DataType
				providers []string
			}{{onnx.Float16, nil}, {onnx.BFloat16, nil}, {onnx.BFloat16, []string{"cuda"}}} {
				m := convert.Read(t, path)
				if _, err := convert.Precision(m, half.to, half.providers...); err != nil {
					t.Fatal(err)
				}
				if after := sites(t, m); after != before {
					t.Errorf("%s %v:\n%s\nbefore\n%s", half.to, half.providers, after, before)
				}
			}
		})
	}
}

// sites counts the sites of a model by pattern.
func sites(t *testing.T, m *onnx.Model) string {
	t.Helper()
	r, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Verify: rewrite.VerifyOff})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range r.Patterns {
		if p.Found > 0 {
			fmt.Fprintf(&b, "%s %d of %d\n", p.Name, p.Fused, p.Found)
		}
	}
	return b.String()
}
