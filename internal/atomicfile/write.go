package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// WriteFile writes a file beside path and renames it to path once it is complete. An older file keeps its mode. What is
// no file, such as a device, is not replaced.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	old, statErr := os.Stat(path)
	if statErr == nil && !old.Mode().IsRegular() {
		return fmt.Errorf("%s exists and is no regular file: choose another name", path)
	}
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer func() {
		f.Close() // does nothing when it was closed already
		err = errors.Join(err, Remove(f.Name()))
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if statErr == nil {
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	return Commit(func() error { return os.Rename(f.Name(), path) })
}
