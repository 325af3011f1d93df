package op

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/libpath"
)

// LibraryVariable is the environment variable that names the kernel library.
const LibraryVariable = "MOJO_OPS_LIBRARY"

// ErrNoLibrary is the error if the kernel library is not found. Use errors.Is.
var ErrNoLibrary = errors.New("kernel library not found")

// libraries has the names of the libraries, the kernels they have besides the CPU's, and the commands that build them.
var libraries = map[Device]struct{ name, kernels, build string }{
	CPU:  {"mojo_ops", "", "make"},
	CUDA: {"mojo_ops_cuda", "CUDA kernels", "make cuda"},
	NPU:  {"mojo_ops_cann", "kernels for CANN", "make cann"},
}

// LibraryName returns the file name, on this system, of the library with the kernels for a device. Every library also
// has CPU kernels.
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

// Holds reports whether the library at a path has a CPU kernel of the op. The CUDA library has CPU kernels only of ops
// with a CUDA kernel. In a session with CUDA, the node of another op would run on the CPU and copy all its inputs,
// while its body runs on the GPU.
func Holds(path string, o *Op) bool {
	return slices.Contains(o.Devices, CUDA) || filepath.Base(path) != CUDA.LibraryName()
}

// FindLibrary finds the library of CPU kernels. It looks at these places, in this order:
//
//  1. explicit, a file or a folder that holds it
//  2. the environment variable MOJO_OPS_LIBRARY, an absolute path of such a file or folder
//  3. the folder of the program, with links resolved
//  4. for a program in PREFIX/bin: PREFIX/lib, and the Python packages that pip installed under PREFIX
//
// If the argument or variable names a place without the library, FindLibrary returns an error and tries no other place.
// It never looks in the working directory, because whoever filled it would decide which code runs.
func FindLibrary(explicit string) (string, error) { return CPU.FindLibrary(explicit) }

// FindLibrary finds the library with the kernels for the device, as the function FindLibrary does. A named file
// must have the name of the device's library, because other libraries lack these kernels.
func (d Device) FindLibrary(explicit string) (string, error) {
	name := d.LibraryName()
	path, err := d.find(name, explicit)
	if with := libraries[d].kernels; err == nil && with != "" && filepath.Base(path) != name {
		return "", fmt.Errorf("%w: %s is not %s, the library with %s", ErrNoLibrary, path, name, with)
	}
	return path, err
}

func (d Device) find(name, explicit string) (string, error) {
	if explicit != "" {
		return libraryAt(explicit, name, "the given path")
	}
	v, err := libpath.Variable(LibraryVariable)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	if v != "" {
		return libraryAt(v, name, "$"+LibraryVariable)
	}
	var folders []string
	folder, prefix := libpath.Program()
	if folder != "" {
		folders = append(folders, folder)
	}
	if prefix != "" {
		folders = append(folders, filepath.Join(prefix, "lib"))
		folders = append(folders, wheelFolders(prefix)...)
	}
	for _, f := range folders {
		path := filepath.Join(f, name)
		if isFile(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %s is not in %s; build it with `%s` in a clone (docs/install.md), or set %s to its path",
		ErrNoLibrary, name, strings.Join(folders, " or "), libraries[d].build, LibraryVariable)
}

// wheelFolders lists the folders of the packages mojo_patch and mojo_patch_cuda that pip installed where it put a
// program into prefix/bin (on Windows prefix\Scripts): in an environment, for a user, or with --target.
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

func libraryAt(path, name, source string) (string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, name)
	}
	if !isFile(path) {
		return "", fmt.Errorf("%w: %s names %s, which is not a file", ErrNoLibrary, source, path)
	}
	return filepath.Abs(path)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
