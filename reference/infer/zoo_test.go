package infer

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// models lists the exports to test with: $MOJO_ZOO, or the repository's models.
func models(t testing.TB) []string {
	folder := os.Getenv("MOJO_ZOO")
	if folder == "" {
		folder = filepath.Join("..", "..", "models")
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*.onnx"))
	if len(files) == 0 {
		t.Skipf("no models in %s (MOJO_ZOO names another folder)", folder)
	}
	return files
}

// TestDump reports
func TestDump(t *testing.T) {
	for _, path := range models(t) {
		m, err := onnx.Read(path, onnx.AllowMissingData())
		if err != nil {
			t.Error(err)
			continue
		}
		start := time.Now()
		f := Analyze(m)
		took := time.Since(start)
		total, known := 0, 0
		for _, n := range m.Graph.Nodes {
			for _, v := range n.Outputs {
				total++
				ok := f.DataType(v) != 0
				for w := range Worlds {
					if _, k := f.Shape(v, w); !k {
						ok = false
					}
				}
				if ok {
					known++
				} else if total-known < 8 {
					t.Logf("   %s %s %q %v", n.OpType, n.Name, v.Name, f.of(v).shape)
				}
			}
		}
		t.Logf("%s: %d of %d known, %v", filepath.Base(path), known, total, took)
		for _, s := range f.symbols {
			t.Logf("    %q %v %v%v%v fresh=%v", s.name, s.start, s.at(0), s.at(1), s.at(2), s.free())
		}
	}
}
