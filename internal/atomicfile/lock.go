package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
)

// ErrBusy is wrapped by the error of Acquire if another run writes the same output.
var ErrBusy = errors.New("another run is writing it")

// errLocked means that another process holds the lock.
var errLocked = errors.New("locked")

// Lock is held by the only run that writes an output. It is a file beside the output, ".NAME.lock", which the system
// unlocks when its process ends for any reason: a lock file that can be locked belongs to a dead run, and while the
// lock is held, every temporary file of that output is litter.
type Lock struct {
	output string
	file   *os.File
	note   string
	alone  bool // false if files cannot be locked
}

// Acquire takes the lock of an output. The error wraps ErrBusy if another run has it.
func Acquire(output string) (*Lock, error) {
	dir, base := filepath.Split(output)
	name := filepath.Join(dir, "."+base+".lock")
	for range 100 {
		f, alone, err := openLock(name)
		if err != nil {
			return nil, err
		}
		if f == nil {
			continue
		}
		note, err := io.ReadAll(io.LimitReader(f, 1<<12))
		if err != nil {
			Remove(name)
			f.Close()
			return nil, err
		}
		return &Lock{output, f, string(note), alone}, nil
	}
	return nil, fmt.Errorf("cannot lock %s: it is not a separate file, or keeps changing", name)
}

// openLock opens, locks and tracks a lock file. f is nil if its owner removed it meanwhile. RemoveAll waits until the
// file is tracked: a signal in between would leave it behind.
func openLock(name string) (f *os.File, alone bool, err error) {
	mu.Lock()
	defer mu.Unlock()
	f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, false, err
	}
	alone, err = lockFile(f)
	switch {
	case errors.Is(err, errLocked):
		err = fmt.Errorf("%w (it holds %s)", ErrBusy, name)
	case err != nil:
		err = fmt.Errorf("cannot lock %s: %w", name, err)
	case isFile(f, name):
		paths[name] = true
		return f, alone, nil
	}
	f.Close()
	return nil, false, err
}

// isFile reports whether name is the open file itself, not a link to it. A named pipe does not count: reading it would
// never end.
func isFile(f *os.File, name string) bool {
	a, errA := f.Stat()
	b, errB := os.Lstat(name)
	return errA == nil && errB == nil && a.Mode().IsRegular() && os.SameFile(a, b)
}

// Note returns the last note of a run that died with the lock, or "".
func (l *Lock) Note() string { return l.note }

// SetNote stores a note for the next run, in case this one dies.
func (l *Lock) SetNote(note string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	if _, err := l.file.WriteAt([]byte(note), 0); err != nil {
		return err
	}
	return l.file.Sync()
}

// Release removes the lock file, so that others can write the output.
func (l *Lock) Release() error {
	if runtime.GOOS == "windows" { // an open file cannot be removed there, and lockFile locks nothing
		return errors.Join(l.file.Close(), Remove(l.file.Name()))
	}
	return errors.Join(Remove(l.file.Name()), l.file.Close()) // in this order: a released file must not stay
}

// Leftovers lists the temporary files of the output that dead runs left. It returns nil if files cannot be locked,
// because they may belong to a live run.
func (l *Lock) Leftovers() ([]string, error) {
	if !l.alone {
		return nil, nil
	}
	dir, base := filepath.Split(l.output)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	pattern := regexp.MustCompile(`^\.` + regexp.QuoteMeta(base) + `\.\d+-\d+(\.[a-z]+)?\.tmp$`)
	mu.Lock()
	defer mu.Unlock()
	var list []string
	for _, e := range entries {
		if name := filepath.Join(dir, e.Name()); pattern.MatchString(e.Name()) && !paths[name] {
			list = append(list, name)
		}
	}
	return list, nil
}
