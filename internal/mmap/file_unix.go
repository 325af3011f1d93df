//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package mmap

import (
	"os"
	"syscall"
)

// File maps size bytes of a regular file for reading; release unmaps it. If mapping fails, it reads the file.
func File(f *os.File, size int64) (b []byte, release func() error, err error) {
	if size == 0 || int64(int(size)) != size {
		return readWhole(f)
	}
	b, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return readWhole(f) // some network and FUSE file systems cannot map files
	}
	return b, func() error { return syscall.Munmap(b) }, nil
}
