// Package places lists the places of shared libraries on this machine: of onnxruntime, and of Python packages.
package places

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/libpath"
)

// Place is a file pattern to search. The dynamic linker resolves a pattern without a folder. Without a pattern, Source
// describes a place that is skipped.
type Place struct{ Source, Pattern string }

// LibraryPattern is the pattern of the file names of onnxruntime.
var LibraryPattern = func() string {
	switch runtime.GOOS {
	case "windows":
		return "onnxruntime.dll"
	case "darwin":
		return "libonnxruntime*.dylib"
	}
	return "libonnxruntime.so*"
}()

// OfRuntime returns the places to search for onnxruntime, in order. version is the version that the cache folder holds.
func OfRuntime(version string) []Place {
	environments, pythons := Packages()
	list := packaged(environments)
	if cache, err := os.UserCacheDir(); err == nil && filepath.IsAbs(cache) {
		for _, v := range []string{version, "*"} {
			list = append(list, Place{"cache folder",
				filepath.Join(cache, "mojo-patch", "onnxruntime-"+v, LibraryPattern)})
		}
	}
	return append(append(list, packaged(pythons)...), linkerPlaces(runtime.GOOS)...)
}

// packaged returns the places of the package onnxruntime in package folders.
func packaged(packages []Place) (list []Place) {
	for _, p := range packages {
		list = append(list, Place{p.Source, filepath.Join(p.Pattern, "onnxruntime", "capi", LibraryPattern)})
	}
	return list
}

// linkerPlaces returns the places of the system's dynamic linker, except those relative to the working directory. If
// the linker would search those too, it is not used: its folders are listed instead.
func linkerPlaces(system string) []Place {
	const source = "system linker path"
	var list []Place
	in := func(source, name string, folders []string) {
		for _, folder := range folders {
			list = append(list, Place{source, filepath.Join(folder, name)})
		}
	}
	switch system {
	case "windows":
		folders, _ := libpath.Folders("PATH")
		in("PATH", "onnxruntime.dll", folders)
		return append(list, Place{source, "onnxruntime.dll"}) // shim: only of the system's own folders
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
			list = append(list, Place{source, name})
		}
	}
	if relative {
		list = append(list, Place{Source: source + ": not searched, because $" + variable + " has an entry that is " +
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

// Packages returns the folders of Python packages: in the environment that pip put this program into and the
// active one, and those of the Pythons on PATH.
func Packages() (environments, pythons []Place) {
	var list []Place
	seen := map[string]bool{}
	python := func(source, prefix string) {
		if prefix == "" || seen[prefix] {
			return
		}
		seen[prefix] = true
		for _, packages := range sitePackages {
			list = append(list, Place{source, filepath.Join(prefix, packages)})
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

// Matches lists the files of a pattern in reverse lexical order, so that a newer version precedes an older one, and a
// full version a bare link.
func Matches(pattern string) []string {
	if !strings.ContainsRune(pattern, filepath.Separator) {
		return []string{pattern}
	}
	found, _ := filepath.Glob(pattern) // its only error is a bad pattern
	slices.Reverse(found)
	return found
}

// SameFile reports whether two paths name one file.
func SameFile(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
