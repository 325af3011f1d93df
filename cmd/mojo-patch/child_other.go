//go:build !unix

package main

import (
	"os"
	"os/exec"
)

func isolate(*exec.Cmd) {}

func kill(c *exec.Cmd) { c.Process.Kill() }

func endedBy(*os.ProcessState) string { return "" }

// quote quotes a path for a command line.
func quote(path string) string { return `"` + path + `"` }

// shell returns the command that runs a command line.
func shell(line string) *exec.Cmd { return exec.Command("cmd", "/C", line) }
