//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// TestMain makes this program its own child, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-decode" {
		if err := decode(os.Args[2]); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestNarrow takes both models through all steps at small widths, and compares them with float32.
func TestNarrow(t *testing.T) {
	t.Setenv(ort.LibraryVariable, orttest.Library(t))
	t.Setenv(fused.LibraryVariable, orttest.Kernels(t))
	b := &bench{tool: filepath.Join(t.TempDir(), "mojo-patch"), dir: t.TempDir(), widened: true}
	build := exec.Command("go", "build", "-ldflags=-w", "-o", b.tool, "../../cmd/mojo-patch")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, w := range []wide{
		{"gpt-oss", 2, func(layers int64) *checkpoints.Model {
			return checkpoints.GptOss{Layers: layers, Experts: 4, Chosen: 2, Hidden: 64, Inner: 64, Heads: 4,
				KeyHeads: 2, Width: 16, Window: 4, Vocabulary: 160}.Build()
		}},
		{"DeepSeek", 2, func(layers int64) *checkpoints.Model {
			return checkpoints.DeepSeek{Layers: layers, Dense: 1, Experts: 8, Chosen: 2, Groups: 4, ChosenGroups: 2,
				Hidden: 128, DenseInner: 256, Inner: 128, Heads: 2, QueryRank: 128, KeyRank: 128, Plain: 32,
				Rotated: 16, Value: 64, Vocabulary: 160}.Build()
		}},
	} {
		t.Run(w.name, func(t *testing.T) {
			if err := b.run(w); err != nil {
				t.Error(err)
			}
		})
	}
	for _, s := range []stack{
		{"Llama", checkpoints.Grouped{Layers: 2, Hidden: 128, Inner: 96, Heads: 4, KeyHeads: 2, Width: 32,
			Vocabulary: 160, Theta: 10000}},
		{"Qwen3", checkpoints.Grouped{Layers: 2, Hidden: 128, Inner: 64, Heads: 4, KeyHeads: 2, Width: 32,
			Vocabulary: 160, Theta: 10000, HeadNorms: true, Experts: 8, Chosen: 2}},
	} {
		t.Run(s.name, func(t *testing.T) {
			if err := b.runStack(s); err != nil {
				t.Error(err)
			}
		})
	}
}
