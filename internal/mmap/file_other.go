//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package mmap

import "os"

// File reads the file: mapping is not portable.
func File(f *os.File, size int64) (b []byte, release func() error, err error) {
	return readWhole(f)
}
