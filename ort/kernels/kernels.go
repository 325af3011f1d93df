// Package kernels lists the kernels of onnxruntime's CPU and CUDA providers in several versions, for use without
// onnxruntime. Its table comes from the kernels that onnxruntime registers (see generate.py).
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

// The devices of the table.
const (
	CPU  = "CPU"
	CUDA = "CUDA"
)

// body is the device of ops that run on their definition, for some opsets.
const body = "body"

// Version is a version of onnxruntime.
type Version struct {
	Name string
	// Opset is the newest standard opset whose models it opens.
	Opset int64

	bit uint64
}

// schema is the versions of an op's schema, in ascending order.
type schema struct {
	of       uint64 // the onnxruntime versions that have it, as bits
	versions []int64
}

// op is the table's entry for an op.
type op struct {
	schemas []schema
	kernels []kernel
}

// kernel is a kernel for some versions of an op, or a body for some opsets.
type kernel struct {
	of       uint64 // as in schema
	device   string
	from, to int64
	forms    [][]string          // of inputs: types, or names of types
	types    map[string][]string // by these names
}

// table is the unpacked table.
type table struct {
	versions []Version
	ops      map[string]*op
	devices  map[string]uint64 // the versions whose kernels for a device are known
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
	t.ops, t.devices = map[string]*op{}, map[string]uint64{}
	var last *op
	for lines.Scan() {
		cells := strings.Split(lines.Text(), "\t")
		switch {
		case t.versions == nil:
			if t.versions, err = parseVersions(cells); err != nil {
				return t, err
			}
		case len(cells) == 2:
			last = &op{}
			t.ops[key(cells[0], cells[1])] = last
		case last == nil:
			return t, fmt.Errorf("no op before %q", lines.Text())
		case len(cells) == 3:
			var s schema
			if s.of, err = strconv.ParseUint(cells[0], 16, 64); err != nil {
				return t, err
			}
			if s.versions, err = parseInts(strings.Fields(cells[2])); err != nil {
				return t, err
			}
			last.schemas = append(last.schemas, s)
		case len(cells) == 6:
			k := kernel{device: cells[1], types: map[string][]string{}}
			if k.of, err = strconv.ParseUint(cells[0], 16, 64); err != nil {
				return t, err
			}
			between, err := parseInts(cells[2:4])
			if err != nil {
				return t, err
			}
			k.from, k.to = between[0], between[1]
			for form := range strings.SplitSeq(cells[4], "/") {
				k.forms = append(k.forms, strings.Split(form, ","))
			}
			for entry := range strings.SplitSeq(cells[5], ";") {
				name, types, _ := strings.Cut(entry, "=")
				k.types[name] = strings.Split(types, ",")
			}
			last.kernels = append(last.kernels, k)
			t.devices[k.device] |= k.of
		default:
			return t, fmt.Errorf("a line of %d cells: %q", len(cells), lines.Text())
		}
	}
	return t, lines.Err()
}

func parseVersions(cells []string) (list []Version, err error) {
	for i, cell := range cells {
		name, opset, _ := strings.Cut(cell, ":")
		v := Version{Name: name, bit: 1 << i}
		if v.Opset, err = strconv.ParseInt(opset, 10, 64); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func parseInts(cells []string) (list []int64, err error) {
	for _, cell := range cells {
		n, err := strconv.ParseInt(cell, 10, 64)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

func key(domain, name string) string {
	if onnx.IsStandardDomain(domain) {
		domain = "ai.onnx"
	}
	return domain + "." + name
}

// Versions lists the onnxruntime versions whose kernels for a device are known, oldest first.
func Versions(device string) []Version {
	t := read()
	return slices.DeleteFunc(slices.Clone(t.versions), func(v Version) bool { return t.devices[device]&v.bit == 0 })
}

// Newest returns the last of Versions.
func Newest(device string) Version {
	list := Versions(device)
	return list[len(list)-1]
}

// Since returns the version of an op in a model that imports this version of its domain, or 0.
func (v Version) Since(domain, name string, opset int64) (since int64) {
	o := read().ops[key(domain, name)]
	if o == nil {
		return 0
	}
	for _, s := range o.schemas {
		for _, version := range s.versions {
			if s.of&v.bit != 0 && version <= opset {
				since = version
			}
		}
	}
	return since
}

// moving are the ops with bodies that compute nothing, so they run even in types without arithmetic.
var moving = []string{"CastLike", "CenterCropPad"}

// Refused returns why a device has no kernel for an op of a model that imports this version of its domain, with inputs
// of these types (Undefined if unknown or omitted). It returns nil if the device has a kernel, or if the op runs on its
// definition.
func (v Version) Refused(device, domain, name string, opset int64, inputs []onnx.DataType) error {
	o := read().ops[key(domain, name)]
	switch {
	case key(domain, name) == "ai.onnx.Constant":
		return nil // it becomes an initializer
	case o == nil:
		return fmt.Errorf("%s has no kernel for %s", device, name)
	}
	since := v.Since(domain, name, opset)
	// A bfloat16 body uses ops that the CPU does not have in bfloat16.
	noBody := device == CPU && slices.Contains(inputs, onnx.BFloat16) && !slices.Contains(moving, name)
	refused := fmt.Errorf("%s has no kernel for %s(%d)", device, name, since)
	for _, k := range o.kernels {
		if k.of&v.bit == 0 {
			continue
		}
		if k.device == body && k.from <= opset && opset <= k.to && !noBody {
			return nil
		}
		// A kernel without an end supports only its first version: the next one may have another meaning.
		if k.device != device || k.from != since && (since < k.from || since > k.to) {
			continue
		}
		if refused = k.refuses(inputs); refused == nil {
			return nil
		}
	}
	return refused
}

// RefusedReduction returns why a device has no kernel for the reduction of a scatter with inputs of these types, or
// nil. The CPU's kernels accept half types, but fail when they reduce them.
func RefusedReduction(device string, n *onnx.Node, inputs []onnx.DataType) error {
	r := n.AttrString("reduction", "none")
	if device != CPU || r == "none" || !n.Is("ScatterElements") && !n.Is("ScatterND") || len(inputs) == 0 ||
		!inputs[0].IsHalf() {
		return nil
	}
	return fmt.Errorf("the kernel for %s has no reduction %q of %s", device, r, inputs[0])
}

// refuses returns an error that names an input the kernel does not accept, or nil.
func (k *kernel) refuses(inputs []onnx.DataType) (refused error) {
	for _, form := range k.forms {
		if refused = k.fits(form, inputs); refused == nil {
			return nil
		}
	}
	return refused
}

// fits checks inputs against one form of an op's inputs. The last input may repeat.
func (k *kernel) fits(form []string, inputs []onnx.DataType) error {
	bound := map[string]onnx.DataType{}
	for i, t := range inputs {
		if t == onnx.Undefined {
			continue
		}
		name := form[min(i, len(form)-1)]
		types, named := k.types[name]
		if !named {
			if _, err := onnx.ParseDataType(name); err != nil { // a type name of another version
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
