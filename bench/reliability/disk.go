//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fullDisk writes to a small file system of its own (a tmpfs in a mount namespace) that has less room than the output
// needs, by nothing to all of it, and under limits of the file size.
func (b *bench) fullDisk() ([]*row, error) {
	old, fresh := filepath.Join(b.dir, "old.onnx"), filepath.Join(b.dir, "new.onnx")
	for i, path := range []string{old, fresh} {
		if err := b.heavy(path, i); err != nil {
			return nil, err
		}
	}
	var rows []*row
	for _, plan := range []killPart{
		{"full disk, one file over one file", []string{}, []string{}},
		{"full disk, pair over pair", external, external},
		{"full disk, new output and OUT.data", nil, external},
	} {
		r, err := b.fill(plan, old, fresh)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	r := &row{what: "limit of the file size (ulimit -f)"}
	for step := range 8 {
		dir := filepath.Join(b.dir, "limited")
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
		script := fmt.Sprintf(`ulimit -f %d; exec "$TOOL" apply "$NEW" -o "$DIR/out.onnx" %s %s`, step*5000,
			strings.Join(fast, " "), strings.Join(external, " "))
		out, err := b.shell(exec.Command("sh", "-c", script), dir, "", fresh)
		left, errLeft := snapshot(dir)
		if errLeft != nil {
			return nil, errLeft
		}
		r.tried++
		if code := exitCode(err); code != 2 || len(left) > 0 || !strings.Contains(out, "file too large") {
			r.fail("limit %d: exit code %d, left %s: %s", step*5000, code, names(left), out)
			continue
		}
		r.held++
	}
	r.note = "exit code 2, nothing left"
	return append(rows, r), nil
}

func (b *bench) fill(plan killPart, old, fresh string) (*row, error) {
	r := &row{what: plan.what, note: "exit code 2, old files untouched, nothing else left"}
	if err := exec.Command("unshare", "-Urm", "true").Run(); err != nil {
		r.note = "not tried: no file system can be mounted here (unshare -Urm)"
		return r, nil
	}
	before, dir := filepath.Join(b.dir, "before"), filepath.Join(b.dir, "mounted")
	for _, d := range []string{before, dir} {
		if err := os.RemoveAll(d); err != nil {
			return nil, err
		}
		if err := os.Mkdir(d, 0o777); err != nil {
			return nil, err
		}
	}
	if plan.old != nil {
		if code, said := b.apply("", nil,
			append(append([]string{old, "-o", filepath.Join(before, "out.onnx")}, plan.old...),
				fast...)...); code != 0 {
			return nil, fmt.Errorf("exit code %d: %s", code, said)
		}
	}
	used := int64(0)
	entries, err := os.ReadDir(before)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		used += info.Size()
	}
	for step := range 12 {
		room := used/1024 + 8 + int64(step)*ballast/1024/12
		script := fmt.Sprintf(`mount -t tmpfs -o size=%dk none "$DIR" || exit 99
if [ -e "$OLD/out.onnx" ]; then cp "$OLD"/* "$DIR"; fi
"$TOOL" apply "$NEW" -o "$DIR/out.onnx" %s %s; code=$?
cd "$DIR" && echo "left: $(ls -A | tr '\n' ' ')"
for f in "$OLD"/*; do [ ! -e "$f" ] || cmp "$f" "$(basename "$f")" || code=98; done
exit $code`, room, strings.Join(fast, " "), strings.Join(plan.new, " "))
		out, err := b.shell(exec.Command("unshare", "-Urm", "sh", "-c", script), dir, before, fresh)
		left := ""
		for _, e := range entries {
			left += e.Name() + " "
		}
		r.tried++
		if code := exitCode(err); code != 2 || !strings.Contains(out, "left: "+strings.TrimSpace(left)) ||
			!strings.Contains(out, "no space left") {
			r.fail("%d KB: exit code %d: %s", room, code, out)
			continue
		}
		r.held++
	}
	return r, nil
}

// shell runs a command with the names that the scripts use.
func (b *bench) shell(c *exec.Cmd, dir, old, fresh string) (string, error) {
	c.Env = append(os.Environ(), "TOOL="+b.tool, "DIR="+dir, "OLD="+old, "NEW="+fresh)
	out, err := c.CombinedOutput()
	return string(out), err
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	return -1
}
