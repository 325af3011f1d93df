// Package regular opens only regular files: not named pipes, which block readers forever, nor devices, sockets or
// folders. Whole files are read up to a limit.
package regular

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Open opens a regular file for reading, and returns its size. It does not wait for a writer of a named pipe. It
// follows links. It returns an error for anything that is not a regular file.
func Open(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		// A socket cannot be opened: name the kind of file.
		if info, statErr := os.Stat(path); statErr == nil && !info.Mode().IsRegular() {
			return nil, 0, refuse(path, info.Mode())
		}
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refuse(path, info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// Check returns Open's error for a path without opening it, for files that other code opens.
func Check(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = refuse(path, info.Mode())
	}
	return err
}

// ReadFile reads a regular file of at most most bytes, and returns an error if it is larger.
func ReadFile(path string, most int64) ([]byte, error) {
	f, size, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > most {
		return nil, TooLong(path, most)
	}
	b := make([]byte, 0, size+1)
	// It may grow while it is read, and system files, such as those in /proc, have no size.
	for int64(len(b)) <= most {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := f.Read(b[len(b):min(int64(cap(b)), most+1)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, TooLong(path, most)
}

// TooLong returns the error about a file of more than most bytes.
func TooLong(path string, most int64) error {
	text := fmt.Sprint(most, " bytes")
	if most >= 1<<20 && most%(1<<20) == 0 {
		text = fmt.Sprint(most>>20, " MiB")
	}
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has more than the %s that are read", text)}
}

func refuse(path string, mode fs.FileMode) error {
	kind := "not a regular file"
	switch {
	case mode.IsDir():
		return fmt.Errorf("%s is a folder", path)
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return fmt.Errorf("%s is %s: only regular files are read", path, kind)
}
