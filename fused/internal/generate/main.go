// Command generate writes what is made of the catalogue of fused ops: documents, the tables of the C++ kernels, and
// what the Python tests know of the ops. With -check it writes nothing, and fails where a file is not what it would
// write.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// file is a generated file: its path from the root of the repository, and what it holds, given what it holds now.
type file struct {
	path  string
	write func(now []byte) ([]byte, error)
}

var files = []file{
	{"docs/ops.md", whole(opsDocument)},
	{"docs/kernels.md", kernelsDocument},
	{"fused/kernels/common/schema.h", whole(header)},
	{"fused/kernels/common/schema.cc", whole(definitions)},
	{"fused/kernels/tests/ops.json", whole(catalogue)},
	{"fused/kernels/tests/forms.cc", whole(forms)},
}

// whole is for a file that is generated as a whole.
func whole(make func() ([]byte, error)) func([]byte) ([]byte, error) {
	return func([]byte) ([]byte, error) { return make() }
}

func main() {
	check := flag.Bool("check", false, "write nothing, and fail where a file is not current")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: generate [-check] ROOT")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	for _, f := range files {
		path := filepath.Join(root, f.path)
		now, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		want, err := f.write(now)
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		switch {
		case bytes.Equal(now, want):
		case check:
			return fmt.Errorf("%s is not what the catalogue of fused ops says: run go generate ./fused", f.path)
		default:
			if err := os.WriteFile(path, want, 0o666); err != nil {
				return err
			}
		}
	}
	return nil
}
