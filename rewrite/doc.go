// Package rewrite replaces the sites of a model, the subgraphs that read like a pattern, by fused ops: scan the registered kernels, find
// matches, check each, replace, report.
//
// A match is only a suspicion. It is rewritten when the nodes it would replace depend on the op's inputs alone, when the
// kernels take its types and shapes, and when the nodes and the op's definition give the same results on hard inputs.
// Every other match is left as it was, with the reason in the Report.
//
//	report, err := rewrite.ApplyDefaultKernels(model, rewrite.Auto)
//	report, err := rewrite.ApplyKernel(model, "cpu_fused_rmsnorm")
//
// Applying twice changes nothing, and the same model gives the same result.
package rewrite
