//go:build !linux

package onnx

import (
	"errors"
	"os"
)

// shareRange is unsupported. macOS clones only whole files, to a name that does not exist yet; this is untested.
var shareRange = func(dst *os.File, to int64, src *os.File, from, n int64) error { return errors.ErrUnsupported }
