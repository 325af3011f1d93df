//go:build unix

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The flags of an apply whose result does not depend on the machine, and of one that spends its time on writing.
var (
	anywhere = slices.Clip([]string{"--check-kernels", "off", "--assume-available", "-q"})
	fast     = append(anywhere, "--verify", "off")
)

// apply runs the program and returns its exit code and output.
func (b *bench) apply(dir string, environment []string, in, out string, flags ...string) (code int, said string) {
	c := exec.Command(b.tool, append([]string{"apply", in, "-o", out}, flags...)...)
	c.Dir, c.Env = dir, append(os.Environ(), environment...)
	printed, err := c.CombinedOutput()
	if code = exitCode(err); code < 0 {
		return code, err.Error()
	}
	return code, string(printed)
}

// applies returns an error unless apply ends with the exit code.
func (b *bench) applies(want int, in, out string, flags ...string) error {
	if code, said := b.apply("", nil, in, out, flags...); code != want {
		return fmt.Errorf("apply exits with %d: %s", code, said)
	}
	return nil
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// contents returns the digest of a model's graph and all its weights, at any place, or "none" for a missing file.
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

func snapshot(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	files := map[string]string{}
	for _, e := range entries {
		raw, errRead := os.ReadFile(filepath.Join(dir, e.Name()))
		err = errors.Join(err, errRead)
		files[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(raw))
	}
	return files, err
}

func names(files map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(files)), " ") }

// emptied replaces folders by empty ones.
func emptied(dirs ...string) error {
	for _, d := range dirs {
		if err := errors.Join(os.RemoveAll(d), os.Mkdir(d, 0o777)); err != nil {
			return err
		}
	}
	return nil
}

func copyFolder(from, to string) error {
	return errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from)))
}

func (b *bench) bundled() ([]string, error) {
	list, err := filepath.Glob(filepath.Join(b.models, "*.onnx"))
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("no models in %s", b.models)
	}
	return list, err
}
