package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"plain, größer\n\tand 😀":    "plain, größer\n\tand 😀",
		"\x1b[31mred\x1b[0m":        "\x1b[31mred\x1b[0m",
		"\x1b[2J":                   `\x1b[2J`,
		"a\x1b]0;title\x07b":        `a\x1b]0;title\x07b`,
		"over\rwritten\b":           `over\x0dwritten\x08`,
		"\u009b31m \u202egnp.x\x7f": `\u009b31m \u202egnp.x\x7f`,
		"cut \xf0\x9f":              "cut \xf0\x9f",
		"\x00":                      `\x00`,
	} {
		var b strings.Builder
		if n, err := (shown{&b}).Write([]byte(text)); n != len(text) || err != nil || b.String() != want {
			t.Errorf("%q: %q, want %q (%d, %v)", text, b.String(), want, n, err)
		}
	}
}

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
		run(args, &out, &errs)
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
