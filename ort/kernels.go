package ort

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// KernelsVariable is the environment variable that names the library with the fused kernels.
const KernelsVariable = "MOJO_OPS_LIBRARY"

// ErrNoKernels says that the library with the fused kernels was not found.
var ErrNoKernels = errors.New("no kernel library found")

// KernelsName is the file name of the library with the fused CPU kernels on this system.
var KernelsName = func() string {
	if runtime.GOOS == "darwin" {
		return "libmojo_ops.dylib"
	}
	return "libmojo_ops.so"
}()

// FindKernels looks for the library with the fused kernels: at the explicit path if that is not empty, else at
// $MOJO_OPS_LIBRARY, else beside the executable and in ../lib from there, else in build/ of the working directory or
// of a folder above it, up to the root of the module. It gives an absolute path; the error wraps ErrNoKernels and lists
// the places looked at.
func FindKernels(explicit string) (string, error) {
	if explicit != "" {
		return kernelsAt(explicit, "given path")
	}
	if p := os.Getenv(KernelsVariable); p != "" {
		return kernelsAt(p, "$"+KernelsVariable)
	}
	var looked []string
	for _, dir := range kernelFolders() {
		p := filepath.Join(dir, KernelsName)
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			return filepath.Abs(p)
		}
		looked = append(looked, p)
	}
	return "", fmt.Errorf("%w; build it with make, or set %s to its path. Looked at:\n  %s",
		ErrNoKernels, KernelsVariable, strings.Join(looked, "\n  "))
}

func kernelsAt(path, source string) (string, error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, KernelsName)
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrNoKernels, source, err)
	}
	return filepath.Abs(path)
}

func kernelFolders() []string {
	var dirs []string
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dirs = append(dirs, filepath.Dir(exe), filepath.Join(filepath.Dir(exe), "..", "lib"))
	}
	dir, err := os.Getwd()
	for err == nil {
		dirs = append(dirs, filepath.Join(dir, "build"))
		_, noModule := os.Stat(filepath.Join(dir, "go.mod"))
		if parent := filepath.Dir(dir); noModule != nil && parent != dir {
			dir = parent
			continue
		}
		break
	}
	return dirs
}
