package blocks

// The types with blocks of 256 elements, eight groups of 32 ("K-quants"): their scales are quantized, too.

// decodeQ4_K computes (d * scale) * q - (dmin * min), with a scale and a min for each group.
func decodeQ4_K(dst []float32, src []byte) {
	out, b := (*[256]float32)(dst), (*[144]byte)(src)
	d, dmin := float16At(b[:]), float16At(b[2:])
	for group := range 8 {
		scale, least := scaleAndMin((*[12]byte)(b[4:]), group)
		factor, offset := d*float32(scale), dmin*float32(least)
		nibbles, shift := b[16+group/2*32:][:32], group%2*4
		for i := range 32 {
			out[group*32+i] = factor*float32(nibbles[i]>>shift&15) - offset
		}
	}
}

// decodeQ5_K is decodeQ4_K with a fifth bit: for group g, bit g of 32 bytes.
func decodeQ5_K(dst []float32, src []byte) {
	out, b := (*[256]float32)(dst), (*[176]byte)(src)
	d, dmin := float16At(b[:]), float16At(b[2:])
	high := b[16:48]
	for group := range 8 {
		scale, least := scaleAndMin((*[12]byte)(b[4:]), group)
		factor, offset := d*float32(scale), dmin*float32(least)
		nibbles, shift := b[48+group/2*32:][:32], group%2*4
		for i := range 32 {
			q := nibbles[i]>>shift&15 | high[i]>>group&1<<4
			out[group*32+i] = factor*float32(q) - offset
		}
	}
}

// scaleAndMin unpacks two numbers of 6 bits. The first four groups are in the low bits of bytes 0 to 7, the last four
// in the nibbles of bytes 8 to 11 and in the high bits of bytes 0 to 7.
func scaleAndMin(b *[12]byte, group int) (scale, least byte) {
	if group < 4 {
		return b[group] & 63, b[group+4] & 63
	}
	return b[group+4]&15 | b[group-4]>>2&48, b[group+4]>>4 | b[group]>>2&48
}

// decodeQ6_K computes (d * scale) * (q - 32), with an 8-bit scale for each 16 elements. For each half of 128 elements,
// 64 bytes hold the low four bits and 32 bytes the high two.
func decodeQ6_K(dst []float32, src []byte) {
	out, b := (*[256]float32)(dst), (*[210]byte)(src)
	d := float16At(b[208:])
	for group := range 8 {
		half, part := group/4, group%4
		low, high := b[half*64+part%2*32:][:32], b[128+half*32:][:32]
		for i := range 32 {
			factor := d * float32(int8(b[192+group*2+i/16]))
			q := int(low[i]>>(part/2*4)&15 | high[i]>>(part*2)&3<<4)
			out[group*32+i] = factor * float32(q-32)
		}
	}
}
