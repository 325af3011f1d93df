package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// guarded runs f and turns a fault in mapped memory into an error: the system raises one (SIGBUS) when another program
// cuts off a model or data file that is mapped here. Other panics go on.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		fault, ok := p.(interface {
			runtime.Error
			Addr() uintptr
		})
		switch {
		case ok && fault.Addr() >= 1<<16: // below that it is a nil pointer, a mistake of ours
			err = fmt.Errorf("a file was cut off while it was read (%w): run the command again when nothing writes it",
				fault)
		case p != nil:
			panic(p)
		}
	}()
	return f()
}
