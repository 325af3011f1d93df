//go:build !unix

package regular

// nonBlocking is nothing: named pipes are no files here.
const nonBlocking = 0
