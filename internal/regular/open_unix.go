//go:build unix

package regular

import "syscall"

// nonBlocking has open return at once for a named pipe without a writer. It means nothing for regular files.
const nonBlocking = syscall.O_NONBLOCK
