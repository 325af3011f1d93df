//go:build !unix

package child

import (
	"os"
	"os/exec"
)

func isolate(*exec.Cmd) {}

func kill(c *exec.Cmd) { c.Process.Kill() }

func endedBy(*os.ProcessState) string { return "" }

// Quote quotes a path for a command line.
func Quote(path string) string { return `"` + path + `"` }

// Shell returns the command that runs a command line.
func Shell(line string) *exec.Cmd { return exec.Command("cmd", "/C", line) }
