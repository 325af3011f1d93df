// Package atomicfile tracks files that are written under temporary names, so that an interrupted program can remove
// them before it exits, and a later run can recognize the files of a killed program.
package atomicfile

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

// Create makes a new file with a temporary name in the folder of path, and tracks it. It has the mode of any output:
// os.CreateTemp would set 0600, which is for secrets.
func Create(path string) (*os.File, error) { return CreateKind(path, "") }

// CreateKind is Create for one of several temporary files of path; kind, in small letters, is part of its name.
func CreateKind(path, kind string) (*os.File, error) {
	mu.Lock()
	defer mu.Unlock()
	for i := 0; ; i++ {
		name := temporaryName(path, kind, i)
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

// Link returns a second, temporary name of a file in the folder of path, and tracks it. Call it only within Commit.
func Link(file, path, kind string) (string, error) {
	for i := 0; ; i++ {
		name := temporaryName(path, kind, i)
		err := os.Link(file, name)
		if err == nil {
			paths[name] = true
			return name, nil
		}
		if i > 1000 || !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
}

// temporaryName returns a name that Lock.Leftovers recognizes.
func temporaryName(path, kind string, i int) string {
	dir, base := filepath.Split(path)
	if kind != "" {
		kind = "." + kind
	}
	return filepath.Join(dir, fmt.Sprintf(".%s.%d-%d%s.tmp", base, os.Getpid(), i, kind))
}

// Remove removes and forgets the given files and folders. Missing ones are skipped.
func Remove(names ...string) error {
	mu.Lock()
	defer mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, os.RemoveAll(name))
		delete(paths, name)
		releaseFolder(name)
	}
	return errors.Join(errs...)
}

// Commit runs rename, which moves tracked files to their places. RemoveAll waits for its end, so that several files are
// renamed together or not at all; rename may call Keep.
func Commit(rename func() error) error {
	mu.Lock()
	defer mu.Unlock()
	return rename()
}

// Keep stops the tracking of a file that is needed. Call it only within Commit.
func Keep(name string) { delete(paths, name) }

// RemoveAll removes all tracked files and blocks the creation of new ones: the program must exit after it.
func RemoveAll() {
	mu.Lock() // for good
	removeAll()
}

func removeAll() {
	for name := range paths {
		// A goroutine that still writes would add files to the folder while it is emptied. It cannot find the new name,
		// which sweepFolders recognizes.
		if folders[name] != nil && os.Rename(name, name+"0") == nil {
			name += "0"
		}
		for range 10 {
			if os.RemoveAll(name) == nil {
				break
			}
		}
	}
	clear(paths)
}
