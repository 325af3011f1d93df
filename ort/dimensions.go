package ort

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"unsafe"

	"github.com/yalue/onnxruntime_go"
)

// setDimensions sets the sizes of the named dimensions, for which onnxruntime_go has no call.
func (c *config) setDimensions(o *onnxruntime_go.SessionOptions) error {
	if len(c.dimensions) == 0 {
		return nil
	}
	a, err := load(c.library)
	if err != nil {
		return err
	}
	raw, err := rawOptions(o)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.dimensions)) {
		cname := C.CString(name)
		err := take(C.mojo_dimension(a.c, raw, cname, C.int64_t(c.dimensions[name])))
		C.free(unsafe.Pointer(cname))
		if err != nil {
			return fmt.Errorf("dimension %q: %w", name, err)
		}
	}
	return nil
}

// rawOptions gets the C options from onnxruntime_go's, which does not export them.
func rawOptions(o *onnxruntime_go.SessionOptions) (*C.OrtSessionOptions, error) {
	p, err := dig(o, "session options", "o")
	return (*C.OrtSessionOptions)(p), err
}

// dig follows unexported fields of onnxruntime_go to a pointer of onnxruntime.
func dig(from any, what string, fields ...string) (unsafe.Pointer, error) {
	v := reflect.ValueOf(from)
	for _, name := range fields {
		if v = v.Elem().FieldByName(name); v.Kind() != reflect.Pointer || v.IsNil() {
			return nil, fmt.Errorf("this version of onnxruntime_go stores its %s elsewhere: build with v1.36.0", what)
		}
	}
	return v.UnsafePointer(), nil
}
