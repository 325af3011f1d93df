package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
)

// cleanInterrupts makes Ctrl-C and SIGTERM remove what is written but not whole, then exit as a program that was ended
// by the signal. A second signal ends the program at once.
func cleanInterrupts(exit func(code int)) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		if end := graceful.Swap(nil); end != nil {
			(*end)(s)
			s = <-signals
		}
		signal.Stop(signals)
		atomicfile.RemoveAll()
		exit(signalCode(s))
	}()
}

func signalCode(s os.Signal) int {
	if s == syscall.SIGTERM {
		return 143
	}
	return 130
}

// graceful is what the first signal calls in place of ending the program, where a command ends by itself.
var graceful atomic.Pointer[func(os.Signal)]

// interrupt is the cause of a context that a signal ended.
type interrupt struct{ signal os.Signal }

func (i interrupt) Error() string { return "interrupted" }

// interruptible returns a context that the first Ctrl-C or SIGTERM ends, with an interrupt as its cause.
func interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	end := func(s os.Signal) { cancel(interrupt{s}) }
	graceful.Store(&end)
	return ctx, func() { graceful.Store(nil); cancel(nil) }
}
