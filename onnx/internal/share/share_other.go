//go:build !linux

// Package share lets files share their bytes, where the file system can.
package share

import (
	"errors"
	"os"
)

// Range is unsupported. macOS clones only whole files, to a name that does not exist yet; this is untested.
var Range = func(dst *os.File, to int64, src *os.File, from, n int64) error { return errors.ErrUnsupported }
