//go:build !unix

package cputime

import "time"

var began = time.Now()

// Used returns the time on the clock: this system counts processor time in another way.
func Used() time.Duration { return time.Since(began) }
