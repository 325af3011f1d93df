package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/apply"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/crosscheck"
)

// Test builds always contain the second reader, for the scripts too. They are never shipped.
func init() {
	apply.SecondReader = func(path string, m *onnx.Model) (string, error) {
		r, err := crosscheck.File(path, m)
		if err != nil {
			return "", err
		}
		return r.String(), nil
	}
}

// TestCrosscheckFindsWrongEdge demands that a wrong edge in the written file fails the command and leaves no files
// behind.
func TestCrosscheckFindsWrongEdge(t *testing.T) {
	honest := apply.SecondReader
	defer func() { apply.SecondReader = honest }()
	apply.SecondReader = func(path string, m *onnx.Model) (string, error) {
		for _, n := range m.Graph.Nodes { // as if the file held another graph than the one in memory
			if n.Is("Mul") {
				n.SetInput(1, m.Graph.Inputs[0])
				break
			}
		}
		return honest(path, m)
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "out.onnx")
	var said strings.Builder
	args := []string{"apply", "../../models/llama-ts-fp32.onnx", "-o", out, "--crosscheck", "--assume-available",
		"--check-kernels", "off"}
	if code := execute(args, io.Discard, &said); code != cli.ExitFailed ||
		!strings.Contains(said.String(), "reads another graph") {
		t.Errorf("exit code %d: %s", code, said.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestCrosscheckNotBuiltIn demands that a build without the second reader reports this, with advice, before any work.
func TestCrosscheckNotBuiltIn(t *testing.T) {
	honest := apply.SecondReader
	defer func() { apply.SecondReader = honest }()
	apply.SecondReader = nil
	var said strings.Builder
	code := execute([]string{"apply", "../../models/llama-ts-fp32.onnx", "-o", filepath.Join(t.TempDir(), "out.onnx"),
		"--crosscheck"}, io.Discard, &said)
	if code != cli.ExitEnvironment || !strings.Contains(said.String(), "-tags crosscheck") {
		t.Errorf("exit code %d: %s", code, said.String())
	}
}

// TestCrosscheckError demands that an error of the second reader itself fails the command, too.
func TestCrosscheckError(t *testing.T) {
	honest := apply.SecondReader
	defer func() { apply.SecondReader = honest }()
	apply.SecondReader = func(string, *onnx.Model) (string, error) { return "", errors.New("no such luck") }
	var said strings.Builder
	out := filepath.Join(t.TempDir(), "out.onnx")
	code := execute([]string{"apply", "../../models/llama-ts-fp32.onnx", "-o", out, "--crosscheck",
		"--assume-available",
		"--check-kernels", "off"}, io.Discard, &said)
	if _, err := os.Stat(out); code != cli.ExitFailed || err == nil {
		t.Errorf("exit code %d, %v: %s", code, err, said.String())
	}
}
