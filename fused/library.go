package fused

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// LibraryVariable is the environment variable that names the kernel library.
const LibraryVariable = "MOJO_OPS_LIBRARY"

// ErrNoLibrary says that the kernel library was not found; use errors.Is.
var ErrNoLibrary = errors.New("kernel library not found")

// LibraryName is the file name of the CPU kernels' library on this system.
func LibraryName() string { return fileName("mojo_ops") }

// CUDALibraryName is the file name of the CUDA kernels' library, which holds the CPU's too.
func CUDALibraryName() string { return fileName("mojo_ops_cuda") }

// CANNLibraryName is the file name of the library of kernels for onnxruntime's CANN provider, which holds the CPU's
// too.
func CANNLibraryName() string { return fileName("mojo_ops_cann") }

// fileName is what a shared library is called on this system.
func fileName(library string) string {
	switch runtime.GOOS {
	case "windows":
		return library + ".dll"
	case "darwin":
		return "lib" + library + ".dylib"
	}
	return "lib" + library + ".so"
}

// FindLibrary finds the library of CPU kernels. It looks at explicit (a file, or a folder that holds it), then at the
// environment variable MOJO_OPS_LIBRARY, then in the folder of the executable, ../lib of it, and build/ of the working
// directory. A place that is named, by argument or variable, and holds no library is an error: it is not passed over.
func FindLibrary(explicit string) (string, error) { return find(LibraryName(), explicit) }

// FindCUDALibrary finds the library of CUDA kernels in the same places. A file that is named must have the library's
// own name, since another one holds no CUDA kernels.
func FindCUDALibrary(explicit string) (string, error) {
	return findNamed(CUDALibraryName(), explicit, "CUDA kernels")
}

// FindCANNLibrary finds the library of kernels for onnxruntime's CANN provider, as FindCUDALibrary finds that for CUDA.
func FindCANNLibrary(explicit string) (string, error) {
	return findNamed(CANNLibraryName(), explicit, "kernels for CANN")
}

// findNamed is find for a library of more than the CPU's kernels, which must have its own name.
func findNamed(name, explicit, with string) (string, error) {
	path, err := find(name, explicit)
	if err == nil && filepath.Base(path) != name {
		return "", fmt.Errorf("%w: %s is named, which is not %s, the one with %s", ErrNoLibrary, path, name, with)
	}
	return path, err
}

func find(name, explicit string) (string, error) {
	if explicit != "" {
		return libraryAt(explicit, name, "the given path")
	}
	if v := os.Getenv(LibraryVariable); v != "" {
		return libraryAt(v, name, "$"+LibraryVariable)
	}
	var folders []string
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		folders = append(folders, filepath.Dir(exe), filepath.Join(filepath.Dir(exe), "..", "lib"))
	}
	folders = append(folders, buildFolders()...)
	for _, f := range folders {
		path := filepath.Join(f, name)
		if isFile(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %s is neither in %s; build it (see docs/kernels.md) or set %s",
		ErrNoLibrary, name, strings.Join(folders, " nor in "), LibraryVariable)
}

// buildFolders lists build/ of the working directory and, inside a Go module, of the folders above it up to its root:
// tests run in the folder of their package.
func buildFolders() []string {
	wd, err := os.Getwd()
	if err != nil {
		return nil
	}
	var folders []string
	for dir := wd; ; dir = filepath.Dir(dir) {
		folders = append(folders, filepath.Join(dir, "build"))
		if isFile(filepath.Join(dir, "go.mod")) {
			return folders
		}
		if filepath.Dir(dir) == dir {
			return folders[:1]
		}
	}
}

func libraryAt(path, name, source string) (string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, name)
	}
	if !isFile(path) {
		return "", fmt.Errorf("%w: %s names %s, which is no file", ErrNoLibrary, source, path)
	}
	return filepath.Abs(path)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
