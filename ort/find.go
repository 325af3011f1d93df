package ort

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

// LibraryVariable is the environment variable that names the onnxruntime library to use.
const LibraryVariable = "ONNXRUNTIME_LIB"

// BundledVersion is the onnxruntime that tools/fetch-onnxruntime.sh fetches into the cache folder if it can. Its second
// source has an older one.
const BundledVersion = "1.32.0"

// APILevel is the version of onnxruntime's C API that this package needs: the minor version of the oldest supported
// onnxruntime (1.29). It is the level that onnxruntime_go v1.36.0 requests.
const APILevel = 29

// ErrNoLibrary reports that no usable onnxruntime was found.
var ErrNoLibrary = errors.New("no onnxruntime library found")

// ErrClosed is returned by the methods of a session, a binding or a value after Close.
var ErrClosed = errors.New("it is closed")

// tooOldError reports that a library does not offer the C API that this package needs.
type tooOldError struct{ version string }

func (e *tooOldError) Error() string {
	return fmt.Sprintf("onnxruntime %s is too old: 1.%d or newer is needed", e.version, APILevel)
}

// Library is an onnxruntime on this machine.
type Library struct {
	Path    string // the shared library
	Version string // the library's own version, for example "1.32.0"
	API     int    // newest level of the C API it offers
	Source  string // where it was found, for example "cache folder"
	Older   string // a library in an earlier place that is too old, with its version, or ""
}

