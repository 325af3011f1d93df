package convert

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
)

// root is the root of the repository.
var root = filepath.Join("..", "..")

// python returns the path of a Python with onnx. Without one it skips the test, or fails it if the environment requires
// one.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("MOJO_PYTHON")
	if path == "" {
		path = filepath.Join(root, "build", "venv", "bin", "python")
	}
	if out, err := exec.Command(path, "-c", "import onnx").CombinedOutput(); err != nil {
		if os.Getenv(orttest.RequireVariable) != "" {
			t.Fatalf("%s cannot import onnx: %v\n%s", path, err, out)
		}
		t.Skipf("%s cannot import onnx (make test installs it)", path)
	}
	return path
}

// converted is a model file, the model that it was made from, and the folder of a case for Python to run, if any.
type converted struct{ path, before, folder string }

// checkInPython checks models with testdata/check.py.
func checkInPython(t *testing.T, models []converted) {
	t.Helper()
	var lines bytes.Buffer
	for _, m := range models {
		fmt.Fprintf(&lines, "%s\t%s\t%s\n", m.path, m.before, m.folder)
	}
	cmd := exec.Command(python(t), filepath.Join("testdata", "check.py"))
	cmd.Stdin = &lines
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return
	}
	t.Logf("%s", bytes.TrimSpace(out))
}

// bundled lists by name the bundled models that match their goldens unchanged.
func bundled(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, pattern := range []string{"*.onnx", "near/*.onnx"} {
		found, _ := filepath.Glob(filepath.Join(root, "models", pattern))
		for _, path := range found {
			files[strings.TrimSuffix(filepath.Base(path), ".onnx")] = path
		}
	}
	if len(files) == 0 {
		t.Fatal("no models")
	}
	return files
}

func read(t *testing.T, path string) *onnx.Model {
	t.Helper()
	m, err := onnx.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// rewritten writes the model and reads it again.
func rewritten(t *testing.T, m *onnx.Model) (*onnx.Model, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	return read(t, path), path
}

// evaluated runs the model in the built-in evaluator.
func evaluated(m *onnx.Model, inputs []*onnx.Tensor) ([]*onnx.Tensor, error) {
	e, err := reference.New(m, reference.Options{})
	if err != nil {
		return nil, err
	}
	return e.RunTensors(inputs)
}

// within returns an error if a result is outside the tolerance of the case.
func within(got []*onnx.Tensor, c *golden.Case) error {
	for _, g := range got {
		want := c.Output(g.Name)
		if want == nil {
			return fmt.Errorf("the case has no output %q", g.Name)
		}
		s, err := golden.Compare(g, want, golden.DefaultTolerance(coarser(g.DataType, want.DataType)))
		if err != nil {
			return err
		}
		if !s.Passed {
			return fmt.Errorf("output %q: %+v", g.Name, s)
		}
	}
	return nil
}

func coarser(a, b onnx.DataType) onnx.DataType {
	if a.Bits() < b.Bits() {
		return a
	}
	return b
}

// equal returns an error if two results differ in any bit.
func equal(got, want []*onnx.Tensor) error {
	for i, g := range got {
		a, errA := g.Bytes()
		b, errB := want[i].Bytes()
		if errA != nil || errB != nil {
			if fmt.Sprint(g.Strings()) != fmt.Sprint(want[i].Strings()) {
				return fmt.Errorf("output %q: %q, before %q", g.Name, g.Strings(), want[i].Strings())
			}
			continue
		}
		if g.DataType != want[i].DataType || fmt.Sprint(g.Dims) != fmt.Sprint(want[i].Dims) || !bytes.Equal(a, b) {
			return fmt.Errorf("output %q is not what it was", g.Name)
		}
	}
	return nil
}

// gives returns an error if the built-in evaluator does not reproduce the wanted results bit for bit.
func gives(m *onnx.Model, inputs, want []*onnx.Tensor) error {
	got, err := evaluated(m, inputs)
	if err != nil {
		return err
	}
	return equal(got, want)
}
