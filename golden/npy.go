package golden

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mojo-patch/mojo-patch/onnx"
)

const npyMagic = "\x93NUMPY"

// npyTypes maps numpy's descr (without byte order) to the data type. V2 and V1 hold ml_dtypes' types.
var npyTypes = map[string]onnx.DataType{
	"f4": onnx.Float, "f8": onnx.Double, "f2": onnx.Float16, "V2": onnx.BFloat16,
	"i1": onnx.Int8, "i2": onnx.Int16, "i4": onnx.Int32, "i8": onnx.Int64,
	"u1": onnx.Uint8, "u2": onnx.Uint16, "u4": onnx.Uint32, "u8": onnx.Uint64,
	"b1": onnx.Bool, "c8": onnx.Complex64, "c16": onnx.Complex128,
}

var npyHeader = struct{ descr, fortran, shape *regexp.Regexp }{
	regexp.MustCompile(`'descr'\s*:\s*'([<>|=]?)([a-zA-Z]\d*)'`),
	regexp.MustCompile(`'fortran_order'\s*:\s*(True|False)`),
	regexp.MustCompile(`'shape'\s*:\s*\(([\d,\s]*)\)`),
}

// readNPY reads one .npy array of size bytes in total. want is the type the model declares, or Undefined; it decides if
// numpy's type is ambiguous.
func readNPY(r io.Reader, size int64, name string, want onnx.DataType) (*onnx.Tensor, error) {
	head := make([]byte, 10)
	if _, err := io.ReadFull(r, head); err != nil || string(head[:6]) != npyMagic {
		return nil, fmt.Errorf("it is not a .npy array")
	}
	length := int64(binary.LittleEndian.Uint16(head[8:]))
	start := int64(10)
	if head[6] > 1 { // versions 2 and 3 have a header length of four bytes
		more := make([]byte, 2)
		if _, err := io.ReadFull(r, more); err != nil {
			return nil, fmt.Errorf("its header is cut off: %w", err)
		}
		length |= int64(binary.LittleEndian.Uint16(more)) << 16
		start += 2
	}
	if length > 1<<16 {
		return nil, fmt.Errorf("its header claims %d bytes", length)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, fmt.Errorf("its header is cut off: %w", err)
	}
	descr, fortran, shape := npyHeader.descr.FindSubmatch(text), npyHeader.fortran.FindSubmatch(text),
		npyHeader.shape.FindSubmatch(text)
	if descr == nil || fortran == nil || shape == nil {
		return nil, fmt.Errorf(
			"cannot read its header %q: arrays of Python objects and of structures are not supported",
			strings.TrimSpace(string(text)))
	}
	dims, err := parseShape(string(shape[1]))
	if err != nil {
		return nil, err
	}
	a := npyArray{name: name, descr: string(descr[2]), big: string(descr[1]) == ">",
		fortran: string(fortran[1]) == "True", dims: dims}
	return a.read(r, size-start-length, want)
}

func parseShape(s string) ([]int64, error) {
	dims := []int64{}
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		d, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("cannot read its shape (%s): %w", s, err)
		}
		dims = append(dims, d)
	}
	return dims, nil
}

type npyArray struct {
	name         string
	descr        string
	big, fortran bool
	dims         []int64
}

