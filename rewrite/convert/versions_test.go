package convert

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestVersionsAreOnnxs compares the table with the schemas of Python's onnx.
func TestVersionsAreOnnxs(t *testing.T) {
	out, err := exec.Command(python(t), filepath.Join(root, "tools", "onnx-op-versions.py")).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != versionsText {
		t.Errorf("versions.txt is not what tools/onnx-op-versions.py writes: run it again, and give each new version " +
			"its step")
	}
}

// TestEveryVersionHasAStep expects a step for every version that changed more than types, and for no other.
func TestEveryVersionHasAStep(t *testing.T) {
	needed := map[string]map[int64]bool{}
	for op, versions := range known().ops {
		needed[op] = map[int64]bool{}
		for i, v := range versions {
			if i > 0 && v.since <= versions[i-1].since {
				t.Errorf("%s: version %d follows %d", op, v.since, versions[i-1].since)
			}
			if i > 0 && !v.same {
				needed[op][v.since] = true
				if _, ok := steps[op][v.since]; !ok {
					t.Errorf("%s: version %d has no step", op, v.since)
				}
			}
		}
	}
	for op, list := range steps {
		for v := range list {
			if !needed[op][v] {
				t.Errorf("%s: the step for version %d has no use", op, v)
			}
		}
	}
	for v := int64(Oldest); v <= Newest(); v++ {
		if known().irVersion[v] == 0 {
			t.Errorf("opset %d has no IR version", v)
		}
	}
}

func TestParseVersionsErrs(t *testing.T) {
	for _, text := range []string{"ir_version 13", "ir_version a:7", "Add 13 x", "Add 13 =14", "Add bfloat16:x"} {
		if s, err := parseVersions(text); err == nil {
			t.Errorf("%q: %v", text, s)
		}
	}
}
