package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewOp adds an op to a copy of the packages of ops: everything must compile, and the op must have what the tests
// of the catalog demand.
func TestNewOp(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the packages of ops")
	}
	from, root := filepath.Join("..", "..", ".."), t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "docs/ops.md", "docs/kernels.md", "fused", "internal/blocks",
		"internal/libpath", "internal/atomicfile", "internal/mmap", "internal/regular", "onnx", "patterns/reason",
		"reference"} {
		if err := copied(filepath.Join(from, name), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(root, "Swish"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"run", "./fused/internal/generate", "."},
		{"run", "./fused/internal/generate", "-check", "."},
		{"test", "-vet=off", "./fused/op", "./fused/swish"},
	} {
		c := exec.Command("go", args...)
		c.Dir = root
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	b, err := os.ReadFile(filepath.Join(root, "fused", "kernels", "common", "schema.h"))
	if err != nil || !strings.Contains(string(b), "X(Swish)") {
		t.Errorf("the kernels do not know the op: %v", err)
	}
}

// TestNewOpRefuses gives names that an op cannot have.
func TestNewOpRefuses(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	for name, want := range map[string]string{"swish": "not the name of an op", "Linear": "there is an op Linear",
		"Internal": "the folder"} {
		if err := write(root, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", name, err, want)
		}
	}
}

// copied copies a file or a folder.
func copied(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at, _ := filepath.Rel(from, path)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, at)), 0o777); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, at), b, 0o666)
	})
}
