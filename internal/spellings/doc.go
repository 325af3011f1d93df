// Package spellings writes small models that each hold one block (a norm, a gated unit, a rotary embedding, …) in one
// of the many ways in which it can be spelled, and models in which one edit has changed the block's meaning. The same
// kind and seed give the same model.
//
// Two layers make a spelling. The writers of the blocks (norm.go, glu.go, rotary.go, …) choose at every step among
// expressions for one function: a square is Pow or Mul, a half is cut by Slice, Split or Gather. Then detours are put
// on the edges of the finished graph (detour.go): casts and reshapes that are undone, subgraphs computed twice, other
// readers of inner values. Blocks that send tokens to experts are written by routers*.go and experts*.go. The block may
// stand in a branch of an If, in a Loop or in a function (place.go).
//
// A change of meaning is an edit named by a writer (wrong), or any edit of the finished graph (edit.go). It counts only
// where the evaluator finds that the results differ.
package spellings
