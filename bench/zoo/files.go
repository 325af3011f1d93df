package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// exports lists the models of dir, or else those of dir/models.
func exports(dir string) ([]string, error) {
	for _, d := range []string{dir, filepath.Join(dir, "models")} {
		files, err := filepath.Glob(filepath.Join(d, "*.onnx"))
		if err != nil {
			return nil, err
		}
		if len(files) > 0 {
			return files, nil
		}
	}
	return nil, fmt.Errorf("neither %s nor its folder models holds .onnx files", dir)
}

// goldens finds the recorded cases of a model: NAME.npz, or the folder NAME, beside NAME.onnx.
func goldens(model string) (string, error) {
	name := strings.TrimSuffix(model, ".onnx")
	for _, path := range []string{name + ".npz", name} {
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s has no goldens: neither %s.npz nor a folder %s", model, name, name)
}
