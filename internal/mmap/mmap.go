// Package mmap maps files for reading, so that only accessed parts are read.
package mmap

import (
	"io"
	"os"

	"github.com/mojo-patch/mojo-patch/internal/regular"
)

// Open maps the regular file at path. The bytes are valid until release is called.
func Open(path string) (b []byte, release func() error, err error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return File(f, size)
}

func readWhole(f *os.File) (b []byte, release func() error, err error) {
	b, err = io.ReadAll(f)
	return b, func() error { return nil }, err
}
