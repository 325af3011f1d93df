package ort

/*
#cgo CFLAGS: -I${SRCDIR}/../fused/kernels/third_party/onnxruntime -O2 -Wall
#cgo !windows LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/internal/regular"
)

// errCannotLoad is the reason if this program cannot load any onnxruntime; here it can.
var errCannotLoad error

// api is a loaded onnxruntime.
type api struct {
	c       *C.OrtApi
	version string // "1.32.0"
	level   int    // the newest API level it offers
	path    string // the file it was loaded from
}

// loadAPI opens the library at path. It returns an error if the file is not onnxruntime, or is too old, and unloads it
// again.
func loadAPI(path string) (*api, error) {
	if filepath.Base(path) != path { // the linker resolves a bare name
		if err := regular.Check(path); err != nil {
			return nil, fmt.Errorf("cannot load %s: %w", path, err)
		}
	}
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	var handle unsafe.Pointer
	var base *C.OrtApiBase
	var file *C.char
	if err := take(C.mojo_load(cpath, &handle, &base, &file)); err != nil {
		return nil, fmt.Errorf("cannot load %s: %w", path, err)
	}
	a := &api{version: C.GoString(C.mojo_version(base)), path: C.GoString(file)}
	C.free(unsafe.Pointer(file))
	var err error
	if a.level, err = apiLevel(a.version); err == nil && a.level < APILevel {
		err = &tooOldError{a.version}
	}
	if err == nil {
		if a.c = C.mojo_api(base, APILevel); a.c == nil {
			err = fmt.Errorf("onnxruntime %s does not offer C API version %d", a.version, APILevel)
		}
	}
	if err != nil {
		C.mojo_unload(handle)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// apiLevel returns the newest C API level of an onnxruntime version: its minor version number.
func apiLevel(version string) (int, error) {
	_, minor, _ := strings.Cut(version, ".")
	minor, _, _ = strings.Cut(minor, ".")
	level, err := strconv.Atoi(minor)
	if err != nil {
		return 0, fmt.Errorf("onnxruntime reports the invalid version %q", version)
	}
	return level, nil
}

// providers lists the execution providers that the library was built with.
func (a *api) providers() ([]string, error) {
	var names *C.char
	if err := take(C.mojo_providers(a.c, &names)); err != nil {
		return nil, fmt.Errorf("cannot list execution providers: %w", err)
	}
	defer C.free(unsafe.Pointer(names))
	return strings.Split(C.GoString(names), "\n"), nil
}

// take converts a message of the shim to an error and frees it.
func take(message *C.char) error {
	if message == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(message))
	return errors.New(strings.TrimSpace(C.GoString(message)))
}
