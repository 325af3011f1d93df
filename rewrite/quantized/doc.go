// Package quantized has nodes multiply with weights in the form in which they are quantized.
//
// Apply puts mojo.Linear, mojo.Embedding and mojo.QMoE in place of nodes that read floats, for weights whose
// quantized form the caller has. A View reads what other tools quantized (MatMulNBits, GatherBlockQuantized,
// DequantizeLinear, com.microsoft's QMoE): as floats while blocks are looked for, and in the same ops after that. Lower
// writes what a target has for these ops. Each kind of site is checked with the first rows of its matrix by package
// sites, or by a claim of package prove.
package quantized
