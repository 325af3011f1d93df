package gguf

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"
)

// builder builds a GGUF file, valid or not.
type builder struct{ b []byte }

// header begins a file of version 3.
func header(tensors, entries uint64) *builder {
	return (&builder{[]byte("GGUF")}).u32(3).u64(tensors).u64(entries)
}

func (w *builder) u32(v uint32) *builder { w.b = le.AppendUint32(w.b, v); return w }
func (w *builder) u64(v uint64) *builder { w.b = le.AppendUint64(w.b, v); return w }
func (w *builder) raw(s string) *builder { w.b = append(w.b, s...); return w }
func (w *builder) str(s string) *builder { return w.u64(uint64(len(s))).raw(s) }

// tensor lists a tensor; dims are in the file's order.
func (w *builder) tensor(name string, kind Type, offset uint64, dims ...uint64) *builder {
	w.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		w.u64(d)
	}
	return w.u32(uint32(kind)).u64(offset)
}

// elements ends the header and adds n bytes.
func (w *builder) elements(n int) *builder {
	w.b = append(w.b, make([]byte, (32-len(w.b)%32)%32+n)...)
	return w
}

func parse(b []byte) (*File, error) {
	f := &File{}
	return f, tensors.Parse(&f.File, "x.gguf", b, func() error { return nil }, f.parse)
}

