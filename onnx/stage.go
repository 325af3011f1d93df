package onnx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
)

// Staged is a model that is written whole to disk under temporary names, but is not in its place yet. Commit puts it
// there; Close without Commit removes it. Its output is locked meanwhile: no other run can write it.
//
// Two files cannot be renamed at once, and a process may die at any moment. So Commit first puts a model file at path
// that refers to the data under their temporary name, then replaces the old data file, and then the model file by one
// that refers to path + ".data". At each moment path is the old model or the new one, with all its data. The next run
// that writes to path removes the leftovers of a dead run.
type Staged struct {
	path, dataPath string
	lock           *atomicfile.Lock

	model     string   // the temporary file for path
	data      string   // the temporary file for dataPath; empty without data
	first     string   // the model file that refers to data under the temporary name
	drop      bool     // dataPath is only used by the model at path, and will be unused
	external  []string // see DataFiles
	weights   DataWritten
	leftovers []string // of dead runs, to be removed after the commit: the model at path may use them until then
}

// The lock's note when dataPath may be an unreferenced file.
const dataNote = "the data file may be unused"

// renamed is called after each step of a commit; tests die there.
var renamed = func() {}

// Stage writes the model aside; see Write for the rules.
func Stage(path string, m *Model, options ...WriteOption) (*Staged, error) {
	o := writeOptions{externalOver: -1, limit: maxModelFile}
	for _, set := range options {
		set(&o)
	}
	s, err := stage(path, m, o)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	return s, nil
}

func stage(path string, m *Model, o writeOptions) (_ *Staged, err error) {
	if m.files != nil && m.files.isClosed() {
		return nil, ErrClosed
	}
	l, err := newLayout(path, m, o)
	if err != nil {
		return nil, err
	}
	defer l.restore()
	if err := checkTargets(m, l); err != nil {
		return nil, err
	}
	s := &Staged{path: path, dataPath: l.dataPath, external: l.dataFiles()}
	if s.lock, err = atomicfile.Acquire(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.sweep(); err != nil {
		return nil, err
	}
	if err := s.checkData(l); err != nil {
		return nil, err
	}
	if len(l.data) > 0 {
		if s.data, err = l.writeDataAside(o.link); err != nil {
			return nil, err
		}
		s.weights = l.weights
		if _, err = l.encode(filepath.Base(s.data)); err != nil {
			return nil, err
		}
		if s.first, err = writeAside(path, "", l.writeModel); err != nil {
			return nil, err
		}
		if _, err = l.encode(filepath.Base(s.dataPath)); err != nil {
			return nil, err
		}
	}
	s.model, err = writeAside(path, "", l.writeModel)
	return s, err
}

// File returns the model file that Commit puts in place. If it has its own data, it loads only after that.
func (s *Staged) File() string { return s.model }

// Path returns a loadable model file with the same contents as the one that Commit puts in place.
func (s *Staged) Path() string {
	if s.first != "" {
		return s.first
	}
	return s.model
}

// DataFiles lists the external data files that the model refers to once it is committed, sorted.
func (s *Staged) DataFiles() []string { return s.external }

// Size returns the total size of the model file and its external data files, in bytes.
func (s *Staged) Size() int64 {
	total := int64(0)
	for _, name := range append([]string{s.model}, s.external...) {
		if name == s.dataPath && s.data != "" {
			name = s.data // until it is committed
		}
		if info, err := os.Stat(name); err == nil {
			total += info.Size()
		}
	}
	return total
}

// Data describes the origins of the data file's bytes.
func (s *Staged) Data() DataWritten { return s.weights }

// Close removes uncommitted files and unlocks the output.
func (s *Staged) Close() error {
	if s.lock == nil {
		return nil
	}
	err := errors.Join(removeNamed(s.first, s.model, s.data), s.lock.Release())
	s.lock = nil
	return err
}

func removeNamed(names ...string) error {
	var errs []error
	for _, name := range names {
		if name != "" {
			errs = append(errs, atomicfile.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// Commit puts the files in place. After an error the old model is still there, unless the error says otherwise.
func (s *Staged) Commit() error { return s.CommitAfter(func() error { return nil }) }

// CommitAfter is Commit after first, which puts other files in place. Signals cannot end the program in between. If
// first fails, nothing is committed.
func (s *Staged) CommitAfter(first func() error) error {
	err := atomicfile.Commit(func() error {
		if err := first(); err != nil {
			return err
		}
		return s.rename()
	})
	if err == nil {
		err = removeNamed(s.leftovers...)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", s.path, err)
	}
	return nil
}

func (s *Staged) rename() error {
	switch {
	case s.data != "":
		if err := s.lock.SetNote(dataNote); err != nil {
			return err
		}
		if _, err := os.Lstat(s.dataPath); errors.Is(err, fs.ErrNotExist) {
			return s.renameNew()
		}
		return s.renameOver()
	case s.drop:
		if err := s.lock.SetNote(dataNote); err != nil {
			return err
		}
	}
	if err := os.Rename(s.model, s.path); err != nil {
		return err
	}
	s.sync()
	if s.drop {
		return os.Remove(s.dataPath)
	}
	return nil
}

// sync makes a rename durable before the next one.
func (s *Staged) sync() {
	syncFolder(filepath.Dir(s.path))
	renamed()
}

// renameNew renames both files if there is no data file yet.
func (s *Staged) renameNew() error {
	if err := os.Rename(s.data, s.dataPath); err != nil {
		return err
	}
	s.sync()
	if err := os.Rename(s.model, s.path); err != nil {
		return errors.Join(err, os.Remove(s.dataPath))
	}
	s.sync()
	return nil
}

// renameOver replaces a data file that the model at path may use. Without hard links, the data lose their temporary
// name a moment before the model file that refers to it is replaced.
func (s *Staged) renameOver() error {
	old, _ := atomicfile.Link(s.path, s.path, "old")
	if old != "" {
		defer os.Remove(old)
	}
	if err := os.Rename(s.first, s.path); err != nil {
		return err
	}
	s.sync()
	twin, err := atomicfile.Link(s.data, s.path, "twin")
	if err != nil {
		twin = s.data
	}
	if err := os.Rename(twin, s.dataPath); err != nil {
		if old != "" {
			return errors.Join(err, os.Rename(old, s.path))
		}
		return s.keepAside(err)
	}
	if twin != s.data {
		os.Remove(twin) // still there if both names are one file (LinkData), because then nothing is renamed
	}
	s.sync()
	if err := os.Rename(s.model, s.path); err != nil {
		name := s.data
		if err = s.keepAside(err); twin == name {
			err = errors.Join(err, os.Rename(s.dataPath, name))
		}
		return err
	}
	s.sync()
	return nil
}

// keepAside keeps the data under their temporary name, which the model at path refers to.
func (s *Staged) keepAside(err error) error {
	name := s.data
	s.data = ""
	atomicfile.Keep(name)
	return fmt.Errorf("the model is written, but its data are still in %s: %w", name, err)
}
