package blocks

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

var formats = map[string]*Format{"q4_0": Q4_0, "q4_1": Q4_1, "q5_0": Q5_0, "q5_1": Q5_1, "q8_0": Q8_0, "q4_k": Q4_K,
	"q5_k": Q5_K, "q6_k": Q6_K, "mxfp4": MXFP4, "fp8-block": FP8Block, "mxfp4 pairs": MXFP4Pairs}

// TestPanels packs blocks of all bits into panels: they must unpack to the same bytes, and decode to the same floats
// except for NaN.
func TestPanels(t *testing.T) {
	const cols = 512
	for name, f := range formats {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			rows := make([][]byte, PanelRows)
			p := f.Panels()
			panel := p.New(cols)
			for i := range rows {
				rows[i] = make([]byte, cols/f.Elements*f.Size)
				for j := range rows[i] {
					rows[i][j] = byte(r.Uint32())
				}
				for b := 0; p.Shared && b < len(rows[i]); b += f.Size {
					copy(rows[i][b:], rows[0][b:b+p.Scale.Bits()/8])
				}
				p.Pack(panel, i, rows[i])
			}
			got, want, back := make([]float32, cols), make([]float32, cols), make([]byte, len(rows[0]))
			numbers := 0
			for i, row := range rows {
				p.Unpack(back, panel, i)
				if !bytes.Equal(back, row) {
					t.Fatalf("row %d unpacks to other bytes", i)
				}
				p.Decode(got, panel, i)
				f.Decode(want, row, 0)
				for j := range want {
					if math.IsNaN(float64(want[j])) || name == "mxfp4" && row[j/32*17] == 255 {
						continue
					}
					if numbers++; got[j] != want[j] {
						t.Fatalf("row %d, element %d: %v, not %v", i, j, got[j], want[j])
					}
				}
			}
			if numbers < cols*PanelRows/2 {
				t.Errorf("%d numbers were compared", numbers)
			}
		})
	}
}

// TestPanelLayout checks that codes and scales are where the op's definition reads them.
func TestPanelLayout(t *testing.T) {
	row := make([]byte, 2*Q4_1.Size) // block 1: scale, minus, and code i and code i+16 in byte i
	for i := range row {
		row[i] = byte(i)
	}
	p := Q4_1.Panels()
	panel := p.New(64)
	const r = 5
	p.Pack(panel, r, row)
	for j := range 4 {
		want := row[20+4+4*j:][:4]
		if got := panel.Codes[(1*4+j)*64+4*r:][:4]; !bytes.Equal(got, want) {
			t.Errorf("group %d: codes %v, not %v", j, got, want)
		}
	}
	for what, x := range map[string][2][]byte{"scale": {panel.Scale, row[20:22]}, "minus": {panel.Minus, row[22:24]}} {
		if got := x[0][2*(16+r):][:2]; !bytes.Equal(got, x[1]) {
			t.Errorf("%s %v, not %v", what, got, x[1])
		}
	}
	wide := make([]byte, Q8_0.Size)
	for i := range wide {
		wide[i] = byte(i)
	}
	p = Q8_0.Panels()
	panel = p.New(32)
	p.Pack(panel, r, wide)
	for j := range 8 {
		for i := range 4 {
			if got, want := panel.Codes[j*64+4*r+i], wide[2+4*j+i]^0x80; got != want {
				t.Errorf("code %d is %d, not %d", 4*j+i, got, want)
			}
		}
	}
}

func ExamplePanels_Sizes() {
	codes, scale, minus, superScale, superMinus := Q4_K.Panels().Sizes(256)
	fmt.Println(codes, scale, minus, superScale, superMinus)
	// Output: 2048 128 128 32 32
}
