// Command newop writes the folder of a new op that multiplies by a factor: a declaration, a test, a formula in numpy
// and a CPU kernel, to be changed into what the op computes. It adds the folder to the catalog.
package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/mojo-patch/mojo-patch/fused"
)

//go:embed templates
var files embed.FS

// templates write the files. Actions are between << and >>.
var templates = template.Must(template.New("").Delims("<<", ">>").ParseFS(files, "templates/*"))

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: newop ROOT NAME")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "newop:", err)
		os.Exit(1)
	}
}

var named = regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`)

// write writes the folder of an op and adds it to the catalog, in the repository at root.
func write(root, name string) error {
	folder := strings.ToLower(name)
	at := filepath.Join(root, "fused", folder)
	switch _, err := os.Stat(at); {
	case !named.MatchString(name):
		return fmt.Errorf("%q is not the name of an op: write letters and digits, as in RotaryEmbedding", name)
	case fused.Lookup(name) != nil:
		return fmt.Errorf("there is an op %s", name)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("the folder %s is there: choose another name", at)
	}
	for file, path := range map[string]string{"op.go.tmpl": folder + ".go", "test.go.tmpl": folder + "_test.go",
		"formula.py.tmpl": "formula.py", "kernel.cc.tmpl": "cpu/" + folder + ".cc"} {
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, file, map[string]string{"Name": name, "Folder": folder}); err != nil {
			return err
		}
		path := filepath.Join(at, filepath.FromSlash(path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777),
			os.WriteFile(path, b.Bytes(), 0o666)); err != nil {
			return err
		}
	}
	return list(filepath.Join(root, "fused", "catalogue.go"), folder)
}

// list adds a folder to the imports and the folders of the catalog.
func list(path, folder string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(b)
	for _, add := range [][2]string{
		{")\n", "\t\"github.com/mojo-patch/mojo-patch/fused/" + folder + "\"\n"},
		{"}\n\nvar ops", fmt.Sprintf("\t{%q, %s.Ops},\n", folder, folder)},
	} {
		before, after, ok := strings.Cut(text, add[0])
		if !ok {
			return fmt.Errorf("%s: %q is missing: add the folder %s by hand", path, add[0], folder)
		}
		text = before + add[1] + add[0] + after
	}
	if b, err = format.Source([]byte(text)); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o666)
}
