package blocks

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"os"
	"strings"
	"testing"
)

// roundingBlocks returns the blocks of testdata/rounding.py.
func roundingBlocks() []float32 {
	const rows = 4096
	x, state := make([]float32, rows*32), uint64(1)
	for i := range x {
		state = state*6364136223846793005 + 1442695040888963407
		x[i] = (float32(state>>48) - 32768) / 32768
	}
	for r := range rows {
		block := x[r*32 : r*32+32]
		for i := range block {
			v := float64(block[i]) * math.Ldexp(1, r%25-16)
			if r%7 == 5 {
				v = math.Abs(v)
			}
			if r%11 == 6 {
				v = -math.Abs(v)
			}
			if r%13 == 3 {
				v = math.RoundToEven(v*64) / 64
			}
			switch r {
			case 100:
				v = 0
			case 101:
				v = 0.25
			case 102:
				if i > 0 {
					v = 0
				}
			case 103:
				v = float64(i) - 16
			case 104:
				v = (float64(i) - 16) / 2
			}
			if block[i] = float32(v); v == 0 { // no -0: see rounding.py
				block[i] = 0
			}
		}
	}
	return x
}

// TestEncode compares encoded blocks with the bytes that gguf-py writes.
func TestEncode(t *testing.T) {
	f, err := os.Open("testdata/rounding.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x := roundingBlocks()
	seen := 0
	for s := bufio.NewScanner(f); s.Scan(); seen++ {
		words := strings.Fields(s.Text())
		h := sha256.New()
		if words[0] == "input" {
			var b []byte
			for _, v := range x {
				b = le.AppendUint32(b, math.Float32bits(v))
			}
			h.Write(b)
			if got := hex.EncodeToString(h.Sum(nil)); got != words[1] {
				t.Fatal("the blocks are others than rounding.py's")
			}
			continue
		}
		format := formats[words[0]]
		b := make([]byte, len(x)/32*format.Size)
		if err := format.Encode(b, x); err != nil {
			t.Fatal(err)
		}
		for i, at := range []int{103, 1} {
			if got := hex.EncodeToString(b[at*format.Size:][:format.Size]); got != words[2+i] {
				t.Errorf("%s: block %d is %s, not %s", words[0], at, got, words[2+i])
			}
		}
		h.Write(b)
		if got := hex.EncodeToString(h.Sum(nil)); got != words[1] {
			t.Errorf("%s: other bytes", words[0])
		}
	}
	if seen != 5 {
		t.Errorf("%d lines", seen)
	}
}

// TestEncodeRefuses encodes blocks that have no code, and tiny ones, which become zeros.
func TestEncodeRefuses(t *testing.T) {
	for name, f := range formats {
		if !f.Rounds() || f.SharedRows > 0 {
			continue
		}
		x, b, back := make([]float32, 64), make([]byte, 2*f.Size), make([]float32, 64)
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			x[40] = float32(bad)
			if err := f.Encode(b, x); err == nil || !strings.Contains(err.Error(), "element 40 is") {
				t.Errorf("%s of %v: %v", name, bad, err)
			}
		}
		x[40], x[41] = 3e38, -3e38
		if err := f.Encode(b, x); (err == nil) != (name == "mxfp4") {
			t.Errorf("%s of 3e38: %v", name, err)
		}
		for _, tiny := range []float32{math.SmallestNonzeroFloat32, 1e-39, 1e-10} {
			x[40], x[41] = tiny, -tiny
			if err := f.Encode(b, x); err != nil {
				t.Errorf("%s of %g: %v", name, tiny, err)
			}
			f.Decode(back, b, 0)
			for i, v := range back {
				if math.Abs(float64(v-x[i])) > math.Abs(float64(x[i])) {
					t.Errorf("%s: %g became %g", name, x[i], v)
				}
			}
		}
	}
}
