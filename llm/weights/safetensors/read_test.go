package safetensors

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestElements compares the tensors of testdata with torch's results: see testdata/make.py.
func TestElements(t *testing.T) {
	list, err := os.Open("testdata/expected.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	f := open(t, "testdata/types.safetensors")
	if want := map[string]string{"format": "pt", "Größe": "世界"}; !maps.Equal(f.Metadata, want) {
		t.Errorf("metadata %v, want %v", f.Metadata, want)
	}
	seen := map[Type]bool{}
	for lines := bufio.NewScanner(list); lines.Scan(); {
		field := strings.Fields(lines.Text())
		x := f.Tensor(field[1])
		if x == nil {
			t.Errorf("no tensor %s", field[1])
			continue
		}
		var dims []string
		for _, d := range x.Dims {
			dims = append(dims, strconv.FormatInt(d, 10))
		}
		if got := strings.Join(dims, "x"); got != strings.TrimSuffix(field[3], "scalar") || string(x.Type) != field[2] {
			t.Errorf("%s is %s %s, want %s %s", x.Name, x.Type, got, field[2], field[3])
		}
		if got := hash(t, x); got != field[4] {
			t.Errorf("elements of %s differ from torch's", x.Name)
		}
		seen[x.Type] = true
	}
	for kind := range types {
		if kind.Readable() && !seen[kind] {
			t.Errorf("type %s is not tested", kind)
		}
	}
}

// hash hashes the elements as float32, with one NaN for all NaNs.
func hash(t *testing.T, x *Tensor) string {
	t.Helper()
	values := make([]float32, x.Elements)
	if err := x.Float32(values, 0); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, v := range values {
		n := math.Float32bits(v)
		if v != v {
			n = 0x7fc00000
		}
		h.Write(binary.LittleEndian.AppendUint32(nil, n))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestRange(t *testing.T) {
	x := open(t, "testdata/types.safetensors").Tensor("dims")
	values := make([]float32, 3)
	if err := x.Float32(values, 5); err != nil || values[0] != 5 || values[2] != 7 {
		t.Errorf("got %v, %v", values, err)
	}
	for _, first := range []int64{-1, 22, math.MaxInt64} {
		if err := x.Float32(values, first); err == nil ||
			!strings.Contains(err.Error(), `types.safetensors: tensor "dims": cannot read elements `) {
			t.Errorf("from %d on: %v", first, err)
		}
	}
}

func TestBytes(t *testing.T) {
	f := open(t, "testdata/types.safetensors")
	b, err := f.Tensor("U64").Bytes()
	if err != nil || len(b) != 64 || binary.LittleEndian.Uint64(b[40:]) != math.MaxUint64 {
		t.Errorf("U64 is %x (%v)", b, err)
	}
	for name, want := range map[string]onnx.DataType{"C64": onnx.Complex64, "F4": onnx.Float4E2M1} {
		x := f.Tensor(name)
		if b, err := x.Bytes(); err != nil || len(b) != 8 || x.Type.DataType() != want {
			t.Errorf("%s: %s, %d bytes, %v", name, x.Type.DataType(), len(b), err)
		}
		err := x.Float32(make([]float32, 1), 0)
		if err == nil || !strings.Contains(err.Error(), `tensor "`+name+`": elements of type `+name+` cannot be read`) {
			t.Error(err)
		}
	}
	f.Close()
	if _, err := f.Tensor("U64").Bytes(); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
