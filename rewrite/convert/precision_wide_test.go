package convert

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// wideNodes lists for bundled models in float16 the changed constants, those that stay, the added and removed casts,
// and the nodes that compute in float32.
//
//go:embed testdata/wide.txt
var wideNodes string

// TestNodesInFloat32: norms, positions, choices and softmaxes compute in float32, and nothing else.
func TestNodesInFloat32(t *testing.T) {
	for line := range strings.Lines(wideNodes) {
		name, _, _ := strings.Cut(line, ":")
		m := read(t, filepath.Join(root, "models", name+".onnx"))
		r, err := Precision(m, onnx.Float16, "cuda")
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%s: %d+%d constants, %d-%d casts, %v\n", name, r.Initializers, r.Kept, r.Casts, r.Removed,
			r.Float32)
		if got != line {
			t.Errorf("%swant %s", got, line)
		}
	}
}
