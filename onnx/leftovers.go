package onnx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
)

// sweep removes the leftovers of dead runs for this output. A file that the model at path refers to must wait for the
// commit: a run may have died between its renames.
func (s *Staged) sweep() error {
	names, err := s.lock.Leftovers()
	if err != nil || len(names) == 0 && s.lock.Note() == "" {
		return err
	}
	if s.lock.Note() == dataNote {
		if _, err := os.Lstat(s.dataPath); err == nil {
			names = append(names, s.dataPath)
		}
	}
	for _, name := range names {
		switch {
		case s.othersUse(name) != "":
		case !refersTo(s.path, name):
			if err := atomicfile.Remove(name); err != nil {
				return err
			}
		case name != s.dataPath:
			s.leftovers = append(s.leftovers, name)
		}
	}
	return s.lock.SetNote("")
}

// checkData rejects replacing a data file that other models use, and decides whether the old one becomes unused.
func (s *Staged) checkData(l *layout) error {
	info, err := os.Stat(s.dataPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(l.data) > 0 {
		if other := s.othersUse(s.dataPath); other != "" {
			return fmt.Errorf("%s also holds external data of %s: choose another name", s.dataPath, other)
		}
		return nil
	}
	if l.reads(info) { // the new model refers to it
		return nil
	}
	s.drop = refersTo(s.path, s.dataPath) && s.othersUse(s.dataPath) == ""
	return nil
}

// othersUse returns another model of the folder that refers to the external data file, or "".
func (s *Staged) othersUse(file string) string {
	entries, _ := os.ReadDir(filepath.Dir(s.path))
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(s.path), e.Name())
		if strings.HasSuffix(e.Name(), ".onnx") && e.Type().IsRegular() && e.Name() != filepath.Base(s.path) &&
			refersTo(name, file) {
			return name
		}
	}
	return ""
}

// refersTo reports whether a model refers to a file in its own folder. It is false for a file that is not a model.
func refersTo(model, file string) bool {
	m, err := Read(model, AllowMissingData(), AllowLinks())
	if err != nil {
		return false
	}
	defer m.Close()
	for _, x := range m.files.used() {
		if x.location == filepath.Base(file) {
			return true
		}
	}
	return false
}