func (a npyArray) read(r io.Reader, size int64, want onnx.DataType) (*onnx.Tensor, error) {
	if a.descr[0] == 'U' || a.descr[0] == 'S' {
		return a.readStrings(r, size)
	}
	t, ok := npyTypes[a.descr]
	if a.descr == "V1" {
		if want.Bits() != 8 || want.IsInteger() || want == onnx.Bool {
			return nil, fmt.Errorf("its type V1 is one of the 8-bit floats: only the model can tell which, " +
				"but it does not")
		}
		t, ok = want, true
	}
	if !ok {
		return nil, fmt.Errorf("its type %q is not supported", a.descr)
	}
	if a.descr == "u2" && want == onnx.BFloat16 {
		t = onnx.BFloat16
	}
	tensor := &onnx.Tensor{DataType: t, Dims: a.dims}
	if n := tensor.Size(); n != size {
		return nil, fmt.Errorf("%s%v takes %d bytes, but the array holds %d", t, a.dims, n, size)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(r, raw); err != nil {
		return nil, fmt.Errorf("its elements are cut off: %w", err)
	}
	width := t.Bits() / 8
	if a.big {
		swap := width
		if t == onnx.Complex64 || t == onnx.Complex128 {
			swap /= 2
		}
		for e := range slices.Chunk(raw, swap) {
			slices.Reverse(e)
		}
	}
	if a.fortran && len(a.dims) > 1 {
		raw = fromFortran(raw, a.dims, width)
	}
	tensor, err := onnx.NewTensor(a.name, t, a.dims, raw)
	if err == nil && want == onnx.BFloat16 && t == onnx.Float {
		return Convert(tensor, want)
	}
	return tensor, err
}

// fromFortran reorders elements whose first index varies fastest.
func fromFortran(raw []byte, dims []int64, width int) []byte {
	out := make([]byte, len(raw))
	index := make([]int64, len(dims))
	for to := 0; to < len(out); to += width {
		from, stride := int64(0), int64(width)
		for k, i := range index {
			from += i * stride
			stride *= dims[k]
		}
		copy(out[to:to+width], raw[from:])
		for k := len(index) - 1; k >= 0; k-- {
			if index[k]++; index[k] < dims[k] {
				break
			}
			index[k] = 0
		}
	}
	return out
}

// readStrings reads numpy's strings of fixed width: UTF-32 (U) or bytes (S), padded with zeros.
func (a npyArray) readStrings(r io.Reader, size int64) (*onnx.Tensor, error) {
	width, err := strconv.ParseInt(a.descr[1:], 10, 32)
	if err != nil || width <= 0 || a.fortran && len(a.dims) > 1 {
		return nil, fmt.Errorf("its strings of type %q are not supported", a.descr)
	}
	if a.descr[0] == 'U' {
		width *= 4
	}
	n := (&onnx.Tensor{Dims: a.dims}).Len()
	if n < 0 || n != size/width || n*width != size {
		return nil, fmt.Errorf("%d strings of %d bytes do not fill the array's %d bytes", n, width, size)
	}
	var order binary.ByteOrder = binary.LittleEndian
	if a.big {
		order = binary.BigEndian
	}
	s := make([]string, n)
	buffer := make([]byte, width)
	for i := range s {
		if _, err := io.ReadFull(r, buffer); err != nil {
			return nil, fmt.Errorf("its elements are cut off: %w", err)
		}
		b := buffer
		if a.descr[0] == 'U' {
			b = nil
			for u := range slices.Chunk(buffer, 4) {
				b = utf8.AppendRune(b, rune(order.Uint32(u)))
			}
		}
		s[i] = strings.TrimRight(string(b), "\x00")
	}
	return onnx.NewStrings(a.name, a.dims, s)
}

// writeNPY writes the tensor as numpy.save does, version 1.0, in C order.
func writeNPY(w io.Writer, t *onnx.Tensor) error {
	descr, raw, err := npyElements(t)
	if err != nil {
		return err
	}
	var shape strings.Builder
	for _, d := range t.Dims {
		fmt.Fprintf(&shape, "%d, ", d)
	}
	tuple := strings.TrimSuffix(shape.String(), " ")
	if len(t.Dims) != 1 { // Python writes (3,) but (2, 3)
		tuple = strings.TrimSuffix(tuple, ",")
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, tuple)
	// Blanks and a newline pad the header, so that the elements start at a multiple of 64.
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	if len(header) > math.MaxUint16 {
		return fmt.Errorf("its shape of %d dimensions is too long for .npy", len(t.Dims))
	}
	head := append([]byte(npyMagic), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(header)))
	if _, err := w.Write(append(head, header...)); err != nil {
		return err
	}
	_, err = w.Write(raw)
	return err
}

func npyElements(t *onnx.Tensor) (descr string, raw []byte, err error) {
	if t.DataType == onnx.String {
		descr, raw = npyStrings(t.Strings())
		return descr, raw, nil
	}
	if t.DataType.Bits() < 8 {
		return "", nil, fmt.Errorf(".npz does not support %s: save to a folder of test data instead", t.DataType)
	}
	order := "<"
	if t.DataType.Bits() == 8 {
		order = "|"
	}
	descr = "<V1"
	for name, dt := range npyTypes {
		if dt == t.DataType {
			descr = order + name
		}
	}
	raw, err = t.Bytes()
	return descr, raw, err
}

func npyStrings(s []string) (descr string, raw []byte) {
	width := 1
	for _, x := range s {
		width = max(width, utf8.RuneCountInString(x))
	}
	for _, x := range s {
		n := 0
		for _, r := range x {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(r))
			n++
		}
		raw = append(raw, make([]byte, 4*(width-n))...)
	}
	return fmt.Sprintf("<U%d", width), raw
}
