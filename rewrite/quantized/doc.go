// Package quantized makes nodes multiply by weights in quantized form.
//
// Apply replaces nodes that read floats by mojo.Linear, mojo.Embedding and mojo.QMoE, for weights whose quantized form
// the caller has. A View reads weights that other tools quantized (MatMulNBits, GatherBlockQuantized, DequantizeLinear,
// com.microsoft's QMoE): as floats during the search for blocks, and by the same ops afterwards. Lower writes a
// target's form of these ops. Each kind of site is checked with the first rows of its matrix by package sites, or by a
// claim of package prove.
package quantized
