package tensor

import "fmt"

// Failure is the panic value of an op that cannot continue. The dispatcher, which calls all ops, makes it an error.
type Failure struct{ Err error }

// Fail ends the current op with an error. Only code called by ops may use it.
func Fail(format string, args ...any) { panic(Failure{fmt.Errorf(format, args...)}) }

// Check fails with the error, if there is one.
func Check(err error) {
	if err != nil {
		panic(Failure{err})
	}
}

// Try returns v, or fails with the error.
func Try[T any](v T, err error) T {
	Check(err)
	return v
}
