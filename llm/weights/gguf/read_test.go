package gguf

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestElements compares every tensor of testdata with gguf-py's results: see testdata/make.py.
func TestElements(t *testing.T) {
	list, err := os.Open("testdata/expected.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	seen := map[Type]bool{}
	for lines := bufio.NewScanner(list); lines.Scan(); {
		field := strings.Fields(lines.Text())
		f := open(t, field[0])
		x := f.Tensor(field[1])
		if x == nil {
			t.Errorf("%s: no tensor %s", field[0], field[1])
			continue
		}
		var dims []string
		for _, d := range x.Dims {
			dims = append(dims, strconv.FormatInt(d, 10))
		}
		if got := strings.Join(dims, "x"); got != strings.TrimSuffix(field[3], "scalar") ||
			x.Type.String() != field[2] {
			t.Errorf("%s: tensor %s is %s %s, want %s %s", field[0], field[1], x.Type, got, field[2], field[3])
		}
		if got := hash(t, x); got != field[4] {
			t.Errorf("%s: elements of %s differ from gguf-py's", field[0], field[1])
		}
		seen[x.Type] = true
	}
	for kind := range types {
		if kind.Readable() && !seen[kind] {
			t.Errorf("type %s is not tested", kind)
		}
	}
}

// hash hashes the elements as float32, with one NaN for all NaNs of a quantized type.
func hash(t *testing.T, x *Tensor) string {
	t.Helper()
	h := sha256.New()
	for _, v := range elements(t, x) {
		n := math.Float32bits(v)
		if v != v && x.Type.DataType() == onnx.Undefined {
			n = 0x7fc00000
		}
		h.Write(binary.LittleEndian.AppendUint32(nil, n))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func elements(t *testing.T, x *Tensor) []float32 {
	t.Helper()
	values := make([]float32, x.Elements)
	if err := x.Float32(values, 0); err != nil {
		t.Fatal(err)
	}
	return values
}

func open(t *testing.T, name string) *File {
	t.Helper()
	f, err := Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestRanges reads every type in ranges that begin and end inside blocks.
func TestRanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, x := range open(t, "types.gguf").Tensors {
		if !x.Type.Readable() {
			continue
		}
		whole := elements(t, x)
		for range 200 {
			first := r.IntN(len(whole) + 1)
			part := make([]float32, r.IntN(min(700, len(whole)-first+1)))
			if err := x.Float32(part, int64(first)); err != nil {
				t.Fatal(err)
			}
			for i, v := range part {
				if math.Float32bits(v) != math.Float32bits(whole[first+i]) {
					t.Fatalf("%s: element %d is %v in the range from %d on, %v in the whole", x.Name, first+i, v, first,
						whole[first+i])
				}
			}
		}
		for _, bad := range []struct{ n, first int64 }{{1, -1}, {1, x.Elements}, {x.Elements + 1, 0},
			{0, x.Elements + 1}, {2, math.MaxInt64}} {
			if err := x.Float32(make([]float32, bad.n), bad.first); err == nil {
				t.Errorf("%s: %d elements from %d on are no error", x.Name, bad.n, bad.first)
			}
		}
	}
}

func TestBytes(t *testing.T) {
	f := open(t, "types.gguf")
	for name, want := range map[string]onnx.DataType{"BF16": onnx.BFloat16, "I64": onnx.Int64, "F64": onnx.Double,
		"Q4_K": onnx.Undefined} {
		x := f.Tensor(name)
		b, err := x.Bytes()
		if err != nil || int64(len(b)) != x.Size {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		if got := x.Type.DataType(); got != want {
			t.Errorf("%s is stored as %s, want %s", name, got, want)
		}
	}
	b, err := f.Tensor("I64").Bytes()
	if err != nil || int64(binary.LittleEndian.Uint64(b)) != math.MinInt64 {
		t.Errorf("the first element of I64 is %x (%v)", b[:8], err)
	}
	f.Close()
	if _, err := f.Tensor("I64").Bytes(); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := f.Tensor("I64").Float32(make([]float32, 1), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestUnreadableType(t *testing.T) {
	x := open(t, "types.gguf").Tensor("Q2_K")
	err := x.Float32(make([]float32, 1), 0)
	if err == nil || !strings.Contains(err.Error(), `types.gguf: tensor "Q2_K": elements of type Q2_K cannot be read`) {
		t.Error(err)
	}
	if b, err := x.Bytes(); err != nil || len(b) != 84 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestMetadata(t *testing.T) {
	f := open(t, "metadata.gguf")
	want := []KeyValue{
		{"general.architecture", "test"},
		{"u8", uint8(255)}, {"i8", int8(-128)}, {"u16", uint16(65535)}, {"i16", int16(-32768)},
		{"u32", uint32(math.MaxUint32)}, {"i32", int32(math.MinInt32)}, {"f32", float32(1.5)},
		{"u64", uint64(math.MaxUint64)}, {"i64", int64(math.MinInt64)}, {"f64", 0.1},
		{"yes", true}, {"no", false}, {"text", "Grüße, 世界"},
		{"strings", []string{"a", "", "ü"}}, {"integers", []int32{1, -2, 3}}, {"floats", []float32{0.5, -0.25}},
		{"booleans", []bool{true, false}}, {"bytes", []uint8{0, 255}}, {"nested", []any{[]int32{1, 2}, []int32{3}}},
		{"general.alignment", uint32(64)},
	}
	if !reflect.DeepEqual(f.Metadata, want) {
		t.Errorf("got %v\nwant %v", f.Metadata, want)
	}
	for _, kv := range want {
		if got := f.Value(kv.Key); !reflect.DeepEqual(got, kv.Value) {
			t.Errorf("%s is %v, want %v", kv.Key, got, kv.Value)
		}
	}
	for key, want := range map[string]int64{"u8": 255, "i8": -128, "u16": 65535, "i16": -32768, "u32": math.MaxUint32,
		"i32": math.MinInt32, "i64": math.MinInt64} {
		if got, ok := f.Int(key); !ok || got != want {
			t.Errorf("%s is %d (%v), want %d", key, got, ok, want)
		}
	}
	for _, key := range []string{"u64", "f32", "text", "no such key"} {
		if got, ok := f.Int(key); ok {
			t.Errorf("%s is the integer %d", key, got)
		}
	}
}

func TestVersion2(t *testing.T) {
	b, err := os.ReadFile("testdata/types.gguf")
	if err != nil {
		t.Fatal(err)
	}
	b[4] = 2
	path := filepath.Join(t.TempDir(), "v2.gguf")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, want := hash(t, f.Tensor("Q4_K")), hash(t, open(t, "types.gguf").Tensor("Q4_K")); f.Version != 2 ||
		got != want {
		t.Errorf("version %d, elements %s, want %s", f.Version, got, want)
	}
}
