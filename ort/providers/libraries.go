package providers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/libpath"
	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/ort/internal/places"
)

// LibraryVariable is the environment variable that names plugin libraries of execution providers or their
// folders: absolute paths, separated as in PATH.
const LibraryVariable = "MOJO_PROVIDER_LIBRARY"

// ErrUnavailable reports that an execution provider, or a device for it, is not available.
var ErrUnavailable = errors.New("not available")

// Library is a plugin: a shared library that adds an execution provider to any onnxruntime.
type Library struct {
	Path     string `json:"path"`
	Provider string `json:"provider"` // from its file name: "QNNExecutionProvider"
	Source   string `json:"source"`   // where it was found
}

// The sources of explicitly named libraries.
const (
	Given       = "given path"
	environment = "$" + LibraryVariable
)

// Named reports whether the library was named explicitly.
func (l Library) Named() bool {
	return l.Source == Given || l.Source == environment
}

// Brings reports whether the library's file name contains the provider.
func (l Library) Brings(full string) bool {
	base, _, _ := strings.Cut(full, ".") // a plugin may have several: "OpenVINOExecutionProvider.AUTO"
	return l.Provider != "" && Same(l.Provider, base)
}

// FindLibraries lists the plugin libraries of execution providers: those of the given paths and of
// $MOJO_PROVIDER_LIBRARY, each a file or a folder, then those beside the onnxruntime library, in the Python packages
// beside it, and in those of the Pythons that ort.Find searches. It recognizes file names
// (libonnxruntime_providers_NAME.so, libonnxruntime_ep_NAME.so) and loads no library. A given path without a plugin is
// an error.
func FindLibraries(onnxruntime string, given ...string) ([]Library, error) {
	var list []Library
	add := func(path, source string) {
		if !slices.ContainsFunc(list, func(l Library) bool { return places.SameFile(l.Path, path) }) {
			list = append(list, Library{Path: path, Provider: providerOfFile(path), Source: source})
		}
	}
	explicit := func(paths []string, source string) error {
		for _, path := range paths {
			found, err := pluginsAt(path)
			if err != nil {
				return fmt.Errorf("%s: %w", source, err)
			}
			for _, p := range found {
				add(p, source)
			}
		}
		return nil
	}
	if err := explicit(given, Given); err != nil {
		return nil, err
	}
	paths, err := libpath.Variables(LibraryVariable)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := explicit(paths, environment); err != nil {
		return nil, err
	}
	for _, place := range pluginPlaces(onnxruntime) {
		for _, pattern := range pluginPatterns {
			for _, path := range places.Matches(filepath.Join(place.Pattern, pattern)) {
				if providerOfFile(path) != "" {
					add(path, place.Source)
				}
			}
		}
	}
	return list, nil
}

// pluginPatterns are the file names of plugins, pluginExtension their extension.
var pluginPatterns, pluginExtension = func() ([]string, string) {
	prefix, extension := "lib", ".so"
	switch runtime.GOOS {
	case "windows":
		prefix, extension = "", ".dll"
	case "darwin":
		extension = ".dylib"
	}
	return []string{prefix + "onnxruntime_providers_*" + extension, prefix + "onnxruntime_ep_*" + extension}, extension
}()

// pluginsAt returns the plugin at path, or the plugins in the folder.
func pluginsAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: the provider library cannot be read: %w", ErrUnavailable, err)
	}
	full, err := filepath.Abs(path) // the dynamic linker searches its own path for a bare name
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if err := regular.Check(path); err != nil {
			return nil, fmt.Errorf("%w: the provider library: %w", ErrUnavailable, err)
		}
		return []string{full}, nil
	}
	var found []string
	for _, pattern := range pluginPatterns {
		for _, p := range places.Matches(filepath.Join(full, pattern)) {
			if providerOfFile(p) != "" {
				found = append(found, p)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: the folder %s does not contain %s", ErrUnavailable, path,
			strings.Join(pluginPatterns, " or "))
	}
	return found, nil
}

// pluginPlaces returns the folders with plugins: onnxruntime's own, and those of Python packages.
func pluginPlaces(onnxruntime string) []places.Place {
	var list []places.Place
	packages := func(source, folder string) {
		for _, below := range []string{"", "capi"} {
			list = append(list, places.Place{Source: source, Pattern: filepath.Join(folder, "onnxruntime*", below)})
		}
	}
	if onnxruntime != "" {
		folder := filepath.Dir(onnxruntime)
		list = append(list, places.Place{Source: "beside onnxruntime", Pattern: folder})
		if filepath.Base(folder) == "capi" {
			packages("Python packages beside onnxruntime", filepath.Dir(filepath.Dir(folder)))
		}
	}
	environments, pythons := places.Packages()
	for _, p := range append(environments, pythons...) {
		packages(p.Source, p.Pattern)
	}
	return list
}

// providerOfFile returns the provider in the file name of a plugin, or "".
func providerOfFile(path string) string {
	name := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(path), pluginExtension), "lib")
	for _, prefix := range []string{"onnxruntime_providers_", "onnxruntime_ep_"} {
		if short, ok := strings.CutPrefix(name, prefix); ok {
			short = strings.TrimSuffix(short, "_plugin")
			if short == "shared" || short == "" { // the library that providers share is not a provider
				return ""
			}
			return Full(short)
		}
	}
	return ""
}
