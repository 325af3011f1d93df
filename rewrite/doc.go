// Package rewrite replaces the sites of a model, the subgraphs that match a pattern, by fused ops. A Patcher prepares
// the model, finds matches, checks each, replaces them and reports, in this order.
//
// A match is only a candidate. It is replaced if its nodes depend on no values except the op's inputs, if the kernels
// support its types and shapes, and if the nodes and the op's definition return the same results on hard inputs. All
// other matches stay, with the reason in the Report.
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
// Applying twice changes nothing, and equal models have equal results.
package rewrite
