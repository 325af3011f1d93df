//go:build unix

package cputime

import (
	"testing"
	"time"
)

func TestAfterFunc(t *testing.T) {
	called := make(chan bool)
	stop := AfterFunc(time.Hour, func() { t.Error("called after stop") })
	stop()
	AfterFunc(0, func() { close(called) })
	<-called
	start := Used()
	late := make(chan time.Duration, 1)
	AfterFunc(50*time.Millisecond, func() { late <- Used() - start })
	for len(late) == 0 {
		Used()
	}
	if took := <-late; took < 50*time.Millisecond {
		t.Errorf("called after %v of processor time", took)
	}
}

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