// Find looks for the onnxruntime shared library and loads it to learn its version. It searches these places in this
// order:
//
//  1. explicit, a file or its folder
//  2. $ONNXRUNTIME_LIB, an absolute path of one of both
//  3. the Python environment that holds the program, and the active ones ($VIRTUAL_ENV, $CONDA_PREFIX)
//  4. the cache folder that tools/fetch-onnxruntime.sh fills: BundledVersion first, then any other
//  5. the environments of the Pythons on PATH, and the user's packages
//  6. the system's linker path
//
// A place named by argument or variable is the only place searched. Otherwise the first library that is new enough
// wins. Relative paths are errors in this program's environment variables, and are skipped in variables of other
// programs, including the linker: the working directory never decides which library is loaded. The error wraps
// ErrNoLibrary, names a library that is too old first, and lists every place searched.
func Find(explicit string) (Library, error) {
	if errCannotLoad != nil {
		return Library{}, errCannotLoad
	}
	if explicit != "" {
		return findGiven(explicit, "given path")
	}
	variable, err := libpath.Variable(LibraryVariable)
	if err != nil {
		return Library{}, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	if variable != "" {
		return findGiven(variable, "$"+LibraryVariable)
	}
	var looked []string
	var old *tooOldError
	for _, place := range places() {
		if place.pattern == "" {
			looked = append(looked, place.source)
			continue
		}
		found := matches(place.pattern)
		if len(found) == 0 {
			looked = append(looked, fmt.Sprintf("%s: %s", place.source, place.pattern))
		}
		for _, path := range found {
			a, err := loadAPI(path)
			if err == nil {
				lib := a.library(place.source)
				if old != nil {
					lib.Older = old.Error()
				}
				return lib, nil
			}
			looked = append(looked, fmt.Sprintf("%s: %v", place.source, err))
			if old == nil {
				errors.As(err, &old)
			}
		}
	}
	what := "pip install onnxruntime"
	if old != nil {
		what = fmt.Sprintf("%v; pip install -U onnxruntime", old)
	}
	return Library{}, fmt.Errorf("%w; %s, run tools/fetch-onnxruntime.sh in a clone, or set %s to its path. Looked "+
		"at:\n  %s", ErrNoLibrary, what, LibraryVariable, strings.Join(looked, "\n  "))
}

func findGiven(path, source string) (Library, error) {
	file := path
	if info, err := os.Stat(path); err != nil {
		return Library{}, fmt.Errorf("%w: %s: %w", ErrNoLibrary, source, err)
	} else if info.IsDir() {
		found := matches(filepath.Join(path, libraryPattern))
		if len(found) == 0 {
			return Library{}, fmt.Errorf("%w: %s: %s does not contain %s", ErrNoLibrary, source, path, libraryPattern)
		}
		file = found[0]
	}
	file, err := filepath.Abs(file) // dlopen would search the linker's path for a bare name
	if err != nil {
		return Library{}, fmt.Errorf("%w: %s: %w", ErrNoLibrary, source, err)
	}
	a, err := loadAPI(file)
	if err != nil {
		return Library{}, fmt.Errorf("%w: %s: %w", ErrNoLibrary, source, err)
	}
	return a.library(source), nil
}

func (a *api) library(source string) Library {
	return Library{Path: a.path, Version: a.version, API: a.level, Source: source}
}

// place is a file pattern to search. The dynamic linker resolves a pattern without a folder. Without a pattern, source
// describes a place that is skipped.
type place struct{ source, pattern string }

var libraryPattern = func() string {
	switch runtime.GOOS {
	case "windows":
		return "onnxruntime.dll"
	case "darwin":
		return "libonnxruntime*.dylib"
	}
	return "libonnxruntime.so*"
}()

func places() []place {
	environments, pythons := pythonPackages()
	list := packaged(environments)
	if cache, err := os.UserCacheDir(); err == nil && filepath.IsAbs(cache) {
		for _, version := range []string{BundledVersion, "*"} {
			list = append(list, place{"cache folder",
				filepath.Join(cache, "mojo-patch", "onnxruntime-"+version, libraryPattern)})
		}
	}
	return append(append(list, packaged(pythons)...), linkerPlaces(runtime.GOOS)...)
}

// packaged returns the places of the package onnxruntime in package folders.
func packaged(packages []place) (list []place) {
	for _, p := range packages {
		list = append(list, place{p.source, filepath.Join(p.pattern, "onnxruntime", "capi", libraryPattern)})
	}
	return list
}

// linkerPlaces returns the places of the system's dynamic linker, except those relative to the working directory. If
// the linker would search those too, it is not used: its folders are listed instead.
func linkerPlaces(system string) []place {
	const source = "system linker path"
	var list []place
	in := func(source, name string, folders []string) {
		for _, folder := range folders {
			list = append(list, place{source, filepath.Join(folder, name)})
		}
	}
	switch system {
	case "windows":
		folders, _ := libpath.Folders("PATH")
		in("PATH", "onnxruntime.dll", folders)
		return append(list, place{source, "onnxruntime.dll"}) // shim: only of the system's own folders
	case "darwin": // dlopen looks for a bare name in the working directory, too
		for _, variable := range []string{"DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"} {
			folders, _ := libpath.Folders(variable)
			in("$"+variable, "libonnxruntime.dylib", folders)
		}
		in(source, "libonnxruntime.dylib", []string{"/usr/local/lib", "/opt/homebrew/lib", "/usr/lib"})
		return list
	}
	names := []string{"libonnxruntime.so", "libonnxruntime.so.1"}
	const variable = "LD_LIBRARY_PATH"
	folders, relative := libpath.Folders(variable)
	for _, name := range names {
		if relative {
			in("$"+variable, name, folders)
		} else {
			list = append(list, place{source, name})
		}
	}
	if relative {
		list = append(list, place{source: source + ": not searched, because $" + variable + " has an entry that is " +
			"empty or relative and means the working directory: remove it"})
	}
	return list
}

// sitePackages are the folders of a Python's packages, relative to its prefix.
var sitePackages = func() []string {
	if runtime.GOOS == "windows" {
		return []string{filepath.Join("Lib", "site-packages")}
	}
	lib := filepath.Join("lib", "python3*")
	return []string{filepath.Join(lib, "site-packages"), filepath.Join(lib, "dist-packages")}
}()

// pythonPackages returns the folders of Python packages: in the environment that pip put this program into and the
// active one, and those of the Pythons on PATH.
func pythonPackages() (environments, pythons []place) {
	var list []place
	seen := map[string]bool{}
	python := func(source, prefix string) {
		if prefix == "" || seen[prefix] {
			return
		}
		seen[prefix] = true
		for _, packages := range sitePackages {
			list = append(list, place{source, filepath.Join(prefix, packages)})
		}
	}
	_, prefix := libpath.Program()
	python("the program's environment", prefix)
	python("virtual environment ($VIRTUAL_ENV)", libpath.Folder("VIRTUAL_ENV"))
	python("conda environment ($CONDA_PREFIX)", libpath.Folder("CONDA_PREFIX"))
	environments, list = list, nil
	folders, _ := libpath.Folders("PATH")
	for _, dir := range folders {
		for _, name := range []string{"python3", "python", "python.exe"} {
			p := filepath.Join(dir, name)
			if _, err := os.Stat(p); err != nil {
				continue
			}
			python("python on PATH", libpath.Prefix(dir))
			if runtime.GOOS == "windows" {
				python("python on PATH", dir) // python.exe is in the prefix itself, except in environments
			}
			if real, err := filepath.EvalSymlinks(p); err == nil {
				python("python on PATH", libpath.Prefix(filepath.Dir(real)))
			}
		}
	}
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) && runtime.GOOS != "windows" {
		python("python user packages", filepath.Join(home, ".local"))
	}
	return environments, list
}

// matches lists the files of a pattern in reverse lexical order, so that a newer version precedes an older one, and a
// full version a bare link.
func matches(pattern string) []string {
	if !strings.ContainsRune(pattern, filepath.Separator) {
		return []string{pattern}
	}
	found, _ := filepath.Glob(pattern) // its only error is a bad pattern
	slices.Reverse(found)
	return found
}

func sameFile(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
