// Package types has a test that does not compile for macOS.
package types

func size() int { return "none" }
