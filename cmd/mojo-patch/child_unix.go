//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// isolate gives the program a group of its own, so that kill ends those that it started as well.
func isolate(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func kill(c *exec.Cmd) { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }

// endedBy names the signal that ended a program, if one did.
func endedBy(p *os.ProcessState) string {
	if s, ok := p.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return "ended by a signal: " + s.Signal().String()
	}
	return ""
}

// quote writes a path for a command line.
func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

// shell runs a command line.
func shell(line string) *exec.Cmd { return exec.Command("/bin/sh", "-c", line) }
