package cli

import "runtime/debug"

// Release is the version that main was linked with, or "".
var Release = ""

// Version returns the release of the program, or the version of its module, or "dev".
func Version() string {
	if Release != "" {
		return Release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
