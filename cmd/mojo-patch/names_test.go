package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestNamesOfOthers patches a model whose names contain markup and control characters. Neither the page nor the
// terminal may interpret them.
func TestNamesOfOthers(t *testing.T) {
	const markup = "<img src=x onerror=alert(1)>'\"</script><script>alert(2)</script>{{.}}"
	const control = "\x1b]0;x\x07\r\u202e"
	m, err := onnx.Read("../../models/llama-ts-fp32.onnx")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.ProducerName, m.ProducerVersion = markup+control, markup
	for i, n := range m.Graph.Nodes {
		n.Name += markup + control
		for _, v := range n.Outputs {
			if i%2 == 0 && !v.IsOutput() {
				if err := m.Graph.Rename(v, v.Name+markup+control); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, v := range m.Graph.Inputs {
		if err := m.Graph.Rename(v, v.Name+markup+control); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	path, html := filepath.Join(dir, "<b>model&.onnx"), filepath.Join(dir, "page.html")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"apply", path, "-o", filepath.Join(dir, "o.onnx"), "--assume-available", "--check-kernels", "off", "-v",
			"--html", html},
		{"inspect", path, "-v"}, {"inspect", path, "--why"}, {"match", path, "-v", "--assume-available"},
		{"diff", path, path, "--evaluator", "--dim", "sequence=3", "--layers"}, {"revert", path, "-o", html + control},
		{"apply", path + control, "-o", path},
	} {
		var out, errs strings.Builder
		execute(args, &out, &errs)
		if errs.Len() == 0 {
			t.Errorf("%s says nothing", args)
		}
		for _, c := range []string{"\x1b", "\x07", "\r", "\u202e"} {
			if i := strings.Index(errs.String(), c); i >= 0 {
				t.Errorf("%s says %q to a terminal: %q", args, c, errs.String()[max(0, i-80):i+20])
			}
		}
	}
	page, err := os.ReadFile(html)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"<img", "<script>alert", "<b>model"} {
		if strings.Contains(string(page), text) {
			t.Errorf("the page has %s", text)
		}
	}
	if !strings.Contains(string(page), "&lt;img src=x onerror") {
		t.Error("the page does not show the names")
	}
}
