package patterns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/models"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestCoverage compares the built-in patterns with real exports: every norm, rotary application, dense gated MLP,
// router and block of experts is found, and no others. MOJO_ZOO adds a folder of models, with its truth.json inside or
// beside it.
func TestCoverage(t *testing.T) {
	dirs := []string{"../models", "../models/broken"}
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
			if !ok {
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

func checkCoverage(t *testing.T, file string, want models.Blocks) {
	m, err := onnx.Read(file, onnx.AllowMissingData())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	facts := infer.Analyze(m)
	var matches []*Match
	var misses []*match.Miss
	for _, g := range m.Graphs() {
		found, missed := Builtin().Find(g, facts)
		matches, misses = append(matches, found...), append(misses, missed...)
	}
	var got models.Blocks
	for _, m := range matches {
		got = got.Plus(models.Of(m.Op))
	}
	if got != want {
		t.Errorf("found %+v, the model has %+v", got, want)
	}
	if got != want || testing.Verbose() {
		for _, m := range misses {
			t.Logf("%s near node %q (%s): stopped at %q: %s", m.Pattern, m.Anchor.Name, m.Anchor.OpType,
				m.Reason.Node.Name, m.Reason.Error())
		}
	}
}
