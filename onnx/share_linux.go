package onnx

import (
	"os"

	"golang.org/x/sys/unix"
)

// shareRange has n bytes of a file be those of another one: no byte is copied until one of the files is changed there.
// Btrfs, XFS and a few other file systems can do that, for whole blocks within one file system.
var shareRange = func(dst *os.File, to int64, src *os.File, from, n int64) error {
	return unix.IoctlFileCloneRange(int(dst.Fd()), &unix.FileCloneRange{Src_fd: int64(src.Fd()),
		Src_offset: uint64(from), Src_length: uint64(n), Dest_offset: uint64(to)})
}
