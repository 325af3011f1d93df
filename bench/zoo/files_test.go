package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExportsAndGoldens(t *testing.T) {
	dir := t.TempDir()
	if _, err := exports(dir); err == nil || !strings.Contains(err.Error(), "holds .onnx files") {
		t.Errorf("an empty folder: error %v", err)
	}
	for _, path := range []string{"models/a.onnx", "models/a.npz", "models/b.onnx",
		"models/b/test_data_set_0/input_0.pb", "models/c.onnx"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, filepath.Join(dir, "models")} {
		files, err := exports(d)
		if err != nil || len(files) != 3 {
			t.Fatalf("%s: %v, error %v", d, files, err)
		}
		for i, want := range []string{"a.npz", "b", ""} {
			path, err := goldens(files[i])
			if (want == "") != (err != nil) || want != "" && filepath.Base(path) != want {
				t.Errorf("%s: goldens %q, error %v, expected %q", files[i], path, err, want)
			}
		}
	}
}
