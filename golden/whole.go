package golden

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// writeWhole writes a file beside path and renames it to path once it is complete.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if err != nil && !closed {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err = write(w); err != nil {
		return err
	}
	if err = w.Flush(); err != nil {
		return err
	}
	mode := fs.FileMode(0o644) // CreateTemp's 0600 is for secrets
	if old, statErr := os.Stat(path); statErr == nil {
		mode = old.Mode().Perm()
	}
	if err = f.Chmod(mode); err != nil {
		return err
	}
	closed = true
	if err := f.Close(); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if renameErr := os.Rename(f.Name(), path); renameErr != nil {
		return errors.Join(renameErr, os.Remove(f.Name()))
	}
	return nil
}
