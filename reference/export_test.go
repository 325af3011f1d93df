package reference

import ()

// CloseTo is closeTo for tests outside the package.
func CloseTo(got, want *Tensor, abs, rel float64) error { return closeTo(got, want, abs, rel) }
