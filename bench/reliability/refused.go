//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// place is one output path for apply: its preparation in a folder, and the expected outcome.
type place struct {
	what    string
	prepare string // shell, in the folder that holds model.onnx
	args    string // after "apply"; OUT and the model are relative to the folder
	code    int
	say     string // required in the message
	check   string // shell that must succeed afterwards
}

var places = []place{
	{"read-only folder of the input", "mkdir in; mv model.onnx in; chmod 555 in", "in/model.onnx -o out.onnx", 0, "",
		"test -f out.onnx"},
	{"read-only folder of the output", "mkdir ro; chmod 555 ro", "model.onnx -o ro/out.onnx", 2, "permission denied",
		""},
	{"read-only input", "chmod 444 model.onnx", "model.onnx -o out.onnx", 0, "", "test -f out.onnx"},
	{"unreadable input", "chmod 000 model.onnx", "model.onnx -o out.onnx", 2, "permission denied",
		"chmod 644 model.onnx"},
	{"missing folder", "", "model.onnx -o absent/out.onnx", 2, "folder does not exist", ""},
	{"a file for the folder", "touch file", "model.onnx -o file/out.onnx", 2, "file", ""},
	{"output = input", "", "model.onnx -o ./model.onnx", 2, "never overwritten", ""},
	{"output = input through a symbolic link", "ln -s model.onnx link.onnx", "model.onnx -o link.onnx", 2,
		"never overwritten", "test -L link.onnx"},
	{"output = input through a hard link", "ln model.onnx link.onnx", "model.onnx -o link.onnx", 2, "never overwritten",
		""},
	{"output is a folder", "mkdir out.onnx", "model.onnx -o out.onnx", 2, "not a regular file", ""},
	{"output is a device", "", "model.onnx -o /dev/null", 2, "not a regular file", "test -c /dev/null"},
	{"output through a symbolic link: the link is replaced", "echo old >target; ln -s target out.onnx",
		"model.onnx -o out.onnx", 0, "", "test ! -L out.onnx && test \"$(cat target)\" = old"},
	{"output through a dangling link", "ln -s absent out.onnx", "model.onnx -o out.onnx", 0, "",
		"test -f out.onnx && test ! -L out.onnx && test ! -e absent"},
	{"OUT.data is the input", "cp model.onnx out.onnx.data", "out.onnx.data -o out.onnx --external-data-over 1000", 2,
		"was read from", ""},
	{"OUT.data is a folder", "mkdir out.onnx.data", "model.onnx -o out.onnx --external-data-over 1000", 2,
		"not a regular file", ""},
	{"OUT.data holds weights of another model",
		"\"$TOOL\" apply model.onnx -o out.onnx --external-data-over 1000 $FAST; cp out.onnx other.onnx",
		"model.onnx -o out.onnx --external-data-over 1000", 2, "holds external data of", ""},
	{"OUT.data holds weights of another model, and OUT needs no such file",
		"\"$TOOL\" apply model.onnx -o out.onnx --external-data-over 1000 $FAST; cp out.onnx other.onnx",
		"model.onnx -o out.onnx", 0, "", "test -f out.onnx.data"},
	{"an OUT.data that is of no more use is removed",
		"\"$TOOL\" apply model.onnx -o out.onnx --external-data-over 1000 $FAST", "model.onnx -o out.onnx", 0, "",
		"test ! -e out.onnx.data"},
	{"an OUT.data that OUT does not refer to is kept", "echo mine >out.onnx.data", "model.onnx -o out.onnx", 0, "",
		"test \"$(cat out.onnx.data)\" = mine"},
	{"another run is writing OUT", "", "model.onnx -o out.onnx", 2, "another run is writing", ""},
}

// refused runs apply with outputs that cannot be written, and with some that only look so.
func (b *bench) refused() ([]*row, error) {
	// Root may write anywhere: it runs the program as the user nobody, who must be able to enter base.
	base, err := os.MkdirTemp("", "reliability-places")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(base)
	if err := os.Chmod(base, 0o755); err != nil {
		return nil, err
	}
	tool := filepath.Join(base, "mojo-patch")
	if out, err := exec.Command("cp", b.tool, tool).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	r := &row{what: "outputs that cannot be written, or nearly so"}
	for i, p := range places {
		r.check(p.what, func() error { return b.place(p, filepath.Join(base, fmt.Sprint(i)), tool) })
	}
	for i := range places { // so that they can be removed
		exec.Command("chmod", "-R", "u+w", filepath.Join(base, fmt.Sprint(i))).Run()
	}
	r.note = "exit code and message as documented; a refused command changes no file and leaves no new one"
	return []*row{r}, nil
}

func (b *bench) place(p place, dir, tool string) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	sh := func(script string) (string, error) {
		c := exec.Command("sh", "-ec", script)
		c.Dir, c.Env = dir, append(os.Environ(), "TOOL="+tool, "FAST="+strings.Join(fast, " "), "HOME="+dir)
		if os.Getuid() == 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	model, err := os.ReadFile(filepath.Join(b.models, "llama-ts-fp32.onnx"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "model.onnx"), model, 0o666); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		os.Chown(dir, 65534, 65534)
		os.Chown(filepath.Join(dir, "model.onnx"), 65534, 65534)
	}
	if out, err := sh(p.prepare); err != nil {
		return fmt.Errorf("preparing: %w: %s", err, out)
	}
	if strings.HasPrefix(p.what, "another run") {
		held, err := hold(filepath.Join(dir, ".out.onnx.lock"))
		if err != nil {
			return err
		}
		defer held.Close()
	}
	list := "ls -lAR --time-style=full-iso"
	before, _ := sh(list)
	out, err := sh(`"$TOOL" apply ` + p.args + " $FAST")
	if code := exitCode(err); code != p.code || !strings.Contains(out, p.say) ||
		p.code != 0 && strings.TrimSpace(out) == "" {
		return fmt.Errorf("exit code %d: %s", code, out)
	}
	if after, _ := sh(list); p.code != 0 && after != before {
		return fmt.Errorf("the refused command changed the files from\n%s\nto\n%s", before, after)
	}
	if out, err := sh("ls -A | grep '[.]tmp$' && exit 1; " + p.check); err != nil && p.check != "" {
		return fmt.Errorf("afterwards: %w: %s", err, out)
	}
	return nil
}

// hold locks a file as a run of the program does, until it is closed.
func hold(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	return f, errors.Join(f.Chmod(0o666), syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
}
