package golden_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func tensor(t testing.TB, name string, dt onnx.DataType, dims []int64, raw []byte) *onnx.Tensor {
	t.Helper()
	x, err := onnx.NewTensor(name, dt, dims, raw)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// pattern fills a tensor with different bytes.
func pattern(t testing.TB, name string, dt onnx.DataType, dims ...int64) *onnx.Tensor {
	t.Helper()
	raw := make([]byte, (&onnx.Tensor{DataType: dt, Dims: dims}).Size())
	for i := range raw {
		raw[i] = byte(11*i + 1)
	}
	return tensor(t, name, dt, append([]int64{}, dims...), raw)
}

func equal(t *testing.T, got, want []*onnx.Tensor) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d tensors, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		a, errA := g.Bytes()
		b, errB := w.Bytes()
		if w.DataType == onnx.String {
			errA, errB = nil, nil
		}
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if g.Name != w.Name || g.DataType != w.DataType || !slices.Equal(g.Dims, w.Dims) || !bytes.Equal(a, b) ||
			!slices.Equal(g.Strings(), w.Strings()) {
			t.Errorf("got %q %s%v, want %q %s%v", g.Name, g.DataType, g.Dims, w.Name, w.DataType, w.Dims)
		}
	}
}

func everyType(t *testing.T) []golden.Case {
	var c golden.Case
	for _, dt := range []onnx.DataType{onnx.Float, onnx.Double, onnx.Float16, onnx.BFloat16, onnx.Bool, onnx.Int8,
		onnx.Int16, onnx.Int32,
		onnx.Int64, onnx.Uint8, onnx.Uint16, onnx.Uint32, onnx.Uint64, onnx.Complex64, onnx.Complex128} {
		c.Inputs = append(c.Inputs, pattern(t, "in/"+dt.String()+".1", dt, 2, 3))
	}
	s, err := onnx.NewStrings("text", []int64{3}, []string{"", "naïve", "日本"})
	if err != nil {
		t.Fatal(err)
	}
	c.Inputs = append(c.Inputs, s, pattern(t, "/empty", onnx.Float, 0, 4), pattern(t, "scalar", onnx.Int64),
		pattern(t, "one.npy", onnx.Int8, 5))
	c.Outputs = []*onnx.Tensor{pattern(t, "0.out.trap", onnx.Float16, 1, 2, 3, 4)}
	return []golden.Case{c, {Inputs: c.Inputs[:1]}, {Outputs: c.Outputs}}
}

func TestNPZRoundTrip(t *testing.T) {
	cases := everyType(t)
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.npz"), filepath.Join(dir, "b.npz")
	for _, path := range []string{a, b} {
		if err := golden.SaveNPZ(path, cases); err != nil {
			t.Fatal(err)
		}
	}
	x, _ := os.ReadFile(a)
	y, _ := os.ReadFile(b)
	if !bytes.Equal(x, y) {
		t.Error("two files of the same cases differ")
	}
	got, err := golden.Load(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(cases) {
		t.Fatalf("%d cases, want %d", len(got), len(cases))
	}
	for i := range got {
		equal(t, got[i].Inputs, cases[i].Inputs)
		equal(t, got[i].Outputs, cases[i].Outputs)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("files were left behind: %v", entries)
	}
}

// TestNPYHeader: a header may have 65,536 bytes, and no more.
func TestNPYHeader(t *testing.T) {
	for length, ok := range map[int]bool{1 << 16: true, 1<<16 + 1: false} {
		h := "{'descr': '|i1', 'fortran_order': False, 'shape': (1,), }"
		h += strings.Repeat(" ", length-len(h)-1) + "\n"
		text := "\x93NUMPY\x02\x00" + string([]byte{byte(length), byte(length >> 8), byte(length >> 16), 0}) + h + "a"
		if _, err := golden.Load(npz(t, map[string]string{"x.npy": text}), model(onnx.Int8)); (err == nil) != ok {
			t.Errorf("a header of %d bytes: %v", length, err)
		}
	}
}

// TestNPZOfEightBitFloats: the model tells which type an array of 8-bit floats has.
func TestNPZOfEightBitFloats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npz")
	for _, dt := range []onnx.DataType{onnx.Float8E4M3FN, onnx.Float8E5M2} {
		x := pattern(t, "x", dt, 3)
		if err := golden.SaveNPZ(path, []golden.Case{{Inputs: []*onnx.Tensor{x}}}); err != nil {
			t.Fatal(err)
		}
		got, err := golden.Load(path, model(dt))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, got[0].Inputs, []*onnx.Tensor{x})
	}
}

func TestSaveNPZLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.npz")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	packed := tensor(t, "x", onnx.Int4, []int64{3}, []byte{1, 2})
	for _, bad := range [][]*onnx.Tensor{{packed}, {pattern(t, "a", onnx.Int8, 1), pattern(t, "a", onnx.Int8, 1)}} {
		if err := golden.SaveNPZ(path, []golden.Case{{Inputs: bad}}); err == nil ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("got error %v", err)
		}
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Error("the old file was changed")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("files were left behind: %v", entries)
	}
}

// npz writes a file of raw members.
func npz(t *testing.T, members map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.npz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for name, body := range members {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write([]byte(body))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func npy(descr string, fortran string, shape string, data string) string {
	h := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }\n", descr, fortran, shape)
	return "\x93NUMPY\x01\x00" + string([]byte{byte(len(h)), byte(len(h) >> 8)}) + h + data
}

func model(dt onnx.DataType) *onnx.Model {
	m := onnx.New(10, 21)
	m.Graph.AddOutput(m.Graph.AddInput("x", onnx.Type{DataType: dt}))
	return m
}

func TestLoadForms(t *testing.T) {
	for _, c := range []struct {
		name, array string
		model       onnx.DataType
		want        onnx.DataType
		raw         string
	}{
		{"big endian", npy(">i2", "False", "2,", "\x01\x02\x03\x04"), 0, onnx.Int16, "\x02\x01\x04\x03"},
		{"big endian complex", npy(">c8", "False", "1,", "\x01\x02\x03\x04\x05\x06\x07\x08"), 0, onnx.Complex64,
			"\x04\x03\x02\x01\x08\x07\x06\x05"},
		{"fortran order", npy("|u1", "True", "2, 3", "adbecf"), 0, onnx.Uint8, "abcdef"},
		{"void of two bytes", npy("|V2", "False", "1,", "\x80\x3f"), 0, onnx.BFloat16, "\x80\x3f"},
		{"bits of bfloat16", npy("<u2", "False", "1,", "\x80\x3f"), onnx.BFloat16, onnx.BFloat16, "\x80\x3f"},
		{"uint16 elsewhere", npy("<u2", "False", "1,", "\x80\x3f"), onnx.Uint16, onnx.Uint16, "\x80\x3f"},
		{"values of bfloat16", npy("<f4", "False", "2,", "\x00\x80\x80\x3f\x01\x80\x80\x3f"), onnx.BFloat16,
			onnx.BFloat16, "\x80\x3f\x81\x3f"},
		{"float32 stays", npy("<f4", "False", "1,", "\x00\x00\x80\x3f"), onnx.Float16, onnx.Float, "\x00\x00\x80\x3f"},
		{"8-bit float", npy("|V1", "False", "1,", "\x38"), onnx.Float8E4M3FN, onnx.Float8E4M3FN, "\x38"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m *onnx.Model
			if c.model != onnx.Undefined {
				m = model(c.model)
			}
			for key, outputs := range map[string]bool{"0.in.x.npy": false, "0.out.x.npy": true, "x.npy": false} {
				cases, err := golden.Load(npz(t, map[string]string{key: c.array}), m)
				if err != nil {
					t.Fatal(err)
				}
				list := cases[0].Inputs
				if outputs {
					list = cases[0].Outputs
				}
				got, _ := list[0].Bytes()
				if list[0].Name != "x" || list[0].DataType != c.want || string(got) != c.raw {
					t.Errorf("%s: %q %s %q, want %s %q", key, list[0].Name, list[0].DataType, got, c.want, c.raw)
				}
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	good := npy("|u1", "False", "1,", "a")
	for name, members := range map[string]map[string]string{
		"objects":         {"x.npy": npy("|O", "False", "1,", "a")},
		"structures":      {"x.npy": strings.Replace(npy("@", "False", "1,", "a"), "'@'", "[('a', '<i4')]", 1)},
		"dates":           {"x.npy": npy("<M8", "False", "1,", "12345678")},
		"no array":        {"x.npy": "hello"},
		"cut off":         {"x.npy": npy("<f4", "False", "2,", "1234")},
		"too long":        {"x.npy": npy("<f4", "False", "1,", "12345678")},
		"huge shape":      {"x.npy": npy("<f4", "False", "9223372036854775807, 9223372036854775807", "")},
		"huge number":     {"x.npy": npy("<f4", "False", "99999999999999999999", "")},
		"huge strings":    {"x.npy": npy("<U2000000000", "False", "9999999999,", "")},
		"empty strings":   {"x.npy": npy("<U0", "False", "999999999999,", "")},
		"a wrong count":   {"0.in.x.npy": good, "n.npy": npy("<i8", "False", "", "\x02\x00\x00\x00\x00\x00\x00\x00")},
		"a far case":      {"99999999.in.x.npy": good},
		"an unknown V1":   {"x.npy": npy("|V1", "False", "1,", "a")},
		"nothing":         {},
		"a header cut":    {"x.npy": good[:20]},
		"header too long": {"x.npy": "\x93NUMPY\x02\x00\xff\xff\xff\x7f"},
	} {
		if cases, err := golden.Load(npz(t, members), nil); err == nil {
			t.Errorf("%s: got %v", name, cases)
		}
	}
	if _, err := golden.Load("none.npz", nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "x.npz")
	if err := os.WriteFile(path, []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := golden.Load(path, nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

// TestModelsGoldens reads the recorded cases of the repository's models, which numpy wrote.
func TestModelsGoldens(t *testing.T) {
	files, _ := filepath.Glob("../models/*.npz")
	for _, file := range files {
		m, err := onnx.Read(strings.TrimSuffix(file, ".npz") + ".onnx")
		if err != nil {
			t.Fatal(err)
		}
		cases, err := golden.Load(file, m)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(cases) == 0 {
			t.Errorf("%s: no cases", file)
		}
		for _, c := range cases {
			if len(c.Inputs) != len(m.Graph.Inputs) || len(c.Outputs) != len(m.Graph.Outputs) {
				t.Errorf("%s: %d inputs and %d outputs, the model has %d and %d", file, len(c.Inputs), len(c.Outputs),
					len(m.Graph.Inputs), len(m.Graph.Outputs))
			}
		}
		m.Close()
	}
}

func TestConvert(t *testing.T) {
	x := onnx.NewFloat32s("x", []int64{6}, []float32{1, -2.5, 1.00390625, 1.01171875, float32(math.Inf(1)),
		float32(math.NaN())})
	b, err := golden.Convert(x, onnx.BFloat16)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := b.Bytes() // ties go to even: 1 + 2^-8 to 1, 1 + 3*2^-8 to 1 + 2^-6
	if want := []byte{0x80, 0x3f, 0x20, 0xc0, 0x80, 0x3f, 0x82, 0x3f, 0x80, 0x7f}; !bytes.Equal(got[:10], want) {
		t.Errorf("got % x, want % x", got, want)
	}
	back, err := golden.Convert(b, onnx.Float)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := golden.Compare(back, x, golden.Tolerance{Rel: 1.0 / 256}); err != nil || !s.Passed {
		t.Error(s.Summary(), err)
	}
	if _, err := golden.Convert(x, onnx.Int8); err == nil {
		t.Error("a float became an integer")
	}
}
