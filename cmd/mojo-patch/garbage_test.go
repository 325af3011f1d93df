package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestLimitGarbage: the first collection is late, and the others follow gcPercent.
func TestLimitGarbage(t *testing.T) {
	was := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(was)
	limitGarbage()
	percent := func() int {
		p := debug.SetGCPercent(-1)
		debug.SetGCPercent(p)
		return p
	}
	if got := percent(); got != 3200 {
		t.Errorf("before the first collection: %d %%", got)
	}
	runtime.GC()
	for end := time.Now().Add(20 * time.Second); percent() != gcPercent && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if got := percent(); got != gcPercent {
		t.Errorf("after it: %d %%", got)
	}
}
