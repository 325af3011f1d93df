// Generate writes the table of the kernels of onnxruntime's providers for the CPU and CUDA:
//
//	go run ./ort/kernels/generate ONNXRUNTIME ort/kernels/table.txt.gz
//
// ONNXRUNTIME is a checkout of its sources. Its docs/OperatorKernels.md, which onnxruntime itself makes of the kernels
// that are registered, has what the table says, and VERSION_NUMBER the version that the table is of.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: generate ONNXRUNTIME TABLE")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func generate(sources, out string) error {
	version, err := os.ReadFile(filepath.Join(sources, "VERSION_NUMBER"))
	if err != nil {
		return err
	}
	doc, err := os.ReadFile(filepath.Join(sources, "docs", "OperatorKernels.md"))
	if err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s\n", bytes.TrimSpace(version))
	if err := writeTable(&text, string(doc)); err != nil {
		return err
	}
	return atomicfile.WriteFile(out, func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(text.Bytes()); err != nil {
			return err
		}
		return z.Close()
	})
}

// row is a kernel of one provider.
type row struct {
	domain, op string
	parameters string // the types of its inputs, or the names that types gives types for
	from, to   int    // versions of the op; to is 0 where from alone is meant, as long as the standard has no later one
	types      string
}

// writeTable writes the versions of each op's schema, and its kernels.
func writeTable(w *bytes.Buffer, doc string) error {
	versions := map[string][]int{}
	kernels := map[string]string{}
	for _, section := range strings.Split(doc, "\n## Operators implemented by ")[1:] {
		provider, body, _ := strings.Cut(section, "\n")
		rows, err := readRows(body)
		if err != nil {
			return fmt.Errorf("%s: %w", provider, err)
		}
		device := map[string]string{"CPUExecutionProvider": "CPU", "CUDAExecutionProvider": "CUDA"}[provider]
		for _, r := range rows {
			key := r.domain + "\t" + r.op
			versions[key] = append(versions[key], r.from)
			if device != "" {
				kernels[key] += fmt.Sprintf("%s\t%d\t%d\t%s\t%s\n", device, r.from, r.to, r.parameters, r.types)
			}
		}
	}
	if len(kernels) < 200 {
		return fmt.Errorf("kernels for %d ops were found", len(kernels))
	}
	for _, key := range slices.Sorted(maps.Keys(kernels)) {
		list := versions[key]
		slices.Sort(list)
		fmt.Fprintf(w, "%s\t%s\n%s", key, strings.Trim(fmt.Sprint(slices.Compact(list)), "[]"), kernels[key])
	}
	return nil
}

var (
	domainPattern    = regexp.MustCompile(`^\*\*Operator Domain:\*\* \*(.*)\*$`)
	versionPattern   = regexp.MustCompile(`^(?:\[([0-9]+), ([0-9]+)\]|([0-9]+)(\+?))$`)
	parameterPattern = regexp.MustCompile(`\*(in|out)\* [^:]*:\*\*(.*?)\*\*`)
	typesPattern     = regexp.MustCompile(`\*\*(.*?)\*\* = (.*)`)
)

// readRows reads the table of one provider.
func readRows(body string) (rows []row, err error) {
	var last row
	for line := range strings.Lines(body) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if m := domainPattern.FindStringSubmatch(cells[0]); m != nil {
			last = row{domain: m[1]}
			continue
		}
		if !strings.HasPrefix(line, "|") || last.domain == "" {
			continue
		}
		cells = strings.Split(strings.TrimSpace(line), "|")
		if len(cells) == 3 && strings.TrimSpace(cells[1]) == "" { // the last line
			continue
		}
		if len(cells) < 6 {
			return nil, fmt.Errorf("a line of %d cells: %s", len(cells), line)
		}
		if cells[1] != "" {
			last.op, last.parameters = cells[1], parameters(cells[2])
		}
		r := last
		m := versionPattern.FindStringSubmatch(cells[3])
		if m == nil {
			return nil, fmt.Errorf("%s is of version %q", r.op, cells[3])
		}
		if m[1] != "" {
			r.from, _ = strconv.Atoi(m[1])
			r.to, _ = strconv.Atoi(m[2])
		} else if r.from, _ = strconv.Atoi(m[3]); m[4] == "" {
			r.to = r.from
		}
		var types []string
		for _, one := range strings.Split(cells[4], "<br/>") {
			if m := typesPattern.FindStringSubmatch(one); m != nil {
				types = append(types, strings.TrimSpace(m[1])+"="+plain(m[2]))
			}
		}
		r.types = strings.Join(types, ";")
		rows = append(rows, r)
	}
	return rows, nil
}

// parameters lists the types of the inputs, form by form.
func parameters(cell string) string {
	var forms []string
	for _, form := range strings.Split(cell, "<br><br>or<br><br>") {
		var types []string
		for _, m := range parameterPattern.FindAllStringSubmatch(form, -1) {
			if m[1] == "in" {
				types = append(types, plain(m[2]))
			}
		}
		forms = append(forms, strings.Join(types, ","))
	}
	return strings.Join(forms, "/")
}

var plainNames = strings.NewReplacer(" ", "", "tensor(double)", "float64", "tensor(float)", "float32", "tensor(", "",
	")", "")

// plain writes "tensor(float), tensor(int8)" as "float32,int8".
func plain(types string) string { return plainNames.Replace(types) }
