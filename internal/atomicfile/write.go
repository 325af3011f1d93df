package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// WriteFile writes a file beside path and renames it to path when complete. An older file keeps its mode. Anything that
// is not a regular file, such as a device, is an error.
func WriteFile(path string, write func(io.Writer) error) error {
	p, err := Prepare(path, write)
	if err != nil {
		return err
	}
	return errors.Join(Commit(p.Rename), p.Close())
}

// Prepared is a complete file beside its place. Rename moves it there; Close without Rename removes it. Files that are
// renamed within one Commit appear together, even if a signal arrives meanwhile.
type Prepared struct{ aside, path string }

// Prepare writes a file beside path; see WriteFile.
func Prepare(path string, write func(io.Writer) error) (_ *Prepared, err error) {
	old, statErr := os.Stat(path)
	if statErr == nil && !old.Mode().IsRegular() {
		return nil, fmt.Errorf("%s exists and is not a regular file: choose another name", path)
	}
	f, err := Create(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close() // does nothing if it is closed already
			err = errors.Join(err, Remove(f.Name()))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if statErr == nil {
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return nil, err
		}
	}
	return &Prepared{f.Name(), path}, f.Close()
}

// Rename moves the file to its place. Call it only within Commit.
func (p *Prepared) Rename() error {
	if p.aside == "" {
		return nil // it is there already
	}
	err := os.Rename(p.aside, p.path)
	if err == nil {
		Keep(p.aside)
		p.aside = ""
	}
	return err
}

// Close removes the file unless it was renamed.
func (p *Prepared) Close() error {
	if p.aside == "" {
		return nil
	}
	return Remove(p.aside)
}
