package cputime

import "time"

// AfterFunc calls f on its own goroutine once this process has used more processor time, by limit. Before that, stop
// prevents the call.
func AfterFunc(limit time.Duration, f func()) (stop func()) {
	end, done := Used()+limit, make(chan struct{})
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for Used() < end {
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
		f()
	}()
	return func() { close(done) }
}
