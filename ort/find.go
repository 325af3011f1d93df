package ort

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/libpath"
	"github.com/mojo-patch/mojo-patch/ort/internal/places"
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
	for _, place := range places.OfRuntime(BundledVersion) {
		if place.Pattern == "" {
			looked = append(looked, place.Source)
			continue
		}
		found := places.Matches(place.Pattern)
		if len(found) == 0 {
			looked = append(looked, fmt.Sprintf("%s: %s", place.Source, place.Pattern))
		}
		for _, path := range found {
			a, err := loadAPI(path)
			if err == nil {
				lib := a.library(place.Source)
				if old != nil {
					lib.Older = old.Error()
				}
				return lib, nil
			}
			looked = append(looked, fmt.Sprintf("%s: %v", place.Source, err))
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
		found := places.Matches(filepath.Join(path, places.LibraryPattern))
		if len(found) == 0 {
			return Library{}, fmt.Errorf("%w: %s: %s does not contain %s", ErrNoLibrary, source, path,
				places.LibraryPattern)
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
