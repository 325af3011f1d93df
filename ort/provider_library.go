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
	"github.com/mojo-patch/mojo-patch/internal/regular"
)

// ProviderLibraryVariable is the environment variable that names plugin libraries of execution providers or their
// folders: absolute paths, separated as in PATH.
const ProviderLibraryVariable = "MOJO_PROVIDER_LIBRARY"

// ErrNoProvider reports that an execution provider, or a device for it, is not available.
var ErrNoProvider = errors.New("not available")

// ProviderLibrary is a plugin: a shared library that adds an execution provider to any onnxruntime.
type ProviderLibrary struct {
	Path     string `json:"path"`
	Provider string `json:"provider"` // from its file name: "QNNExecutionProvider"
	Source   string `json:"source"`   // where it was found
}

// The sources of explicitly named libraries.
const (
	givenLibrary       = "given path"
	environmentLibrary = "$" + ProviderLibraryVariable
)

// named reports whether the library was named explicitly.
func (l ProviderLibrary) named() bool {
	return l.Source == givenLibrary || l.Source == environmentLibrary
}

// brings reports whether the library's file name contains the provider.
func (l ProviderLibrary) brings(full string) bool {
	base, _, _ := strings.Cut(full, ".") // a plugin may have several: "OpenVINOExecutionProvider.AUTO"
	return l.Provider != "" && SameProvider(l.Provider, base)
}

// FindProviderLibraries lists the plugin libraries of execution providers: those of the given paths and of
// $MOJO_PROVIDER_LIBRARY, each a file or a folder, then those beside the onnxruntime library, in the Python packages
// beside it, and in those of the Pythons that Find searches. It recognizes file names
// (libonnxruntime_providers_NAME.so, libonnxruntime_ep_NAME.so) and loads no library. A given path without a plugin is
// an error.
func FindProviderLibraries(onnxruntime string, given ...string) ([]ProviderLibrary, error) {
	var list []ProviderLibrary
	add := func(path, source string) {
		if !slices.ContainsFunc(list, func(l ProviderLibrary) bool { return sameFile(l.Path, path) }) {
			list = append(list, ProviderLibrary{Path: path, Provider: providerOfFile(path), Source: source})
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
	if err := explicit(given, givenLibrary); err != nil {
		return nil, err
	}
	paths, err := libpath.Variables(ProviderLibraryVariable)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoProvider, err)
	}
	if err := explicit(paths, environmentLibrary); err != nil {
		return nil, err
	}
	for _, place := range pluginPlaces(onnxruntime) {
		for _, pattern := range pluginPatterns {
			for _, path := range matches(filepath.Join(place.pattern, pattern)) {
				if providerOfFile(path) != "" {
					add(path, place.source)
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
		return nil, fmt.Errorf("%w: the provider library cannot be read: %w", ErrNoProvider, err)
	}
	full, err := filepath.Abs(path) // the dynamic linker searches its own path for a bare name
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if err := regular.Check(path); err != nil {
			return nil, fmt.Errorf("%w: the provider library: %w", ErrNoProvider, err)
		}
		return []string{full}, nil
	}
	var found []string
	for _, pattern := range pluginPatterns {
		for _, p := range matches(filepath.Join(full, pattern)) {
			if providerOfFile(p) != "" {
				found = append(found, p)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: the folder %s does not contain %s", ErrNoProvider, path,
			strings.Join(pluginPatterns, " or "))
	}
	return found, nil
}

// pluginPlaces returns the folders with plugins: onnxruntime's own, and those of Python packages.
func pluginPlaces(onnxruntime string) []place {
	var list []place
	packages := func(source, folder string) {
		for _, below := range []string{"", "capi"} {
			list = append(list, place{source, filepath.Join(folder, "onnxruntime*", below)})
		}
	}
	if onnxruntime != "" {
		folder := filepath.Dir(onnxruntime)
		list = append(list, place{"beside onnxruntime", folder})
		if filepath.Base(folder) == "capi" {
			packages("Python packages beside onnxruntime", filepath.Dir(filepath.Dir(folder)))
		}
	}
	environments, pythons := pythonPackages()
	for _, p := range append(environments, pythons...) {
		packages(p.source, p.pattern)
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
			return FullProvider(short)
		}
	}
	return ""
}
