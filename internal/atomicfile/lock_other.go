//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package atomicfile

import "os"

// lockFile locks nothing: locks are not portable.
func lockFile(f *os.File) (locked bool, err error) { return false, nil }
