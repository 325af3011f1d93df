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

// libraries has the names of the libraries, what they hold beside the CPU's kernels, and what brings them.
var libraries = map[Device]struct{ name, kernels, from string }{
	CPU:  {"mojo_ops", "", "pip install mojo-patch"},
	CUDA: {"mojo_ops_cuda", "CUDA kernels", "pip install 'mojo-patch[cuda]'"},
	NPU:  {"mojo_ops_cann", "kernels for CANN", "make cann"},
}

// LibraryName is the file name on this system of the library with the kernels for a device, which holds the CPU's too.
func (d Device) LibraryName() string {
	library := libraries[d].name
	switch runtime.GOOS {
	case "windows":
		return library + ".dll"
	case "darwin":
		return "lib" + library + ".dylib"
	}
	return "lib" + library + ".so"
}

// FindLibrary finds the library of CPU kernels. It looks at explicit (a file, or a folder that holds it), then at the
// environment variable MOJO_OPS_LIBRARY, then in the folder of the executable, ../lib of it, the Python packages it was
// installed with, and build/ of the working directory. A place that is named, by argument or variable, and holds no
// library is an error: it is not passed over.
func FindLibrary(explicit string) (string, error) { return CPU.FindLibrary(explicit) }

// FindLibrary finds the library with the kernels for the device in these places. A file that is named must have that
// library's own name, since others hold the CPU's kernels alone.
func (d Device) FindLibrary(explicit string) (string, error) {
	name := d.LibraryName()
	path, err := d.find(name, explicit)
	if with := libraries[d].kernels; err == nil && with != "" && filepath.Base(path) != name {
		return "", fmt.Errorf("%w: %s is named, which is not %s, the one with %s", ErrNoLibrary, path, name, with)
	}
	return path, err
}

func (d Device) find(name, explicit string) (string, error) {
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
		folders = append(folders, wheelFolders(filepath.Dir(filepath.Dir(exe)))...)
	}
	folders = append(folders, buildFolders()...)
	for _, f := range folders {
		path := filepath.Join(f, name)
		if isFile(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %s is neither in %s; %s, build it (see docs/kernels.md) or set %s",
		ErrNoLibrary, name, strings.Join(folders, " nor in "), libraries[d].from, LibraryVariable)
}

// wheelFolders lists the folders of the packages mojo_patch and mojo_patch_cuda that pip installed where it put a
// program into prefix/bin (on Windows prefix\Scripts): in an environment, for a user, or in a folder of one's own.
func wheelFolders(prefix string) []string {
	var folders []string
	for _, packages := range []string{"lib/python*/site-packages", "lib/python*/dist-packages", "Lib/site-packages",
		"site-packages", "."} {
		for _, name := range []string{"mojo_patch", "mojo_patch_cuda"} {
			found, _ := filepath.Glob(filepath.Join(prefix, filepath.FromSlash(packages), name))
			folders = append(folders, found...)
		}
	}
	return folders
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
