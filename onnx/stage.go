package onnx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
)

// Staged is a model that is written under temporary names, whole and on the disk, and not in its place yet. Commit puts
// it there, Close without Commit removes it. While it exists, its output is locked: no other run can write it.
//
// Two files cannot be renamed at once. So that a process may die at any moment, a model file takes the place of path
// that refers to the data under their temporary name; only then is an older data file replaced, and after that the
// model file by the one that refers to path + ".data". At each moment path is the model before or the new one, with all
// its data. What a dead run leaves, the next one that writes to path removes.
type Staged struct {
	path, dataPath string
	lock           *atomicfile.Lock

	model     string   // the temporary file of what is to stand at path
	data      string   // that of what is to stand at dataPath; empty when there are no such data
	first     string   // the model file that refers to data under the temporary name
	drop      bool     // dataPath is of the model that stands at path, which alone uses it, and will be of no use
	external  []string // see DataFiles
	weights   DataWritten
	leftovers []string // of dead runs, to be removed after the commit: the model at path may use them until then
}

// What the lock's note says once dataPath may hold a file that nothing refers to.
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

// File is the model file that Commit puts in place. Where it has data of its own, it does not load before that.
func (s *Staged) File() string { return s.model }

// Path is a model file that loads, of the same contents as the one that Commit puts in place.
func (s *Staged) Path() string {
	if s.first != "" {
		return s.first
	}
	return s.model
}

// DataFiles lists the files with external data that the model refers to once it is committed, sorted.
func (s *Staged) DataFiles() []string { return s.external }

// Size returns the number of bytes of the model file and of the files with its external data together.
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

// Data says where the bytes of the data file came from.
func (s *Staged) Data() DataWritten { return s.weights }

// Close removes what was not committed and lets other runs write the output.
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

// Commit puts the files in their places. After an error the model that was there before is there still, or else the
// error says what is.
func (s *Staged) Commit() error { return s.CommitAfter(func() error { return nil }) }

// CommitAfter is Commit after first, which puts other files in their places, with no signal in between that ends the
// program. If first fails, nothing is committed.
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

// renameNew renames both where there is no data file yet.
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

// renameOver replaces a data file that the model at path may use. Where the file system has no hard links, the data
// lose their temporary name a moment before the model file that refers to it is replaced.
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
		os.Remove(twin) // there still where both names were of one file (LinkData), since nothing is renamed then
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

// keepAside leaves the data under their temporary name, which the model at path refers to.
func (s *Staged) keepAside(err error) error {
	name := s.data
	s.data = ""
	atomicfile.Keep(name)
	return fmt.Errorf("the model is written, its data are in %s: %w", name, err)
}
