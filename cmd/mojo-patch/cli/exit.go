package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/runson"
)

// The exit codes, the same for every command.
const (
	ExitDone        = 0
	ExitFailed      = 1 // a comparison or a check failed, or a model could not be run
	ExitUsage       = 2 // wrong arguments, or a file that cannot be read or written
	ExitNothing     = 3 // nothing was fused, under --require, or bisect found no culprit
	ExitEnvironment = 4 // onnxruntime, the kernel library or the kernels of a device are missing
)

// ExitError is an error with an exit code. Its message is empty if everything was reported already.
type ExitError struct {
	code int
	err  error
}

// Error returns the message, or "" without one.
func (e *ExitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap returns the error without its code.
func (e *ExitError) Unwrap() error { return e.err }

// ExitWith returns an error with an exit code; without err, one that needs no message.
func ExitWith(code int, err error) error { return &ExitError{code, err} }

// Failed returns an error of a comparison, a check or a run.
func Failed(err error) error { return ExitWith(ExitFailed, err) }

// Environment returns an error of a library or a device that is missing.
func Environment(err error) error { return ExitWith(ExitEnvironment, err) }

// ExitCode returns the code of an error: the error's own code, or else the one of its kind.
func ExitCode(err error) int {
	if err == nil {
		return ExitDone
	}
	var coded *ExitError
	if errors.As(err, &coded) {
		return coded.code
	}
	var refused *runson.RefusedError
	if errors.As(err, &refused) {
		return ExitFailed
	}
	var unavailable *registry.UnavailableError
	var device *registry.DeviceError
	if errors.As(err, &unavailable) || errors.As(err, &device) || errors.Is(err, ort.ErrNoLibrary) ||
		errors.Is(err, fused.ErrNoLibrary) {
		return ExitEnvironment
	}
	return ExitUsage
}

// CleanInterrupts makes Ctrl-C and SIGTERM remove incomplete files and exit with the signal's code. A second signal
// does not cut that short: a terminal and a parent process may both send one. If a command ends gracefully on the first
// signal, the second one does all this.
func CleanInterrupts(exit func(code int)) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		if end := graceful.Swap(nil); end != nil {
			(*end)(s)
			s = <-signals
		}
		atomicfile.RemoveAll()
		exit(SignalCode(s))
	}()
}

// SignalCode returns the exit code of a program that a signal ended.
func SignalCode(s os.Signal) int {
	if s == syscall.SIGTERM {
		return 143
	}
	return 130
}

// graceful replaces the exit on the first signal while a command can end gracefully.
var graceful atomic.Pointer[func(os.Signal)]

// Interrupt is the cause of a context that a signal ended.
type Interrupt struct{ Signal os.Signal }

// Error returns the message.
func (i Interrupt) Error() string { return "interrupted" }

// Interruptible returns a context that the first Ctrl-C or SIGTERM ends, with an interrupt as its cause.
func Interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	end := func(s os.Signal) { cancel(Interrupt{s}) }
	graceful.Store(&end)
	return ctx, func() { graceful.Store(nil); cancel(nil) }
}

// guarded runs f and turns a fault in mapped memory into an error: the system raises SIGBUS when another program
// truncates a mapped model or data file. Other panics continue.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		fault, ok := p.(interface {
			runtime.Error
			Addr() uintptr
		})
		switch {
		case ok && fault.Addr() >= 1<<16: // below that it is a nil pointer, our bug
			err = fmt.Errorf("a file was truncated while it was read (%w): run the command again when no program "+
				"writes to it",
				fault)
		case p != nil:
			panic(p)
		}
	}()
	return f()
}

// FirstLine shortens an error that lists the searched places.
func FirstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(line, ". Looked at:")
}
