package safetensors

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/weights/internal/tensors"
)

// file builds a file, valid or not.
func file(header string, elements int) string {
	n := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return string(n) + header + strings.Repeat("\x00", elements)
}

func parse(s string) (*File, error) {
	f := &File{}
	return f, tensors.Parse(&f.File, "x.safetensors", []byte(s), func() error { return nil }, f.parse)
}

func TestDamaged(t *testing.T) {
	const a = `"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`
	for _, c := range []struct{ file, want string }{
		{file(`{}`, 0), ""},
		{file(`{`+a+`}   `, 4), ""},
		{file(`{`+a+`,"b":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]}}`, 4), ""},
		{file(`{"b":{"shape":[],"data_offsets":[4,6],"dtype":"F16","note":[{"x":[1]},null]},`+a+`}`, 6), ""},

		{"", "not a safetensors file: it has 0 bytes"},
		{"version https://git-lfs.github.com/spec/v1", "Git LFS pointer"},
		{"\x01\xe1\xf5\x05\x00\x00\x00\x00{}", "the header has 100000001 bytes, but the format allows 100000000"},
		{"\xff\xff\xff\xff\xff\xff\xff\xff{}", "the header has 18446744073709551615 bytes"},
		{"\x03\x00\x00\x00\x00\x00\x00\x00{}", "its header has 3 bytes, but only 2 follow"},
		{file(``, 0), `does not begin with "{"`},
		{file(` {}`, 0), `does not begin with "{"`},
		{file(`{"a"`, 0), "it is not JSON, at byte"},
		{file(`{}{}`, 0), "unexpected data after its end, at byte 3"},
		{file("{\"\xff\":1}", 0), "it is not UTF-8"},
		{file(`{`+strings.Repeat(`"a":[`, 1000), 0), `tensor "a": found [, expected "{"`},
		{file(`{"a":{"x":`+strings.Repeat(`[`, 1000)+`}}`, 0), "nested deeper than 128"},

		{file(`{"__metadata__":{"a":1}}`, 0), "__metadata__: found 1, expected a string"},
		{file(`{"__metadata__":{"a":"1","a":"2"}}`, 0), `__metadata__: the key "a" occurs twice`},
		{file(`{`+a+`,`+a+`}`, 4), `the key "a" occurs twice`},
		{file(`{"a":{"dtype":"U8","dtype":"U8"}}`, 4), `tensor "a": the key "dtype" occurs twice`},
		{file(`{"a":{"dtype":"U8","shape":[4]}}`, 4),
			`tensor "a": its entry lacks one of dtype, shape and data_offsets`},
		{file(`{"a":{"Dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), `tensor "a": its entry lacks`},
		{file(`{"a":{"dtype":"U3","shape":[4],"data_offsets":[0,4]}}`, 4), `tensor "a": it has the type "U3"`},
		{file(`{"a":{"dtype":8,"shape":[4],"data_offsets":[0,4]}}`, 4), `dtype: found 8, expected a string`},
		{file(`{"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}}`, 4),
			`tensor "a": shape: -4 is not a whole number`},
		{file(`{"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}}`, 4),
			`tensor "a": shape: 4.0 is not a whole number`},
		{file(`{"a":{"dtype":"U8","shape":[1e99],"data_offsets":[0,4]}}`, 4),
			`tensor "a": shape: 1e99 is not a whole number`},
		{file(`{"a":{"dtype":"U8","shape":["4"],"data_offsets":[0,4]}}`, 4),
			`tensor "a": shape: found 4, expected a number`},
		{file(`{"a":{"dtype":"U8","shape":4,"data_offsets":[0,4]}}`, 4), `tensor "a": shape: found 4, expected "["`},
		{file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]}}`, 4),
			`tensor "a": its data_offsets are [0 4 8]`},
		{file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}}`, 4), `tensor "a": its data_offsets are [4 0]`},
		{file(`{"a":{"dtype":"U8","shape":[5],"data_offsets":[0,4]}}`, 4),
			`tensor "a": U8 [5] takes 40 bits, but its data_offsets span 4 bytes`},
		{file(`{"a":{"dtype":"F4","shape":[9],"data_offsets":[0,4]}}`, 4), `tensor "a": F4 [9] takes 36 bits`},
		{file(`{"a":{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, 0),
			`tensor "a": it has too many elements`},
		{file(`{"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}}`, 0),
			`tensor "a": it has too many elements`},
		{file(`{"a":{"dtype":"U8","shape":[1152921504606846976],"data_offsets":[0,1152921504606846976]}}`, 4),
			`tensor "a" (U8 [1152921504606846976], bytes 0 to 1152921504606846976 of the elements) ends past the end`},
		{file(`{`+a+`,"b":{"dtype":"U8","shape":[1152921504606846976],"data_offsets":[4,1152921504606846980]}}`, 8),
			`tensor "b" (U8`},
		{file(`{`+a+`}`, 3),
			`tensor "a" (U8 [4], bytes 0 to 4 of the elements) ends past the end of the file, which holds 3 bytes`},
		{file(`{`+a+`}`, 5), "its last 1 bytes do not belong to a tensor"},
		{file(`{`+a+`,"b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}}`, 7),
			`bytes 4 to 5, before tensor "b", do not belong to a tensor`},
		{file(`{`+a+`,"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}`, 5), `tensors "a" and "b" overlap`},
		{file(`{`+a+`,"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), `tensors "a" and "b" overlap`},
	} {
		_, err := parse(c.file)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c.file, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v, want %q", c.file, err, c.want)
		}
	}
}

// TestTruncated cuts a file at every byte.
func TestTruncated(t *testing.T) {
	b, err := os.ReadFile("testdata/model-00001-of-00002.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		if _, err := parse(string(b[:n])); err == nil {
			t.Errorf("cut off at byte %d of %d it is read", n, len(b))
		}
	}
}

func TestOpenErrors(t *testing.T) {
	for path, want := range map[string]string{
		"testdata":              "testdata is a folder",
		"testdata/none":         "testdata/none: no such file",
		"testdata/make.py":      "testdata/make.py: this is not a safetensors file",
		"testdata/expected.txt": "testdata/expected.txt: this is not a safetensors file",
	} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
