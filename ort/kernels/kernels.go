// Package kernels knows which kernels onnxruntime's providers for the CPU and CUDA have, for machines without them. Its
// table is made of the kernels that onnxruntime has registered (see generate.py).
package kernels

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
)

//go:embed table.txt.gz
var packed []byte

// op is what the table says of one.
type op struct {
	versions []int // of the schema, in ascending order
	kernels  []kernel
}

// kernel is one for some versions of an op.
type kernel struct {
	device   string
	from, to int
	forms    [][]string          // of inputs: types, or names of types
	types    map[string][]string // by these names
}

// table is the unpacked table, and the version of onnxruntime that it is of.
type table struct {
	version string
	ops     map[string]*op
}

var read = sync.OnceValue(func() table {
	t, err := parse(packed)
	if err != nil {
		panic(fmt.Sprintf("ort/kernels: %v", err)) // the table is part of the program
	}
	return t
})

func parse(packed []byte) (t table, err error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return t, err
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	t.ops = map[string]*op{}
	var last *op
	for lines.Scan() {
		cells := strings.Split(lines.Text(), "\t")
		switch {
		case len(cells) == 1 && t.version == "":
			t.version = cells[0]
		case len(cells) == 3:
			last = &op{}
			t.ops[key(cells[0], cells[1])] = last
			for _, text := range strings.Fields(cells[2]) {
				n, err := strconv.Atoi(text)
				if err != nil {
					return t, err
				}
				last.versions = append(last.versions, n)
			}
		case len(cells) == 5 && last != nil:
			k := kernel{device: cells[0], types: map[string][]string{}}
			if _, err := fmt.Sscan(cells[1]+" "+cells[2], &k.from, &k.to); err != nil {
				return t, err
			}
			for form := range strings.SplitSeq(cells[3], "/") {
				k.forms = append(k.forms, strings.Split(form, ","))
			}
			for entry := range strings.SplitSeq(cells[4], ";") {
				name, types, _ := strings.Cut(entry, "=")
				k.types[name] = strings.Split(types, ",")
			}
			last.kernels = append(last.kernels, k)
		default:
			return t, fmt.Errorf("a line of %d cells: %q", len(cells), lines.Text())
		}
	}
	return t, lines.Err()
}

func key(domain, name string) string {
	if onnx.IsStandardDomain(domain) {
		domain = "ai.onnx"
	}
	return domain + "." + name
}

// Version is the version of onnxruntime that the table is of.
func Version() string { return read().version }

// The devices that the table is about.
const (
	CPU  = "CPU"
	CUDA = "CUDA"
)

// Refused returns why a device has no kernel for an op of a model that imports this version of its domain, with inputs
// of these types, of which Undefined ones are not known or left out; nil where it has one.
func Refused(device, domain, name string, opset int64, inputs []onnx.DataType) error {
	o := read().ops[key(domain, name)]
	if o == nil {
		return fmt.Errorf("%s has no kernel for %s", device, name)
	}
	version := 0
	for _, v := range o.versions {
		if int64(v) <= opset {
			version = v
		}
	}
	refused := fmt.Errorf("%s has no kernel for %s(%d)", device, name, version)
	for _, k := range o.kernels {
		// A kernel without an end is for its first version alone: the next one may mean something else.
		if k.device != device || k.from != version && (version < k.from || version > k.to) {
			continue
		}
		if refused = k.refuses(inputs); refused == nil {
			return nil
		}
	}
	return refused
}

// refuses returns which of the inputs the kernel does not take.
func (k *kernel) refuses(inputs []onnx.DataType) (refused error) {
	for _, form := range k.forms {
		if refused = k.fits(form, inputs); refused == nil {
			return nil
		}
	}
	return refused
}

// fits checks inputs against one form of an op's inputs. The last one may stand for any number.
func (k *kernel) fits(form []string, inputs []onnx.DataType) error {
	bound := map[string]onnx.DataType{}
	for i, t := range inputs {
		if t == onnx.Undefined {
			continue
		}
		name := form[min(i, len(form)-1)]
		types, named := k.types[name]
		if !named {
			if _, err := onnx.ParseDataType(name); err != nil { // a name of another version's types
				continue
			}
			types = []string{name}
		}
		if !slices.Contains(types, t.String()) {
			return fmt.Errorf("the kernel for %s takes %s as input %d, not %s", k.device, strings.Join(types, ", "), i,
				t)
		}
		if other, known := bound[name]; named && known && other != t && i < len(form) {
			return fmt.Errorf("the kernel for %s takes inputs of one type, not %s and %s", k.device, other,
				t)
		}
		bound[name] = t
	}
	return nil
}
