package blocks

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The formats of safetensors files as blocks, and in panels.

// decodeFP8Block computes d * q.
func decodeFP8Block(dst []float32, src []byte) {
	d, values := math.Float32frombits(le.Uint32(src)), Values(onnx.Float8E4M3FN)
	for i, q := range src[4:132] {
		dst[i] = d * values[q]
	}
}

// panelsFP8Block has one scale for a panel: the 8 panels of a file's block have the same scale.
var panelsFP8Block = Panels{Code: "e4m3", Block: 128, Scale: onnx.Float, Shared: true,
	split: func(p *parts, b []byte) { take(b, p.scale[:4], p.codes[:128]) },
	join:  func(b []byte, p *parts) { put(b, p.scale[:4], p.codes[:128]) },
}

// decodeMXFP4Pairs computes 2^(e-127) * q, and NaN for e = 255.
func decodeMXFP4Pairs(dst []float32, src []byte) {
	d, values := Values(onnx.Float8E8M0)[src[0]], Values(onnx.Float4E2M1)
	for i, q := range src[1:17] {
		dst[2*i], dst[2*i+1] = d*values[q&15], d*values[q>>4]
	}
}

var panelsMXFP4Pairs = Panels{Code: "e2m1", Block: 32, Scale: onnx.Uint8,
	split: func(p *parts, b []byte) {
		p.scale[0] = b[0]
		for i := range 8 { // codes i and i+16 share a byte
			low, high := b[1+i], b[9+i]
			p.codes[2*i], p.codes[2*i+1] = low&15|high<<4, low>>4|high&0xf0
		}
	},
	join: func(b []byte, p *parts) {
		b[0] = p.scale[0]
		for i := range 8 {
			even, odd := p.codes[2*i], p.codes[2*i+1]
			b[1+i], b[9+i] = even&15|odd<<4, even>>4|odd&0xf0
		}
	},
}
