//go:build !linux

package onnx

import (
	"errors"
	"os"
)

// shareRange shares nothing. macOS clones only whole files, to a name that does not exist yet; no Mac was at hand to
// try that on.
var shareRange = func(dst *os.File, to int64, src *os.File, from, n int64) error { return errors.ErrUnsupported }
