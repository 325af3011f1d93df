//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package mmap

import "os"

// File reads the file: there is no portable way to map it.
func File(f *os.File, size int64) (b []byte, release func() error, err error) {
	return readWhole(f)
}
