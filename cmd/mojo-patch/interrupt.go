package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/mojo-patch/mojo-patch/internal/aside"
)

// cleanInterrupts makes Ctrl-C and SIGTERM remove what is written but not whole, then exit as a program that was ended
// by the signal. A second signal ends the program at once.
func cleanInterrupts(exit func(code int)) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		aside.RemoveAll()
		code := 130
		if s == syscall.SIGTERM {
			code = 143
		}
		exit(code)
	}()
}
