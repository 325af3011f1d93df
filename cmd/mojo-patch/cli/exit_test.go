//go:build linux

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestFileIsCutOff truncates a mapped model: reading the missing weights must return an error, not crash.
func TestFileIsCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.onnx")
	m := onnx.New(10, 20)
	w, err := onnx.NewTensor("w", onnx.Uint8, []int64{1 << 20}, make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	m.Graph.AddInitializer(w)
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	if m, err = onnx.Read(path); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	sum := 0
	err = guarded(func() error {
		raw, err := m.Graph.Value("w").Const.Bytes()
		for _, b := range raw {
			sum += int(b)
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "was truncated while it was read") {
		t.Errorf("got %v", err)
	}
	plain := errors.New("plain")
	if err := guarded(func() error { return plain }); err != plain {
		t.Errorf("got %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("another panic was swallowed")
		}
	}()
	guarded(func() error { var p *int; return errors.New(string(rune(*p))) })
}
