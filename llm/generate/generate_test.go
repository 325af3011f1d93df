package generate_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

func TestMain(m *testing.M) { orttest.Main(m) }

// recording is the output of transformers, written by models/export/generation.py.
type recording struct {
	Prompts  [][]int64   `json:"prompts"`
	Greedy   [][]int64   `json:"greedy"`
	Together [][]int64   `json:"together"`
	Gaps     [][]float64 `json:"gaps"`
}

func recordings(t *testing.T) map[string]recording {
	t.Helper()
	b, err := os.ReadFile("testdata/greedy.json")
	must(t, err)
	list := map[string]recording{}
	must(t, json.Unmarshal(b, &list))
	if len(list) < 6 {
		t.Fatalf("testdata/greedy.json has %d models", len(list))
	}
	return list
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func modelPath(name string) string {
	if path := filepath.Join("testdata", name+".onnx"); exists(path) {
		return path
	}
	return filepath.Join("..", "..", "models", name+".onnx")
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func open(t *testing.T, path string) *generate.Generator {
	t.Helper()
	orttest.Library(t)
	g, err := generate.Open(path, orttest.Provider())
	must(t, err)
	t.Cleanup(func() { must(t, g.Close()) })
	return g
}

func tokens(t *testing.T, g *generate.Generator, o generate.Options, prompts ...[]int64) []generate.Sequence {
	t.Helper()
	r, err := g.Start(o, prompts...)
	must(t, err)
	for _, err := range r.Tokens(t.Context()) {
		must(t, err)
	}
	return r.Sequences()
}

// TestGreedy compares with transformers' generate(): each prompt by itself, all together, and in pieces.
func TestGreedy(t *testing.T) {
	for name, want := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			g := open(t, modelPath(name))
			o := generate.Options{MaxTokens: len(want.Greedy[0]), Margins: true}
			tolerance := 1e-4
			if g.Half() {
				tolerance = 0.02
			}
			for i, p := range want.Prompts {
				got := tokens(t, g, o, p)[0]
				if !slices.Equal(got.IDs, want.Greedy[i]) || got.Stop != generate.StopLength {
					t.Errorf("prompt %d: %v (%s), want %v", i, got.IDs, got.Stop, want.Greedy[i])
				}
				for k, m := range got.Margins {
					if math.Abs(float64(m)-want.Gaps[i][k]) > tolerance {
						t.Errorf("prompt %d, token %d: margin %g, want %g", i, k, m, want.Gaps[i][k])
					}
				}
			}
			for _, size := range []int{0, 1, 3} {
				o.PrefillSize = size
				for i, s := range tokens(t, g, o, want.Prompts...) {
					if !slices.Equal(s.IDs, want.Together[i]) {
						t.Errorf("together, prefill %d, prompt %d: %v, want %v", size, i, s.IDs, want.Together[i])
					}
				}
			}
		})
	}
}
