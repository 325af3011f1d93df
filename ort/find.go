package ort

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// LibraryVariable is the environment variable that names the onnxruntime library to use.
const LibraryVariable = "ONNXRUNTIME_LIB"

// BundledVersion is the onnxruntime that tools/fetch-onnxruntime.sh fetches into the cache folder if it can; it has
// an older one as its second source.
const BundledVersion = "1.31.1"

// APILevel is the version of onnxruntime's C API that this package needs: the minor version of the oldest onnxruntime
// it runs with (1.29). It is the level onnxruntime_go v1.36.0 asks for.
const APILevel = 29

// ErrNoLibrary says that no usable onnxruntime was found.
var ErrNoLibrary = errors.New("no onnxruntime library found")

// ErrClosed is returned by the methods of a session, a binding or a value after Close.
var ErrClosed = errors.New("it is closed")

// Library is an onnxruntime on this machine.
type Library struct {
	Path    string // the shared library
	Version string // as the library says, for example "1.31.1"
	API     int    // newest level of the C API it offers
	Source  string // where it was found, for example "cache folder"
}

// Find looks for the onnxruntime shared library and loads it to learn its version. An explicit path, if not empty, is
// the only place looked at; likewise $ONNXRUNTIME_LIB (either may name the file or its folder). Otherwise the first
// that is new enough counts: the cache folder that tools/fetch-onnxruntime.sh fills (BundledVersion first, then any
// other), the Python environment that holds the program, the active one, the Pythons on PATH, and the system's linker
// path. The error wraps ErrNoLibrary and lists every place looked at.
func Find(explicit string) (Library, error) {
	if errCannotLoad != nil {
		return Library{}, errCannotLoad
	}
	if explicit != "" {
		return findGiven(explicit, "given path")
	}
	if p := os.Getenv(LibraryVariable); p != "" {
		return findGiven(p, "$"+LibraryVariable)
	}
	var looked []string
	for _, place := range places() {
		found := matches(place.pattern)
		if len(found) == 0 {
			looked = append(looked, fmt.Sprintf("%s: %s", place.source, place.pattern))
		}
		for _, path := range found {
			a, err := loadAPI(path)
			if err == nil {
				return a.library(place.source), nil
			}
			looked = append(looked, fmt.Sprintf("%s: %v", place.source, err))
		}
	}
	return Library{}, fmt.Errorf("%w; pip install onnxruntime, run tools/fetch-onnxruntime.sh in a clone, or set %s "+
		"to its path. Looked at:\n  %s", ErrNoLibrary, LibraryVariable, strings.Join(looked, "\n  "))
}

func findGiven(path, source string) (Library, error) {
	file := path
	if info, err := os.Stat(path); err != nil {
		return Library{}, fmt.Errorf("%w: %s: %w", ErrNoLibrary, source, err)
	} else if info.IsDir() {
		found := matches(filepath.Join(path, libraryPattern))
		if len(found) == 0 {
			return Library{}, fmt.Errorf("%w: %s: %s holds no %s", ErrNoLibrary, source, path, libraryPattern)
		}
		file = found[0]
	}
	if !strings.ContainsRune(file, filepath.Separator) {
		file = "." + string(filepath.Separator) + file // dlopen would search the linker's path for a bare name
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

// place is a file pattern to look at. A pattern without a folder is left to the dynamic linker.
type place struct{ source, pattern string }

var libraryPattern, linkerNames = func() (string, []string) {
	switch runtime.GOOS {
	case "windows":
		return "onnxruntime.dll", []string{"onnxruntime.dll"}
	case "darwin":
		return "libonnxruntime*.dylib", []string{"libonnxruntime.dylib"}
	}
	return "libonnxruntime.so*", []string{"libonnxruntime.so", "libonnxruntime.so.1"}
}()

func places() []place {
	var list []place
	if cache, err := os.UserCacheDir(); err == nil {
		for _, version := range []string{BundledVersion, "*"} {
			list = append(list, place{"cache folder",
				filepath.Join(cache, "mojo-patch", "onnxruntime-"+version, libraryPattern)})
		}
	}
	for _, p := range pythonPackages() {
		list = append(list, place{p.source, filepath.Join(p.pattern, "onnxruntime", "capi", libraryPattern)})
	}
	for _, name := range linkerNames {
		list = append(list, place{"system linker path", name})
	}
	return list
}

// sitePackages are the folders of a Python's packages, seen from its prefix.
var sitePackages = func() []string {
	if runtime.GOOS == "windows" {
		return []string{filepath.Join("Lib", "site-packages")}
	}
	lib := filepath.Join("lib", "python3*")
	return []string{filepath.Join(lib, "site-packages"), filepath.Join(lib, "dist-packages")}
}()

// pythonPackages are the folders where Python packages lie: in the environment that pip put this program into, in the
// active one and of the Pythons on PATH.
func pythonPackages() []place {
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
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			python("the program's environment", filepath.Dir(filepath.Dir(real)))
		}
	}
	python("virtual environment ($VIRTUAL_ENV)", os.Getenv("VIRTUAL_ENV"))
	python("conda environment ($CONDA_PREFIX)", os.Getenv("CONDA_PREFIX"))
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		for _, name := range []string{"python3", "python", "python.exe"} {
			p := filepath.Join(dir, name)
			if _, err := os.Stat(p); err != nil {
				continue
			}
			python("python on PATH", filepath.Dir(dir))
			if runtime.GOOS == "windows" {
				python("python on PATH", dir) // python.exe lies in the prefix itself, except in environments
			}
			if real, err := filepath.EvalSymlinks(p); err == nil {
				python("python on PATH", filepath.Dir(filepath.Dir(real)))
			}
		}
	}
	if home, err := os.UserHomeDir(); err == nil && runtime.GOOS != "windows" {
		python("python user packages", filepath.Join(home, ".local"))
	}
	return list
}

// matches lists the files of a pattern, last in lexical order first, so that a newer version stands before an older,
// and a full one before a bare link.
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
