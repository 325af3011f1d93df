package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// folders holds the locks of this process's temporary folders.
var folders = map[string]*os.File{}

// deadAfter is the age from which an unlocked folder is litter: a younger one may not be locked yet.
const deadAfter = time.Minute

// MkdirTemp is os.MkdirTemp for a tracked folder. It removes folders of the same pattern that dead runs left.
func MkdirTemp(dir, pattern string) (string, error) {
	mu.Lock()
	defer mu.Unlock()
	sweepFolders(dir, pattern)
	name, err := os.MkdirTemp(dir, pattern)
	if err != nil {
		return "", err
	}
	paths[name] = true
	if f, err := os.Open(name); err == nil {
		lockFile(f) // if locks do not work, no process sweeps either
		folders[name] = f
	}
	return name, nil
}

// WriteFolder makes a new folder at path. fill writes to a temporary one beside it, so that the folder appears whole or
// not at all.
//
// The files in beside appear together with the folder.
func WriteFolder(path string, fill func(folder string) error, beside ...*Prepared) (err error) {
	folder, err := MkdirTemp(filepath.Dir(filepath.Clean(path)), ".mojo-patch-folder-*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, Remove(folder)) }()
	if err := fill(folder); err != nil {
		return err
	}
	if err := os.Chmod(folder, 0o755); err != nil { // temporary folders are only for their owner
		return err
	}
	err = Commit(func() error {
		if err := os.Rename(folder, path); err != nil {
			return err
		}
		Keep(folder)
		for _, file := range beside {
			if err := file.Rename(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// sweepFolders removes folders that MkdirTemp made in dead processes.
func sweepFolders(dir, pattern string) {
	if dir == "" {
		dir = os.TempDir()
	}
	before, after, _ := strings.Cut(pattern, "*")
	list, _ := filepath.Glob(filepath.Join(dir, before+"*"+after))
	for _, name := range list {
		number := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), before), after)
		if strings.Trim(number, "0123456789") != "" || number == "" || paths[name] {
			continue // not from os.MkdirTemp
		}
		info, err := os.Lstat(name)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < deadAfter {
			continue
		}
		if f, err := os.Open(name); err == nil {
			if locked, _ := lockFile(f); locked {
				os.RemoveAll(name)
			}
			f.Close()
		}
	}
}

// releaseFolder releases the lock of a removed folder.
func releaseFolder(name string) {
	if f := folders[name]; f != nil {
		f.Close()
		delete(folders, name)
	}
}
