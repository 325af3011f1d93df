package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// mode is one way to run the program. Its output goes to a file named out.
type mode struct {
	name   string
	args   []string // MODEL and OUT are replaced by the files, SHAPES by the flags that fix a model's shapes
	static bool     // the model needs fixed shapes
}

func modes() []mode {
	list := []mode{apply("default")}
	for _, t := range target.All() {
		m := apply(t.Name, "--target", t.Name)
		m.static = t.Static
		list = append(list, m)
	}
	return append(list,
		apply("static", "--cache", "static"),
		apply("past", "--cache", "static", "--past-length"),
		apply("rows", "--cache", "static", "--past-length=rows"),
		apply("mla", "--mla-cache"),
		apply("mla-static", "--mla-cache", "--cache", "static"),
		apply("quantized", "--quantized", "mojo"),
		apply("merged", "--merge-products"),
		apply("last", "--last-logits"),
		mode{name: "plan", args: []string{"match", "MODEL", "-o", "OUT", "--json"}},
		mode{name: "revert", args: []string{"revert", "PATCHED", "-o", "OUT", "--json"}})
}

func apply(name string, flags ...string) mode {
	return mode{name: name, args: append([]string{"apply", "MODEL", "-o", "OUT", "--json"}, flags...)}
}

// freezer runs the program.
type freezer struct {
	tool string
	dir  string // for the program's output
	jobs int
}

// model runs every mode on a model.
func (f *freezer) model(m model) (row, error) {
	dir, err := os.MkdirTemp(f.dir, "model")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	shapes, err := fixed(m.path)
	if err != nil {
		return nil, err
	}
	r := row{}
	for _, mode := range modes() {
		out := filepath.Join(dir, mode.name)
		if err := os.Mkdir(out, 0o755); err != nil {
			return nil, err
		}
		patched := filepath.Join(dir, "default", "out.onnx")
		if r[mode.name], err = f.digest(mode, m.path, out, patched, shapes); err != nil {
			return nil, fmt.Errorf("%s: %w", mode.name, err)
		}
	}
	return r, nil
}

// digest runs one mode. It returns the exit code unless it is 0, and the digests of the files and of the report.
func (f *freezer) digest(m mode, path, dir, patched string, shapes []string) (string, error) {
	replace := map[string]string{"MODEL": path, "OUT": filepath.Join(dir, "out.onnx"), "PATCHED": patched}
	var args []string
	for _, a := range m.args {
		if to, ok := replace[a]; ok {
			a = to
		}
		args = append(args, a)
	}
	if m.static {
		args = append(args, shapes...)
	}
	cmd := exec.Command(f.tool, append(args, "-q")...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	code := ""
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return "", err
		}
		code = fmt.Sprintf("%d:", exit.ExitCode())
	}
	files, err := content(dir)
	if err != nil {
		return "", err
	}
	text := strings.NewReplacer(path, "MODEL", dir, "DIR", patched, "PATCHED").Replace(report(stdout.Bytes()) +
		stderr.String())
	return code + short(files) + ":" + short([]byte(text)), nil
}

// content joins the files of a folder, with their names.
func content(dir string) ([]byte, error) {
	var all []byte
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if json.Valid(data) {
			data = []byte(report(data)) // a plan
		}
		all = append(append(all, e.Name()...), data...)
	}
	return all, err
}

// unstable lists the keys of reports whose values depend on the run or the processor.
var unstable = map[string]bool{
	"time_ms": true, "peak_rss_bytes": true, "kernel_max_rel": true, "path": true, "sha256": true, "created": true,
	"runtime": true, // the version of onnxruntime
}

// report returns a JSON document without unstable values. Text that is not JSON stays unchanged.
func report(data []byte) string {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return string(data)
	}
	text, err := json.Marshal(stable(v))
	if err != nil {
		return string(data)
	}
	return string(text)
}

func stable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			if unstable[k] {
				delete(v, k)
			} else {
				v[k] = stable(v[k])
			}
		}
	case []any:
		for i := range v {
			v[i] = stable(v[i])
		}
	}
	return v
}

func short(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:4])
}

// fixed returns the flags that fix a model's shapes as in its first recorded case, or nil without recordings.
func fixed(path string) ([]string, error) {
	recorded := strings.TrimSuffix(path, ".onnx") + ".npz"
	if _, err := os.Stat(recorded); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	m, err := onnx.Read(path, onnx.AllowMissingData())
	if err != nil {
		return nil, err
	}
	defer m.Close()
	cases, err := golden.Load(recorded, m)
	if err != nil {
		return nil, err
	}
	var flags []string
	for _, in := range cases[0].Inputs {
		dims := strings.Trim(strings.ReplaceAll(fmt.Sprint(in.Dims), " ", "x"), "[]")
		flags = append(flags, "--shape", in.Name+"="+dims)
	}
	return flags, nil
}
