package weights_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// The limits for loading a fuzzed checkpoint.
const (
	fuzzTime  = 10 * time.Second
	fuzzAlloc = 512 << 20
)

// FuzzKeep feeds graphs of products, tables and experts an arbitrary checkpoint. It must be loaded, quantized and
// widened, or an error must name the file, within the limits.
//
//	go test -fuzz FuzzKeep ./llm/weights
func FuzzKeep(f *testing.F) {
	dir := f.TempDir()
	seed := func(name string, write func(path string) error) {
		path := filepath.Join(dir, name)
		if err := write(path); err != nil {
			f.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(strings.HasSuffix(name, ".gguf"), b)
	}
	const gate, up = "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"
	seed("fp8.safetensors", func(path string) error {
		return checkpoints.Safetensors(path, append(randomFP8(gate, 24, 128), randomFP8(up, 24, 128)...))
	})
	seed("mxfp4.safetensors", func(path string) error {
		return checkpoints.Safetensors(path, append(randomMXFP4("model.layers.0.mlp.experts.gate_up_proj", 3, 64, 96),
			randomMXFP4("model.layers.0.mlp.experts.down_proj", 3, 96, 32)...))
	})
	seed("rows.safetensors", func(path string) error {
		return checkpoints.Safetensors(path, append(randomMXFP4(gate, 24, 128), randomMXFP4(up, 24, 64)...))
	})
	for i := range stored {
		seed("m.gguf", func(path string) error {
			return checkpoints.GGUF(path, map[string]any{"general.architecture": "qwen3"},
				[]checkpoints.Tensor{randomBlocks("blk.0.ffn_gate.weight", i, 2, 256)})
		})
	}
	f.Fuzz(func(t *testing.T, gguf bool, b []byte) {
		path := filepath.Join(t.TempDir(), "m.safetensors")
		if gguf {
			path = filepath.Join(filepath.Dir(path), "m.gguf")
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, graph := range []func() *onnx.Model{
			func() *onnx.Model { return readersOf(t, onnx.Float, 24, 128) },
			func() *onnx.Model { return readersOf(t, onnx.Float, 2, 256) },
			func() *onnx.Model { return mixtureOf(t) },
		} {
			for _, keeps := range []bool{true, false} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				start := cputime.Used()
				if err := fill(graph(), path, keeps); err != nil && !strings.Contains(err.Error(), path) {
					t.Errorf("an error without the file: %v", err)
				}
				runtime.ReadMemStats(&after)
				if took := cputime.Used() - start; took > fuzzTime {
					t.Errorf("it took %v", took)
				}
				if n := after.TotalAlloc - before.TotalAlloc; n > fuzzAlloc {
					t.Errorf("it took %d MB in all", n>>20)
				}
			}
		}
	})
}

// fill loads a graph and writes it.
func fill(m *onnx.Model, path string, keeps bool) error {
	c, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := weights.Match(m, c, weights.MatchOptions{})
	if err == nil && keeps {
		err = p.KeepQuantized(m, weights.KeepOptions{})
	}
	if err == nil {
		err = p.Apply(nil)
	}
	if err == nil {
		p.Report()
		_, err = onnx.Marshal(m)
	}
	return err
}
