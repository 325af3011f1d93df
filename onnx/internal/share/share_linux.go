// Package share lets files share their bytes, where the file system can.
package share

import (
	"os"

	"golang.org/x/sys/unix"
)

// Range shares n bytes of src with dst: they are copied only when one of the files changes there. Btrfs, XFS and a
// few other file systems support that, for whole blocks within one file system.
var Range = func(dst *os.File, to int64, src *os.File, from, n int64) error {
	return unix.IoctlFileCloneRange(int(dst.Fd()), &unix.FileCloneRange{Src_fd: int64(src.Fd()),
		Src_offset: uint64(from), Src_length: uint64(n), Dest_offset: uint64(to)})
}
