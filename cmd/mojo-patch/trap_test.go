//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// trapSource is a library that leaves a mark when any program loads it.
const trapSource = `#include <stdio.h>
__attribute__((constructor)) static void loaded(void) { FILE *f = fopen(MARK, "w"); if (f) fclose(f); }
const void *OrtGetApiBase(void) { return 0; }
`

// TestNoLibraryOfTheWorkingDirectory runs commands in a folder that another user filled with libraries, under every
// name and place that a search may try, with variables that point there by relative paths.
func TestNoLibraryOfTheWorkingDirectory(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	onnxruntime, kernels := testEnvironment(t)
	dir, mark := t.TempDir(), filepath.Join(t.TempDir(), "loaded")
	trap := filepath.Join(t.TempDir(), "trap.so")
	cc := exec.Command("cc", "-shared", "-fPIC", fmt.Sprintf("-DMARK=%q", mark), "-o", trap, "-x", "c", "-")
	cc.Stdin = strings.NewReader(trapSource)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Skipf("no C compiler: %v %s", err, out)
	}
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bytes, err := os.ReadFile(trap)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"", "build", "lib", "bin", "site-packages/mojo_patch", "mojo_patch",
		"lib/python3.11/site-packages/mojo_patch", "lib/python3.11/site-packages/mojo_patch_cuda",
		"lib/python3.11/site-packages/onnxruntime/capi", "lib/python3.11/site-packages/onnxruntime_qnn",
		".local/lib/python3.11/site-packages/onnxruntime/capi", ".cache/mojo-patch/onnxruntime-" + "1.32.0",
		"mojo-patch/onnxruntime-1.32.0"} {
		for _, name := range []string{"libmojo_ops.so", "libmojo_ops_cuda.so", "libmojo_ops_cann.so",
			"libonnxruntime.so", "libonnxruntime.so.1", "libonnxruntime.so.1.32.0", "libonnxruntime_providers_qnn.so",
			"libonnxruntime_providers_shared.so", "libascendcl.so"} {
			write(filepath.Join(folder, name), string(bytes))
		}
	}
	write("go.mod", "module m\n")
	for _, name := range []string{"python3", "bin/python3", "nvidia-smi", "bin/nvidia-smi", "sh"} {
		write(name, fmt.Sprintf("#!/bin/sh\n: >%s\n", mark))
	}
	model, err := os.ReadFile("../../models/llama-dynamo-fp32.onnx")
	if err != nil {
		t.Fatal(err)
	}
	write("m.onnx", string(model))

	relative := []string{"PATH=.:bin:", "VIRTUAL_ENV=.", "CONDA_PREFIX=.", "HOME=.", "XDG_CACHE_HOME=.",
		"LD_LIBRARY_PATH=:.:lib", "PWD=" + dir, "TMPDIR=" + t.TempDir()}
	environments := map[string][]string{
		"relative variables": relative,
		"no variables":       {"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir()},
		"relative names": append([]string{"MOJO_OPS_LIBRARY=build/libmojo_ops.so", "ONNXRUNTIME_LIB=libonnxruntime.so",
			"MOJO_PROVIDER_LIBRARY=lib"}, relative...),
		"a relative kernel library": append([]string{"MOJO_OPS_LIBRARY=build/libmojo_ops.so",
			"ONNXRUNTIME_LIB=" + onnxruntime}, relative...),
		"a relative provider": append([]string{"MOJO_PROVIDER_LIBRARY=.", "ONNXRUNTIME_LIB=" + onnxruntime,
			"MOJO_OPS_LIBRARY=" + kernels}, relative...),
		"onnxruntime": append([]string{"ONNXRUNTIME_LIB=" + onnxruntime}, relative...),
	}
	for name, environment := range environments {
		for _, line := range []string{"kernels --model m.onnx", "doctor", "doctor -v --provider qnn",
			"match m.onnx --check-kernels on", "apply m.onnx -o out.onnx --assume-available",
			"apply m.onnx -o out.onnx --check-kernels on",
			"run m.onnx --dim batch=1 --dim sequence=3", "run m.onnx --provider qnn", "diff m.onnx m.onnx",
			"tune --shape 8x2x64x32"} {
			c := exec.Command(program)
			c.Args = append([]string{"mojo-patch"}, strings.Fields(line)...)
			c.Dir, c.Env = dir, environment
			out, _ := c.CombinedOutput()
			if _, err := os.Stat(mark); err == nil {
				t.Errorf("%s: %s loads or runs what lies in the working directory\n%s", name, line, out)
				os.Remove(mark)
			}
			if strings.Contains(name, "a relative kernel") && strings.HasPrefix(line, "kernels") &&
				!strings.Contains(string(out), `$MOJO_OPS_LIBRARY names "build/libmojo_ops.so", a path relative`) {
				t.Errorf("%s: %s does not say what is wrong:\n%s", name, line, out)
			}
		}
	}
}
