//go:build unix

package regular

import "syscall"

// nonBlocking makes open return at once for a named pipe without a writer. It does not affect regular files.
const nonBlocking = syscall.O_NONBLOCK
