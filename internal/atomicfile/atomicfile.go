// Package atomicfile keeps track of files that are written under temporary names, so that a program that is interrupted
// can remove them before it exits, and so that those of a program that was killed are recognised later.
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

// Create makes a new file with a temporary name in the folder of path, and tracks it. os.CreateTemp would give it mode
// 0600, which is for secrets; this one has the mode of any other output.
func Create(path string) (*os.File, error) { return CreateKind(path, "") }

// CreateKind is Create of one of several temporary files of path; kind, in small letters, is part of its name.
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

// Link returns a file a second, temporary name, which is tracked, in the folder of path. It is for use within Commit
// alone.
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

// temporaryName is what Lock.Leftovers recognises.
func temporaryName(path, kind string, i int) string {
	dir, base := filepath.Split(path)
	if kind != "" {
		kind = "." + kind
	}
	return filepath.Join(dir, fmt.Sprintf(".%s.%d-%d%s.tmp", base, os.Getpid(), i, kind))
}

// Remove removes tracked files and folders, those that are there, and forgets them.
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

// Commit runs what puts tracked files in their places. RemoveAll waits until it is done, so that of several files all
// are renamed or none; rename may call Keep.
func Commit(rename func() error) error {
	mu.Lock()
	defer mu.Unlock()
	return rename()
}

// Keep ends the tracking of a file that turned out to be needed. It is for use within Commit alone.
func Keep(name string) { delete(paths, name) }

// RemoveAll removes everything that is tracked and lets nothing be made any more: the program has to exit after it.
func RemoveAll() {
	mu.Lock() // for good
	removeAll()
}

func removeAll() {
	for name := range paths {
		// What is still writing to a folder would put files into one that is being emptied. Under another name, which
		// sweepFolders recognises too, it does not find it.
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
