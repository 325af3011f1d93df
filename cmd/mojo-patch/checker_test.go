package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// checker runs onnx's checker, with full shape inference, on the files in its arguments.
const checker = `
import sys, onnx
bad = 0
for path in sys.argv[1:]:
    try:
        onnx.checker.check_model(path, full_check=True)
    except Exception as error:
        bad += 1
        print(path, error)
print(len(sys.argv) - 1, "models checked")
sys.exit(bad > 0)
`

// TestCheckerAcceptsPatchedModels patches every bundled model and runs the checker of Python's onnx on it.
func TestCheckerAcceptsPatchedModels(t *testing.T) {
	python := pythonWithONNX(t)
	dir := t.TempDir()
	args := []string{"-c", checker}
	for name := range bundled(t) {
		out := filepath.Join(dir, name+".onnx")
		report(t, "apply", filepath.Join("..", "..", "models", name+".onnx"), "-o", out, "--json", "--require",
			"--assume-available",
			"--check-kernels", "off")
		args = append(args, out)
	}
	if out, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// pythonWithONNX returns a Python that has onnx, or skips the test.
func pythonWithONNX(t *testing.T) string {
	t.Helper()
	python := os.Getenv("MOJO_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", "build", "venv", "bin", "python")
	}
	if out, err := exec.Command(python, "-c", "import onnx").CombinedOutput(); err != nil {
		if os.Getenv("MOJO_REQUIRE_ORT") == "1" {
			t.Fatalf("%s cannot import onnx: %v\n%s", python, err, out)
		}
		t.Skipf("%s cannot import onnx (make test installs it)", python)
	}
	return python
}
