//go:build cgo

package ort

import (
	"fmt"
	"os"
	"sync"

	"github.com/yalue/onnxruntime_go"

	"github.com/mojo-patch/mojo-patch/ort/internal/places"
)

// environment is the only onnxruntime of the process.
var environment struct {
	sync.Mutex
	api *api
}

// load initializes onnxruntime from the library at path, or from the one that Find finds if path is empty. The first
// call decides. A later call with another file is an error, because a process can have only one onnxruntime.
func load(path string) (*api, error) {
	environment.Lock()
	defer environment.Unlock()
	if a := environment.api; a != nil {
		if path != "" && !places.SameFile(path, a.path) && !holds(path, a.path) {
			return nil, fmt.Errorf("cannot load onnxruntime from %s: this process runs onnxruntime %s from %s already",
				path, a.version, a.path)
		}
		return a, nil
	}
	lib, err := Find(path)
	if err != nil {
		return nil, err
	}
	a, err := loadAPI(lib.Path)
	if err != nil {
		return nil, err
	}
	onnxruntime_go.SetSharedLibraryPath(a.path)
	if err := onnxruntime_go.InitializeEnvironment(); err != nil {
		return nil, fmt.Errorf("cannot start onnxruntime %s from %s: %w", a.version, a.path, err)
	}
	environment.api = a
	return a, nil
}

// holds reports whether path is a folder in which Find finds the library.
func holds(path, library string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	found, err := Find(path)
	return err == nil && places.SameFile(found.Path, library)
}

// Load loads onnxruntime as the first session does, and returns the library and the execution providers that it was
// built with. For an empty path it searches; see Find. If only the providers cannot be listed, it returns the library
// and an error.
func Load(path string) (Library, []string, error) {
	a, err := load(path)
	if err != nil {
		return Library{}, nil, err
	}
	l := a.library("loaded")
	if found, err := Find(path); err == nil && places.SameFile(found.Path, a.path) {
		l = found
	}
	providers, err := a.providers()
	return l, providers, err
}
