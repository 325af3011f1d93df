//go:build unix

package cputime

import (
	"testing"
	"time"
)

func TestUsed(t *testing.T) {
	start, clock := Used(), time.Now()
	time.Sleep(50 * time.Millisecond)
	if slept := Used() - start; slept >= time.Since(clock) {
		t.Errorf("sleeping took %v of processor time", slept)
	}
	for start = Used(); Used()-start < 20*time.Millisecond; {
		if time.Since(clock) > time.Minute {
			t.Fatal("a busy loop takes no processor time")
		}
	}
}
