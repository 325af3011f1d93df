package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/ort"
)

// TestLibrariesAreNeeded: without onnxruntime or the kernel library nothing is compared or recorded.
func TestLibrariesAreNeeded(t *testing.T) {
	full, empty := t.TempDir(), t.TempDir()
	library := filepath.Join(full, op.CPU.LibraryName())
	if err := os.WriteFile(library, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, kernels, tool string
		want                error
		variable            string
	}{
		{"no kernel library", "", "", op.ErrNoLibrary, op.LibraryVariable},
		{"a variable that names none", filepath.Join(empty, "absent.so"), "", op.ErrNoLibrary, op.LibraryVariable},
		{"a program without one beside it", "", filepath.Join(empty, "mojo-patch"), op.ErrNoLibrary,
			op.LibraryVariable},
		{"no onnxruntime", library, "", ort.ErrNoLibrary, ort.LibraryVariable},
		{"no onnxruntime for another program", "", filepath.Join(full, "mojo-patch"), ort.ErrNoLibrary,
			ort.LibraryVariable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(op.LibraryVariable, c.kernels)
			t.Setenv(ort.LibraryVariable, filepath.Join(empty, "absent.so"))
			table := filepath.Join(t.TempDir(), "table.txt")
			f := freezer{tool: c.tool, jobs: 1}
			same, err := run(&f, table, "", true, []string{empty})
			if same || !errors.Is(err, c.want) || !strings.Contains(err.Error(), "set "+c.variable) {
				t.Errorf("%v, %v", same, err)
			}
			if _, err := os.Stat(table); err == nil {
				t.Error("a table was written")
			}
		})
	}
}
