//go:build unix

package child

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// isolate puts the program into a new process group, so that kill also ends the programs that it started.
func isolate(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func kill(c *exec.Cmd) { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }

// endedBy names the signal that ended a program, or returns "".
func endedBy(p *os.ProcessState) string {
	if s, ok := p.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return "ended by a signal: " + s.Signal().String()
	}
	return ""
}

// Quote quotes a path for a command line.
func Quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

// Shell returns the command that runs a command line.
func Shell(line string) *exec.Cmd { return exec.Command("/bin/sh", "-c", line) }
