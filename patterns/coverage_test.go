package patterns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/models"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestCoverage holds the built-in patterns against real exports: every norm, rotary application and dense gated MLP is
// found, and none invented. MOJO_ZOO adds a folder of models; its truth.json stands in it or beside it.
func TestCoverage(t *testing.T) {
	dirs := []string{"../models"}
	if zoo := os.Getenv("MOJO_ZOO"); zoo != "" {
		dirs = append(dirs, zoo)
	}
	tested := 0
	for _, dir := range dirs {
		truths, err := models.ReadTruth(dir)
		if err != nil {
			t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*.onnx"))
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".onnx")
			want, ok := truths[name]
			if !ok || !covered(name) {
				continue
			}
			tested++
			t.Run(name, func(t *testing.T) { checkCoverage(t, file, want) })
		}
	}
	if tested == 0 {
		t.Skip("no models with a truth.json")
	}
}

// covered names the architectures whose every form the patterns know; others are not held to the truth.
func covered(name string) bool {
	arch, _, _ := strings.Cut(strings.ReplaceAll(name, "_", "-"), "-")
	switch arch {
	case "llama", "llama3rope", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "olmo2", "mixtral", "qwen3moe":
		return !strings.Contains(name, "_op23")
	}
	return false
}

func checkCoverage(t *testing.T, file string, want models.Blocks) {
	m, err := onnx.Read(file, onnx.AllowMissingData())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	matches, misses := Builtin().Find(m.Graph, infer.Analyze(m))
	var got models.Blocks
	for _, m := range matches {
		switch m.Op {
		case "RMSNorm", "AddRMSNorm":
			got.RMSNorm++
		case "RotaryEmbedding":
			got.Rope++
		case "GLU":
			got.GLU++
		}
	}
	if got != want {
		t.Errorf("found %+v, the model has %+v", got, want)
	}
	if got != want || testing.Verbose() {
		for _, m := range misses {
			t.Logf("%s near node %q (%s): stopped at %q: %s", m.Pattern, m.Anchor.Name, m.Anchor.OpType, m.Node.Name, m.Reason())
		}
	}
}