func TestDamaged(t *testing.T) {
	const huge = 1 << 62
	for _, c := range []struct {
		file *builder
		want string // of the error; empty if no error is expected
	}{
		{header(2, 0).tensor("a", F32, 0, 4).tensor("b", Q8_0, 32, 32).elements(66), ""},
		{header(2, 0).tensor("late", F32, 64, 4).tensor("early", F32, 0, 4).elements(80), ""},
		{header(2, 0).tensor("none", F32, 0, huge, 0).tensor("some", F32, 0, 1).elements(4), ""},
		{header(0, 0), ""},

		{&builder{}, "the file ends at byte 0, within the magic number"},
		{(&builder{}).raw("PK\x03\x04 and so on"), `not a GGUF file: it begins with "PK\x03\x04"`},
		{(&builder{}).raw("version https://git-lfs.github.com/spec/v1"), "Git LFS pointer"},
		{(&builder{}).raw("GGUF").u32(1), "has version 1; only versions 2 and 3 are supported"},
		{(&builder{}).raw("GGUF").u32(4), "has version 4"},
		{(&builder{}).raw("GGUF\x00\x00\x00\x03"), "big-endian"},
		{(&builder{}).raw("GGUF\x03\x00"), "the file ends at byte 6, within the version"},
		{header(huge, 0), "it announces 4611686018427387904 tensors, but only 8 bytes follow"},
		{header(0, huge), "4611686018427387904 metadata entries, but only 0 bytes follow"},

		{header(0, 1).u64(1 << 63).raw("some more bytes"),
			"within the key of metadata entry 0 (9223372036854775808 bytes"},
		{header(0, 1).str("").u32(0).raw("x"), `metadata entry 0 has the invalid key ""`},
		{header(0, 1).str("\xff").u32(0).raw("x"), `metadata entry 0 has the invalid key "\xff"`},
		{header(0, 2).str("k").u32(4).u32(1).str("k").u32(4).u32(1), `metadata "k" occurs twice`},
		{header(0, 1).str("k").u32(13).u32(1), `metadata "k" has the type 13`},
		{header(0, 1).str("k").u32(7).raw("\x02"), `metadata "k" holds the byte 2, but a boolean`},
		{header(0, 1).str("k").u32(10).u32(1), `within metadata "k" (8 bytes from byte`},
		{header(0, 1).str("k").u32(8).u64(huge), `within metadata "k" (4611686018427387904 bytes`},
		{header(0, 1).str("k").u32(9).u32(11).u64(huge), `4611686018427387904 elements of metadata "k"`},
		{header(0, 1).str("k").u32(9).u32(8).u64(1 << 40).u64(0), `1099511627776 elements of metadata "k"`},
		{header(0, 1).str("k").u32(9).u32(99).u64(1).u64(1), `metadata "k" is an array of the type 99`},
		{header(0, 1).str("k").u32(9).u32(9).u64(1).u32(9).u64(1).u32(9).u64(1).u32(9).u64(1).u32(4).u64(0),
			"nested deeper than 4"},
		{header(0, 1).str("general.alignment").u32(4).u32(24), "general.alignment is 24"},
		{header(0, 1).str("general.alignment").u32(4).u32(0), "general.alignment is 0"},
		{header(0, 1).str("general.alignment").u32(5).u32(32), "must be a uint32"},

		{header(2, 0).tensor("a", F32, 0, 4).tensor("a", F32, 32, 4).elements(64), `tensor "a" occurs twice`},
		{header(1, 0).tensor("\xff", F32, 0, 4).elements(64), `the name of tensor "\xff" is not UTF-8`},
		{header(1, 0).tensor("a", F32, 0, 1, 1, 1, 1, 1).elements(4), `tensor "a" has 5 dimensions`},
		{header(1, 0).str("a").u32(1 << 31).raw("0123456789"), `tensor "a" has 2147483648 dimensions`},
		{header(1, 0).tensor("a", F32, 0, 1<<63).elements(4), `tensor "a" has a dimension of 9223372036854775808`},
		{header(1, 0).tensor("a", F32, 0, 1<<32, 1<<32).elements(4), `tensor "a" has too many elements`},
		{header(1, 0).tensor("a", F32, 0, huge).elements(4), `tensor "a" has too many elements`},
		{header(1, 0).tensor("a", Q8_0, 0, 48).elements(64),
			`tensor "a" has rows of 48 elements, which is not a multiple of a block of Q8_0 (32 elements)`},
		{header(1, 0).tensor("a", Q8_0, 0).elements(64), `tensor "a" has rows of 1 elements`},
		{header(1, 0).tensor("a", 4, 0, 32).elements(64), `tensor "a" has the type 4`},
		{header(1, 0).tensor("a", 77, 0, 32).elements(64), `tensor "a" has the type 77`},
		{header(1, 0).tensor("a", F32, 8, 4).elements(64),
			`tensor "a" begins at byte 8 of the elements, which is not a multiple of general.alignment (32)`},
		{header(1, 0).tensor("a", F32, 1<<63, 4).elements(64),
			`tensor "a" has the invalid offset 9223372036854775808`},
		{header(1, 0).tensor("a", F32, huge, 4).elements(64),
			`tensor "a" (F32 [4], 16 bytes from byte 4611686018427387904 of the elements on) ends past the end`},
		{header(1, 0).tensor("a", F32, 0, 4).elements(15),
			`tensor "a" (F32 [4], 16 bytes from byte 0 of the elements on) ends past the end`},
		{header(1, 0).tensor("a", 10, 0, 256).elements(83), `tensor "a" (Q2_K [256], 84 bytes`},
		{header(2, 0).tensor("a", F32, 0, 9).tensor("b", F32, 32, 4).elements(64), `tensors "a" and "b" overlap`},
		{header(2, 0).tensor("a", F32, 32, 4).tensor("b", F32, 32, 4).elements(64), `tensors "a" and "b" overlap`},
		{header(1, 0).tensor("a", F32, 0, 4), `tensor "a" (F32 [4], 16 bytes`},
	} {
		_, err := parse(c.file.b)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c.file.b, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v, want %q", c.file.b, err, c.want)
		}
	}
}

// TestTruncated cuts a file at every byte: only the padding after its last tensor may be missing.
func TestTruncated(t *testing.T) {
	b, err := os.ReadFile("testdata/metadata.gguf")
	if err != nil {
		t.Fatal(err)
	}
	// the last element, 5
	end := strings.LastIndex(string(b), string(binary.LittleEndian.AppendUint32(nil, 0x40a00000))) + 4
	for n := range b {
		if _, err := parse(b[:n]); (err == nil) != (n >= end) {
			t.Errorf("cut off at byte %d of %d: %v", n, end, err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	for path, want := range map[string]string{
		"testdata":                 "testdata is a folder",
		"testdata/none.gguf":       "testdata/none.gguf: no such file",
		"testdata/make.py":         `testdata/make.py: this is not a GGUF file`,
		"testdata/big-endian.gguf": "testdata/big-endian.gguf: this GGUF file is in big-endian order",
	} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
