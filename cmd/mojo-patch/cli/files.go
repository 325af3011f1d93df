package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Writable returns an error if no file can be created at path, before a long run would fail at its end.
func Writable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("cannot write %s: it exists and is not a regular file", path)
	}
	folder := filepath.Dir(path)
	info, err := os.Stat(folder)
	if err != nil {
		return fmt.Errorf("cannot write %s: its folder does not exist: %w", path, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("cannot write %s: %s is not a folder", path, folder)
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return errors.Join(f.Close(), atomicfile.Remove(f.Name()))
}

// Same reports whether both paths lead to one file, existing or not.
func Same(x, y string) bool {
	a, errA := os.Stat(x)
	b, errB := os.Stat(y)
	if errA == nil && errB == nil {
		return os.SameFile(a, b)
	}
	p, errP := filepath.Abs(x)
	q, errQ := filepath.Abs(y)
	return errP == nil && errQ == nil && p == q
}

// NewFolder returns an error unless a folder can be created at path.
func NewFolder(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists already: choose a new folder", path)
	}
	if info, err := os.Stat(filepath.Dir(filepath.Clean(path))); err != nil || !info.IsDir() {
		return fmt.Errorf("cannot make %s: %s is not a folder", path, filepath.Dir(filepath.Clean(path)))
	}
	return nil
}

// Outputs are the temporary files of one run. They are renamed together, before a model.
type Outputs []*atomicfile.Prepared

// Add takes a temporary file, or nil.
func (o *Outputs) Add(file *atomicfile.Prepared, err error) error {
	if file != nil {
		*o = append(*o, file)
	}
	return err
}

// Rename renames the files, within atomicfile.Commit.
func (o *Outputs) Rename() error {
	for _, file := range *o {
		if err := file.Rename(); err != nil {
			return err
		}
	}
	return nil
}

// Discard removes the files that were not renamed.
func (o *Outputs) Discard() {
	for _, file := range *o {
		file.Close()
	}
}

// WorthSaying is the size in bytes from which a copy is mentioned.
const WorthSaying = 1 << 20

// SayCarried says how many bytes of a data file were copied, shared or linked.
func SayCarried(a *App, d onnx.DataWritten) {
	switch {
	case d.Linked > 0:
		a.Say("%s is a hard link of %s (%s): a program that writes to one of them in place changes both", d.File,
			d.Source, english.Bytes(d.Linked))
	case d.Shared > 0:
		a.Say("%s shares %s with %s until one of them is changed; %s were copied", d.File, english.Bytes(d.Shared),
			d.Source, english.Bytes(d.Copied))
	case d.Copied >= WorthSaying || d.Copied > 0 && a.Verbose:
		a.Say("copied %s of weights from %s to %s", english.Bytes(d.Copied), d.Source, d.File)
	}
}
