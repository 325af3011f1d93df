package blocks

import "github.com/mojo-patch/mojo-patch/onnx"

// The formats' blocks are split and joined here. Everything except codes is copied unchanged, but a minus has the
// opposite sign of the number that ggml subtracts, and 6-bit scales become bytes. Codes of a byte are shifted so that
// the middle of each format is 128.

// shift5 and shift6 are added to codes of 5 and 6 bits.
const (
	shift5 = 128 - 1<<4
	shift6 = 128 - 1<<5
)

var panelsQ4_0 = Panels{Code: "int4", Zero: 8, Block: 32, Scale: onnx.Float16,
	split: func(p *parts, b []byte) { take(b, p.scale[:2], p.codes[:16]) },
	join:  func(b []byte, p *parts) { put(b, p.scale[:2], p.codes[:16]) },
}

var panelsQ4_1 = Panels{Code: "int4", Block: 32, Scale: onnx.Float16, Minus: true,
	split: func(p *parts, b []byte) { take(b, p.scale[:2], p.minus[:2], p.codes[:16]) },
	join:  func(b []byte, p *parts) { put(b, p.scale[:2], p.minus[:2], p.codes[:16]) },
}

// ggml's MXFP4: doubled elements times half the scale.
var panelsMXFP4 = Panels{Code: "e2m1", Block: 32, Scale: onnx.Uint8,
	split: func(p *parts, b []byte) { take(b, p.scale[:1], p.codes[:16]) },
	join:  func(b []byte, p *parts) { put(b, p.scale[:1], p.codes[:16]) },
}

var panelsQ8_0 = Panels{Code: "int8", Zero: 128, Block: 32, Scale: onnx.Float16,
	split: func(p *parts, b []byte) {
		take(b, p.scale[:2], p.codes[:32])
		p.turnSigns()
	},
	join: func(b []byte, p *parts) {
		p.turnSigns()
		put(b, p.scale[:2], p.codes[:32])
	},
}

// turnSigns adds 128 to int8 bytes modulo 256; it is its own inverse.
func (p *parts) turnSigns() {
	for i := range p.codes[:32] {
		p.codes[i] ^= 0x80
	}
}

var panelsQ5_0 = Panels{Code: "int8", Zero: 128, Block: 32, Scale: onnx.Float16,
	split: func(p *parts, b []byte) {
		take(b, p.scale[:2])
		splitQ5(p, b[2:])
	},
	join: func(b []byte, p *parts) {
		put(b, p.scale[:2])
		joinQ5(b[2:], p)
	},
}

var panelsQ5_1 = Panels{Code: "int8", Zero: shift5, Block: 32, Scale: onnx.Float16, Minus: true,
	split: func(p *parts, b []byte) {
		take(b, p.scale[:2], p.minus[:2])
		splitQ5(p, b[4:])
	},
	join: func(b []byte, p *parts) {
		put(b, p.scale[:2], p.minus[:2])
		joinQ5(b[4:], p)
	},
}

// splitQ5 reads 32 codes of 5 bits: a word with the fifth bits, then nibbles.
func splitQ5(p *parts, b []byte) {
	high := le.Uint32(b)
	for i, q := range b[4:20] {
		p.codes[i] = shift5 + (q&15 | byte(high>>i&1)<<4)
		p.codes[i+16] = shift5 + (q>>4 | byte(high>>(i+16)&1)<<4)
	}
}

func joinQ5(b []byte, p *parts) {
	high := uint32(0)
	for i := range 16 {
		low, up := p.codes[i]-shift5, p.codes[i+16]-shift5
		b[4+i] = low&15 | up<<4
		high |= uint32(low>>4&1)<<i | uint32(up>>4&1)<<(i+16)
	}
	le.PutUint32(b, high)
}

