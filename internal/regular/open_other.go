//go:build !unix

package regular

// nonBlocking does nothing: named pipes are not files here.
const nonBlocking = 0
