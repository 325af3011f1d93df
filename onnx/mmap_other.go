//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package onnx

import "os"

// mapFile reads the file: there is no portable way to map it.
func mapFile(f *os.File, size int64) (b []byte, release func() error, err error) {
	return readWhole(f)
}
