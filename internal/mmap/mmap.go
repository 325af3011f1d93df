// Package mmap maps files for reading, so that what is not looked at is not read.
package mmap

import (
	"fmt"
	"io"
	"os"
)

// Open maps the file at path, or reads it where it is no regular file (a pipe). The bytes are valid until release is
// called.
func Open(path string) (b []byte, release func() error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case info.IsDir():
		return nil, nil, fmt.Errorf("%s is a folder", path)
	case !info.Mode().IsRegular():
		return readWhole(f)
	}
	return File(f, info.Size())
}

func readWhole(f *os.File) (b []byte, release func() error, err error) {
	b, err = io.ReadAll(f)
	return b, func() error { return nil }, err
}
