// Package notation reads and writes pattern files: it lexes, parses and checks them, and prints what it has parsed.
// It knows no graphs; package match matches a Pattern.
//
// # Grammar
//
//	file      = { view | pattern | function } .
//	view      = "view" Name "(" names ")" "=" expr .
//	pattern   = "pattern" Name "(" names ")" "->" names "{" [ anchor ] { statement } [ where ] "}" "=>" target .
//	anchor    = "anchor" Op { "," Op } .
//	statement = names "=" expr .                    several names: the outputs of one node, in order
//	where     = "where" cond .
//	target    = [ domain "." ] Op "(" [ operand { "," operand } ] [ ";" attr { "," attr } ] ")" .
//	operand   = target | name | "$" name | number | "[" ints "]" | "_" .
//	attr      = name "=" ( cond | "[" ints "]" | "$" name ) .
//	function  = "function" domain "." Name "(" names ")" "->" names [ "<" names ">" ] "{" { names "=" target } "}" .
//	expr      = branch { "|" branch } .             the first branch that leads to a whole match is taken
//	branch    = term [ "as" name ] .                name is 1 in conditions if the branch was taken, else 0
//	term      = call | name | number | "[" ints "]" | "$" name | "_" | "(" expr ")" .
//	call      = [ domain "." ] Op [ "<" attrpat { "," attrpat } ">" ] [ "?" ] "(" [ expr { "," expr } ] ")" .
//	attrpat   = name "=" ( number | string | "[" ints "]" | datatype | "$" name ) .
//	cond      = the usual: || && ! == != < <= > >= + - * / % ( ), numbers, strings, names,
//	            functions of match/functions.go .
//
// Comments run from # to the end of the line.
//
// # Meaning
//
// A name of the parameter list stands for any value; a name that a statement defines stands for that statement's
// expression. The same name twice is the same value: the very one, or one computed by equal nodes from equal values
// (TorchScript repeats itself). $name captures a constant of one element, or an attribute. A number stands for a
// constant of one element that holds it, rounded to the constant's type. _ stands for anything. Op? is an optional
// node: if it is not there its first argument is matched in its place. An optional Cast is one between floating-point
// types. An optional Mul or Add whose second argument is a capture captures 1 or 0 where it is not there.
//
// The arguments of commutative ops match in any order (Commutative), and Mul and Add with more than two arguments
// match however the products or sums are nested. Attributes that newer opsets turned into inputs (axes of ReduceMean,
// …) are written as attributes, defaults need not be spelled out in the graph, and an axis counted from the front
// equals the one counted from the back. What changes nothing is not seen: Identity, casts to a wider type and back,
// reshapes and transpositions that are undone, slices of everything, x * 1 (match.View.Resolve). Built-in views match
// what text cannot say (match.BuiltinView): Mean(x); Row(w), a weight for each channel; Channels<from=m, size=n,
// step=k>(x), a part of the last axis; Filled<value=n>(), a constant of which all elements are n; HalfTurn<layout=text,
// sign=n>(), a matrix that turns pairs of channels; Rotation(x, cos, sin), a rotary position embedding;
// OppositeRotation(x, cos, sin), one by the negatives of the angles.
//
// A view is a sub-pattern: its uses are replaced by its expression.
//
// A target is made for the opset of the model: attributes that newer opsets turned into inputs are written as
// attributes (either form is taken), a number among the operands is a constant of the type of the operand beside it,
// _ is an omitted input. A captured number is INT or FLOAT as the attribute's name tells; for ops of domain mojo the
// catalogue does. The outputs of the outermost call are the pattern's results. Where the opset is too old for an op,
// the Match says so (Problem).
//
// A function is the meaning of an op that targets may call: ops of the standard, in the form of targets. Names in < >
// are its attributes: as an operand a FLOAT, as the value of an attribute that attribute. It must stand before the
// pattern that calls it.
package notation
