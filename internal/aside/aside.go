// Package aside keeps track of files that are written under temporary names, so that a program that is interrupted can
// remove them before it exits.
package aside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

var (
	mu    sync.Mutex
	paths = map[string]bool{}
)

// Create makes a new file with a temporary name in the folder of path, and tracks it. os.CreateTemp would give it mode
// 0600, which is for secrets; this one has the mode of any other output.
func Create(path string) (*os.File, error) {
	mu.Lock()
	defer mu.Unlock()
	dir, base := filepath.Split(path)
	for i := 0; ; i++ {
		name := filepath.Join(dir, fmt.Sprintf(".%s.%d-%d.tmp", base, os.Getpid(), i))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			paths[name] = true
			return f, nil
		}
		if i > 1000 || !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
}

// MkdirTemp is os.MkdirTemp of a folder that is tracked.
func MkdirTemp(dir, pattern string) (string, error) {
	mu.Lock()
	defer mu.Unlock()
	name, err := os.MkdirTemp(dir, pattern)
	if err == nil {
		paths[name] = true
	}
	return name, err
}

// Track tracks files that exist or are about to.
func Track(names ...string) {
	mu.Lock()
	defer mu.Unlock()
	for _, name := range names {
		paths[name] = true
	}
}

// Remove removes tracked files and folders, those that are there, and forgets them.
func Remove(names ...string) error {
	mu.Lock()
	defer mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, os.RemoveAll(name))
		delete(paths, name)
	}
	return errors.Join(errs...)
}

// Commit runs what puts tracked files in their places. RemoveAll waits until it is done, so that of several files all
// are renamed or none.
func Commit(rename func() error) error {
	mu.Lock()
	defer mu.Unlock()
	return rename()
}

// RemoveAll removes everything that is tracked and lets nothing be made any more: the program has to exit after it.
func RemoveAll() {
	mu.Lock() // for good
	removeAll()
}

func removeAll() {
	for name := range paths {
		os.RemoveAll(name)
	}
	clear(paths)
}