var panelsQ4_K = Panels{Code: "int4", Block: 32, Scale: onnx.Int8, Minus: true, Super: 256,
	split: func(p *parts, b []byte) {
		splitScales(p, b)
		for g := range 8 {
			nibbles, shift := b[16+g/2*32:][:32], g%2*4
			for i := range 16 {
				p.codes[16*g+i] = nibbles[i]>>shift&15 | nibbles[i+16]>>shift&15<<4
			}
		}
	},
	join: func(b []byte, p *parts) {
		joinScales(b, p)
		for g := 0; g < 8; g += 2 {
			nibbles, low, high := b[16+g/2*32:], p.codes[16*g:], p.codes[16*(g+1):]
			for i := range 16 {
				nibbles[i] = low[i]&15 | high[i]<<4
				nibbles[i+16] = low[i]>>4 | high[i]&0xf0
			}
		}
	},
}

var panelsQ5_K = Panels{Code: "int8", Zero: shift5, Block: 32, Scale: onnx.Int8, Minus: true, Super: 256,
	split: func(p *parts, b []byte) {
		splitScales(p, b)
		for g := range 8 {
			nibbles, shift := b[48+g/2*32:][:32], g%2*4
			for i := range 32 {
				p.codes[32*g+i] = shift5 + (nibbles[i]>>shift&15 | b[16+i]>>g&1<<4)
			}
		}
	},
	join: func(b []byte, p *parts) {
		joinScales(b, p)
		clear(b[16:])
		for g := range 8 {
			nibbles, shift := b[48+g/2*32:][:32], g%2*4
			for i := range 32 {
				q := p.codes[32*g+i] - shift5
				nibbles[i] |= q & 15 << shift
				b[16+i] |= q >> 4 & 1 << g
			}
		}
	},
}

// splitScales reads the header of Q4_K and Q5_K: d, dmin, and eight scales and minima of 6 bits.
func splitScales(p *parts, b []byte) {
	take(b, p.superScale[:], p.superMinus[:])
	p.superMinus[1] ^= 0x80 // the sign of a float16
	for g := range 8 {
		p.scale[g], p.minus[g] = scaleAndMin((*[12]byte)(b[4:]), g)
	}
}

func joinScales(b []byte, p *parts) {
	put(b, p.superScale[:], p.superMinus[:])
	b[3] ^= 0x80
	packed := b[4:16]
	for g := range 4 {
		packed[g] = p.scale[g]&63 | p.scale[g+4]>>4<<6
		packed[g+4] = p.minus[g]&63 | p.minus[g+4]>>4<<6
		packed[g+8] = p.scale[g+4]&15 | p.minus[g+4]<<4
	}
}

var panelsQ6_K = Panels{Code: "int8", Zero: 128, Block: 16, Scale: onnx.Int8, Super: 256,
	split: func(p *parts, b []byte) {
		copy(p.scale[:16], b[192:])
		copy(p.superScale[:], b[208:])
		for g := range 8 {
			half, part := g/4, g%4
			low, high := b[half*64+part%2*32:][:32], b[128+half*32:][:32]
			for i := range 32 {
				p.codes[32*g+i] = shift6 + (low[i]>>(part/2*4)&15 | high[i]>>(part*2)&3<<4)
			}
		}
	},
	join: func(b []byte, p *parts) {
		clear(b[:192])
		copy(b[192:208], p.scale[:])
		copy(b[208:], p.superScale[:])
		for g := range 8 {
			half, part := g/4, g%4
			low, high := b[half*64+part%2*32:][:32], b[128+half*32:][:32]
			for i := range 32 {
				q := p.codes[32*g+i] - shift6
				low[i] |= q & 15 << (part / 2 * 4)
				high[i] |= q >> 4 & 3 << (part * 2)
			}
		}
	},
}

// take copies a block into its consecutive parts.
func take(block []byte, parts ...[]byte) {
	for _, p := range parts {
		block = block[copy(p, block):]
	}
}

// put is the inverse of take.
func put(block []byte, parts ...[]byte) {
	for _, p := range parts {
		block = block[copy(block, p):]
	}
}
