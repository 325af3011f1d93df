//go:build unix

package onnx

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
)

// versionOf makes one of two models that differ in all weights.
func versionOf(t *testing.T, version byte) *Model {
	t.Helper()
	m := New(10, 21)
	for i, name := range []string{"a", "b"} {
		w, err := NewTensor(name, Uint8, []int64{5000}, bytes.Repeat([]byte{version + byte(i)}, 5000))
		must(t, err)
		m.Graph.AddInitializer(w)
	}
	return m
}

// version returns the version that is complete at path, or 0.
func version(t *testing.T, path string) byte {
	t.Helper()
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return 0
	}
	m, err := Read(path)
	must(t, err)
	defer m.Close()
	v := byte(0)
	for i, name := range []string{"a", "b"} {
		b, err := m.Graph.Value(name).Const.Bytes()
		must(t, err)
		v = b[0] - byte(i)
		if !bytes.Equal(b, bytes.Repeat([]byte{v + byte(i)}, 5000)) {
			t.Errorf("%s is a mix", name)
		}
	}
	return v
}

var pair = ExternalDataOver(1000)

func oneFile(*writeOptions) {}

// TestDeathInCommit kills a process after each step of a commit. Afterwards the old version or the new one must be
// there, and the next write must leave no more files than without a death.
func TestDeathInCommit(t *testing.T) {
	if at := os.Getenv("DIE_AFTER"); at != "" {
		steps, _ := strconv.Atoi(at)
		renamed = func() {
			if steps--; steps == 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
		option, m := WriteOption(oneFile), versionOf(t, 20)
		switch os.Getenv("KIND") {
		case "pair":
			option = pair
		case "link":
			var err error
			m, err = Read(os.Getenv("SOURCE"))
			must(t, err)
			option = LinkData()
		}
		must(t, Write(os.Getenv("OUT"), m, option))
		return
	}
	source := filepath.Join(t.TempDir(), "source.onnx")
	must(t, Write(source, versionOf(t, 20), pair))
	for name, old := range map[string]WriteOption{"nothing": nil, "one file": oneFile, "pair": pair} {
		for kind, option := range map[string]WriteOption{"one file": oneFile, "pair": pair, "link": pair} {
			for step := 1; ; step++ {
				out := filepath.Join(t.TempDir(), "out.onnx")
				before := byte(0)
				if old != nil {
					before = 10
					must(t, Write(out, versionOf(t, before), old))
				}
				c := exec.Command(os.Args[0], "-test.run", "^TestDeathInCommit$")
				c.Env = append(os.Environ(), "DIE_AFTER="+strconv.Itoa(step), "OUT="+out, "KIND="+kind,
					"SOURCE="+source)
				said, err := c.CombinedOutput()
				if err == nil {
					if step == 1 {
						t.Errorf("%s over %s: no step of the commit was seen", kind, name)
					}
					break
				}
				if c.ProcessState.ExitCode() != -1 {
					t.Fatalf("%s", said)
				}
				if v := version(t, out); v != before && v != 20 {
					t.Errorf("%s over %s, dead after step %d: version %d is there", kind, name, step, v)
				}
				for _, next := range []WriteOption{option, oneFile} {
					must(t, Write(out, versionOf(t, 30), next))
					if v := version(t, out); v != 30 {
						t.Errorf("%s over %s, dead after step %d: then version %d is there", kind, name, step, v)
					}
				}
				if left, _ := os.ReadDir(filepath.Dir(out)); len(left) != 1 {
					t.Errorf("%s over %s, dead after step %d: left %v", kind, name, step, left)
				}
				if v := version(t, source); v != 20 {
					t.Errorf("%s over %s, dead after step %d: the source is version %d", kind, name, step, v)
				}
			}
		}
	}
}

// TestRenameFails makes each rename of a commit fail: the old version stays, or the error names the new one's place.
func TestRenameFails(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.onnx")
	must(t, Write(out, versionOf(t, 10), pair))
	for step, missing := range []func(*Staged) string{
		func(s *Staged) string { return s.first },
		func(s *Staged) string { return s.data },
		func(s *Staged) string { return s.model },
	} {
		s, err := Stage(out, versionOf(t, 20), pair)
		must(t, err)
		if v := version(t, s.Path()); v != 20 {
			t.Errorf("staged is version %d", v)
		}
		must(t, os.Remove(missing(s)))
		if err := s.Commit(); err == nil {
			t.Errorf("step %d: no error", step)
		}
		if v := version(t, out); step < 2 && v != 10 || step == 2 && v != 20 {
			t.Errorf("step %d: version %d is there", step, v)
		}
	}
	must(t, Write(out, versionOf(t, 30), pair))
	if left, _ := os.ReadDir(filepath.Dir(out)); len(left) != 2 || version(t, out) != 30 {
		t.Errorf("left %v", left)
	}
}

func TestStagedIsTakenBack(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.onnx")
	s, err := Stage(out, versionOf(t, 10), pair)
	must(t, err)
	if err := Write(out, versionOf(t, 20)); !errors.Is(err, atomicfile.ErrBusy) {
		t.Errorf("a second run: %v", err)
	}
	must(t, s.Close())
	must(t, s.Close())
	emptyFolder(t, filepath.Dir(out))
}

// TestDataOfOtherModels keeps data files that models beside the output refer to.
func TestDataOfOtherModels(t *testing.T) {
	dir := t.TempDir()
	out, other := filepath.Join(dir, "out.onnx"), filepath.Join(dir, "other.onnx")
	must(t, Write(out, versionOf(t, 10), pair))
	b, err := os.ReadFile(out)
	must(t, err)
	must(t, os.WriteFile(other, b, 0o666))
	if err := Write(out, versionOf(t, 20), pair); err == nil || !strings.Contains(err.Error(), "other.onnx") {
		t.Errorf("got %v", err)
	}
	must(t, Write(out, versionOf(t, 20)))
	if version(t, out) != 20 || version(t, other) != 10 {
		t.Error("another model lost its data")
	}
}
