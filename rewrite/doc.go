// Package rewrite replaces the sites of a model, the subgraphs that read like a pattern, by fused ops. A Patcher does
// that in one order: prepare the model, find matches, check each, replace, report.
//
// A match is only a suspicion. It is rewritten when the nodes it would replace depend on the op's inputs alone, when
// the kernels take its types and shapes, and when the nodes and the op's definition give the same results on hard
// inputs. Every other match is left as it was, with the reason in the Report.
//
//	patcher, err := rewrite.New(rewrite.Request{Inline: inline.Auto})
//	report, err := patcher.Run(model)
//
// or in two steps, with a look at the sites in between:
//
//	plan, err := patcher.Plan(model)
//	for _, site := range plan.Report.Sites {
//		fmt.Println(site.ID, site.Status, site.Reason)
//	}
//	err = plan.Replace()
//
// Apply does it all in one call.
//
// Applying twice changes nothing, and the same model gives the same result.
package rewrite
