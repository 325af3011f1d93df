package convert

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// TestBundledModels converts every bundled model to two opsets. It matches its goldens and, bit for bit, its old
// results in the built-in evaluator, passes onnx.checker, and runs in onnxruntime.
func TestBundledModels(t *testing.T) {
	dir := t.TempDir()
	var written []converted
	for name, path := range bundled(t) {
		t.Run(name, func(t *testing.T) {
			old := read(t, path)
			cases, err := golden.Load(strings.TrimSuffix(path, ".onnx")+".npz", old)
			if err != nil {
				t.Fatal(err)
			}
			before, err := evaluated(old, cases[0].Inputs)
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range []int64{23, 24} {
				m := read(t, path)
				if err := Opset(m, to); err != nil {
					t.Fatal(err)
				}
				m, file := rewritten(t, m)
				if got := m.Opset(""); got != to {
					t.Errorf("the model is of opset %d, not %d", got, to)
				}
				if to == 23 && m.IRVersion != 11 || to == 24 && m.IRVersion != 12 {
					t.Errorf("opset %d has IR version %d", to, m.IRVersion)
				}
				after, err := evaluated(m, cases[0].Inputs)
				if err != nil {
					t.Fatal(err)
				}
				if err := equal(after, before); err != nil {
					t.Error(err)
				}
				if to == 24 {
					for i, c := range cases {
						got, err := evaluated(m, c.Inputs)
						if err == nil {
							err = within(got, &c)
						}
						if err != nil {
							t.Errorf("case %d: %v", i, err)
						}
					}
				}
				kept := filepath.Join(dir, fmt.Sprintf("%s-%d.onnx", name, to))
				if err := onnx.Write(kept, read(t, file)); err != nil {
					t.Fatal(err)
				}
				written = append(written, converted{path: kept, before: path})
				sameInRuntime(t, path, kept, &cases[0])
			}
		})
	}
	checkInPython(t, written)
}

// sameInRuntime reports whether the old model runs in onnxruntime. If so, the new one must run and match the case.
func sameInRuntime(t *testing.T, before, after string, c *golden.Case) bool {
	t.Helper()
	library := ort.WithLibrary(orttest.Library(t))
	if _, err := runtime(before, library, c); err != nil {
		t.Logf("the model does not run in onnxruntime before, either: %v", err)
		return false
	}
	got, err := runtime(after, library, c)
	if err == nil {
		err = within(got, c)
	}
	if err != nil && strings.Contains(err.Error(), "Could not find an implementation for RoiAlign(22)") {
		t.Logf("%s: onnxruntime lacks the op's newer version: %v", filepath.Base(after), err)
		return false
	}
	if err != nil {
		t.Errorf("%s in onnxruntime: %v", filepath.Base(after), err)
	}
	return true
}

func runtime(path string, library ort.Option, c *golden.Case) ([]*onnx.Tensor, error) {
	s, err := ort.Open(path, library, orttest.Provider())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Run(c.Inputs)
}
