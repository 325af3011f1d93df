//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// fullDisk writes to a small file system (a tmpfs in a mount namespace) with less room than the output needs, from zero
// to all of it, and under limits of the file size.
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
		r.check(fmt.Sprintf("limit %d", step*5000), func() error {
			dir := filepath.Join(b.dir, "limited")
			if err := emptied(dir); err != nil {
				return err
			}
			script := fmt.Sprintf(`ulimit -f %d; exec "$TOOL" apply "$NEW" -o "$DIR/out.onnx" %s %s`, step*5000,
				strings.Join(fast, " "), strings.Join(external, " "))
			out, err := b.shell(exec.Command("sh", "-c", script), dir, "", fresh)
			left, errLeft := snapshot(dir)
			if code := exitCode(err); code != 2 || len(left) > 0 || !strings.Contains(out, "file too large") {
				return fmt.Errorf("exit code %d, left %s: %s", code, names(left), out)
			}
			return errLeft
		})
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
	dir := filepath.Join(b.dir, "mounted")
	before, err := b.before(plan, old)
	if err = errors.Join(err, emptied(dir)); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(before)
	if err != nil {
		return nil, err
	}
	used, left := int64(0), "left:"
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		used += info.Size()
		left += " " + e.Name()
	}
	for step := range 12 {
		room := used/1024 + 8 + int64(step)*ballast/1024/12
		script := fmt.Sprintf(`mount -t tmpfs -o size=%dk none "$DIR" || exit 99
if [ -e "$OLD/out.onnx" ]; then cp "$OLD"/* "$DIR"; fi
"$TOOL" apply "$NEW" -o "$DIR/out.onnx" %s %s; code=$?
cd "$DIR" && echo "left: $(ls -A | tr '\n' ' ')"
for f in "$OLD"/*; do [ ! -e "$f" ] || cmp "$f" "$(basename "$f")" || code=98; done
exit $code`, room, strings.Join(fast, " "), strings.Join(plan.new, " "))
		r.check(fmt.Sprintf("%d KB", room), func() error {
			out, err := b.shell(exec.Command("unshare", "-Urm", "sh", "-c", script), dir, before, fresh)
			code := exitCode(err)
			if code != 2 || !strings.Contains(out, left) || !strings.Contains(out, "no space left") {
				return fmt.Errorf("exit code %d: %s", code, out)
			}
			return nil
		})
	}
	return r, nil
}

// before makes the folder with a plan's initial files.
func (b *bench) before(plan killPart, input string) (dir string, err error) {
	dir = filepath.Join(b.dir, "before")
	if err = emptied(dir); err == nil && plan.old != nil {
		err = b.applies(0, input, filepath.Join(dir, "out.onnx"), slices.Concat(plan.old, fast)...)
	}
	return dir, err
}

// shell runs a command with the names that the scripts use.
func (b *bench) shell(c *exec.Cmd, dir, old, fresh string) (string, error) {
	c.Env = append(os.Environ(), "TOOL="+b.tool, "DIR="+dir, "OLD="+old, "NEW="+fresh)
	out, err := c.CombinedOutput()
	return string(out), err
}
