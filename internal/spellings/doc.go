// Package spellings writes small models that each contain one block (a norm, a gated unit, a rotary embedding, …) in
// one of its many possible spellings, and models in which one edit changed the block's meaning. A kind and a seed
// determine the model.
//
// Two layers make a spelling. The writers of the blocks (packages blocks and experts) choose at every step among
// expressions for one function (package writer): a square is Pow or Mul, a half is cut by Slice, Split or Gather. Then
// detours are inserted on the edges of the finished graph (detour.go): casts and reshapes that are undone, subgraphs
// computed twice, other readers of inner values. The block may be in a branch of an If, in a Loop or in a function.
//
// A change of meaning is an edit named by a writer (wrong), or any edit of the finished graph (edit.go). It counts only
// if the results differ in the evaluator.
package spellings
