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
func WriteFile(path string, write func(io.Writer) error) error {
	p, err := Prepare(path, write)
	if err != nil {
		return err
	}
	return errors.Join(Commit(p.Rename), p.Close())
}

// Prepared is a file that lies whole beside its place. Rename puts it there; Close without Rename removes it. Several
// that are renamed within one Commit appear together, whatever signal comes meanwhile.
type Prepared struct{ aside, path string }

// Prepare writes a file beside path; see WriteFile.
func Prepare(path string, write func(io.Writer) error) (_ *Prepared, err error) {
	old, statErr := os.Stat(path)
	if statErr == nil && !old.Mode().IsRegular() {
		return nil, fmt.Errorf("%s exists and is no regular file: choose another name", path)
	}
	f, err := Create(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close() // does nothing when it was closed already
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

// Rename puts the file in its place. It is for use within Commit alone.
func (p *Prepared) Rename() error {
	if p.aside == "" {
		return nil // it is there
	}
	err := os.Rename(p.aside, p.path)
	if err == nil {
		Keep(p.aside)
		p.aside = ""
	}
	return err
}

// Close removes the file unless it is in its place.
func (p *Prepared) Close() error {
	if p.aside == "" {
		return nil
	}
	return Remove(p.aside)
}
