//go:build unix

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// fast are the flags of an apply that spends its time on writing.
var fast = []string{"--verify", "off", "--check-kernels", "off", "--assume-available", "-q"}

// apply runs the program and returns its exit code and what it said.
func (b *bench) apply(dir string, environment []string, args ...string) (code int, said string) {
	c := exec.Command(b.tool, append([]string{"apply"}, args...)...)
	c.Dir, c.Env = dir, append(os.Environ(), environment...)
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return -1, err.Error()
	}
	return c.ProcessState.ExitCode(), string(out)
}

// contents is the digest of a model's graph and all its weights, wherever they lie; "none" when there is no such file.
func contents(path string) (string, error) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return "none", nil
	}
	m, err := onnx.Read(path)
	if err != nil {
		return "", err
	}
	defer m.Close()
	h := sha256.New()
	io.WriteString(h, m.Graph.Text())
	for _, f := range m.Functions {
		io.WriteString(h, f.Text())
	}
	for _, v := range m.Graph.Initializers() {
		if v.Const.DataType == onnx.String {
			continue
		}
		raw, err := v.Const.Bytes()
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, v.Name, len(raw))
		h.Write(raw)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// snapshot returns the files of a folder and their digests.
func snapshot(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return nil, err
		}
		files[e.Name()] = hex.EncodeToString(h.Sum(nil))
	}
	return files, nil
}

func names(files map[string]string) string {
	var list []string
	for name := range files {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// copyFolder makes a folder with the files of another.
func copyFolder(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}

// bundled lists the bundled models.
func (b *bench) bundled() ([]string, error) {
	list, err := filepath.Glob(filepath.Join(b.models, "*.onnx"))
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("no models in %s", b.models)
	}
	return list, err
}
