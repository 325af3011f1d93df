//go:build !linux && !darwin

package cli

// PeakRSS is not known on this system.
func PeakRSS() int64 { return 0 }
