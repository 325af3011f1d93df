package gguf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// parts copies the three parts of testdata to a new folder.
func parts(t *testing.T) (folder string, paths []string) {
	t.Helper()
	folder = t.TempDir()
	for i := range int64(3) {
		name := "split" + splitSuffix(i, 3)
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filepath.Join(folder, name))
		if err := os.WriteFile(paths[i], b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return folder, paths
}

func TestOpenSplit(t *testing.T) {
	_, paths := parts(t)
	for _, path := range paths {
		files, err := OpenSplit(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i, f := range files {
			if part, of := f.Split(); f.Path != paths[i] || part != int64(i) || of != 3 {
				t.Errorf("file %d is %s, part %d of %d", i, f.Path, part, of)
			}
			for _, x := range f.Tensors {
				if got := elements(t, x); got[3] != float32(n) {
					t.Errorf("%s holds %v", x.Name, got)
				}
				n++
			}
			f.Close()
		}
		if n != 5 {
			t.Errorf("%d tensors, want 5", n)
		}
	}
	files, err := OpenSplit("testdata/types.gguf")
	if err != nil || len(files) != 1 {
		t.Fatalf("a whole file: %d files, %v", len(files), err)
	}
	files[0].Close()
}

func TestOpenSplitErrors(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(folder string, paths []string) error
		want  string
	}{
		"missing": {func(_ string, paths []string) error { return os.Remove(paths[2]) },
			"split-00001-of-00003.gguf is part 1 of 3, but other parts are missing in its folder " +
				"(split-00003-of-00003.gguf)"},
		"renamed": {func(folder string, paths []string) error {
			return os.Rename(paths[0], filepath.Join(folder, "split-00001-of-00004.gguf"))
		}, "is part 1 of 3, but its name does not end in -00001-of-00003.gguf"},
		"one twice": {func(_ string, paths []string) error { return copyFile(paths[1], paths[2]) },
			"split-00003-of-00003.gguf says that it is part 2 of 3"},
		"no part": {func(_ string, paths []string) error { return copyFile("testdata/metadata.gguf", paths[1]) },
			"split-00002-of-00003.gguf says that it is part 1 of 1"},
		"same tensor": {func(_ string, paths []string) error { return replace(paths[2], "t4", "t0") },
			`split-00003-of-00003.gguf: tensor "t0" is also in `},
		"wrong total": {func(_ string, paths []string) error {
			return replace(paths[0], "split.tensors.count\x05\x00\x00\x00\x05",
				"split.tensors.count\x05\x00\x00\x00\x06")
		}, "says that the 3 files hold 6 tensors, but they hold 5"},
		"damaged": {func(_ string, paths []string) error { return os.Truncate(paths[1], 100) },
			"split-00002-of-00003.gguf: the file ends at byte 100"},
	} {
		folder, paths := parts(t)
		if err := c.spoil(folder, paths); err != nil {
			t.Fatal(err)
		}
		names, err := filepath.Glob(filepath.Join(folder, "*-00001-*"))
		if err != nil {
			t.Fatal(err)
		}
		files, err := OpenSplit(names[0])
		if err == nil || !strings.Contains(err.Error(), c.want) || files != nil {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if name == "missing" != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: wrong kind of error: %v", name, err)
		}
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o666)
}

func replace(path, from, to string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s := strings.Replace(string(b), from, to, 1)
	if s == string(b) {
		return errors.New("there is nothing to replace")
	}
	return os.WriteFile(path, []byte(s), 0o666)
}
