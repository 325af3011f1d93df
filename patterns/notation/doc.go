// Package notation reads and writes pattern files: it lexes, parses, checks and prints them. It does not know graphs;
// package match matches a Pattern.
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
//	expr      = branch { "|" branch } .             the first branch that leads to a whole match is used
//	branch    = term [ "as" name ] .                name is 1 in conditions if the branch was taken, else 0
//	term      = call | name | number | "[" ints "]" | "$" name | "_" | "(" expr ")" .
//	call      = [ domain "." ] Op [ "<" attrpat { "," attrpat } ">" ] [ "?" ] "(" [ expr { "," expr } ] ")" .
//	attrpat   = name "=" ( number | string | "[" ints "]" | datatype | "$" name ) .
//	cond      = as usual: || && ! == != < <= > >= + - * / % ( ), numbers, strings, names,
//	            functions of match/functions.go .
//
// Comments run from # to the end of the line.
//
// # Meaning
//
// A parameter matches any value; a name that a statement defines matches that statement's expression. The same name
// twice means the same value: the identical one, or one computed by equal nodes from equal values (TorchScript repeats
// nodes). $name captures a constant of one element, or an attribute. A number matches a constant of one element that
// equals it, rounded to the constant's type. _ matches anything. Op? is an optional node: if it is missing, its first
// argument is matched instead. An optional Cast is one between floating-point types. An optional Mul or Add whose
// second argument is a capture captures 1 or 0 if it is missing.
//
// The arguments of commutative ops match in any order (Commutative), and Mul and Add with more than two arguments match
// any nesting of products or sums. Attributes that newer opsets turned into inputs (axes of ReduceMean, …) are written
// as attributes. The graph need not spell out defaults, and an axis counted from the front equals the one counted from
// the back. Nodes that change nothing are skipped: Identity, casts to a wider type and back, reshapes and
// transpositions that are undone, slices of everything, x * 1 (match.View.Resolve). Built-in views match what text
// cannot express (match.BuiltinView): Mean(x); Row(w), a weight for each channel; Channels<from=m, size=n, step=k>(x),
// a part of the last axis; Filled<value=n>(), a constant whose elements all are n; HalfTurn<layout=text, sign=n>(), a
// matrix that turns pairs of channels; Rotation(x, cos, sin), a rotary position embedding; OppositeRotation(x, cos,
// sin), one by the negatives of the angles.
//
// A view is a sub-pattern: its uses are replaced by its expression.
//
// A target is built for the opset of the model. Attributes that newer opsets turned into inputs are written as
// attributes (either form is accepted), a number among the operands is a constant of the other operand's type, and _ is
// an omitted input. The attribute's name decides whether a captured number is INT or FLOAT; for ops of domain mojo, the
// catalogue does. The outputs of the outermost call are the pattern's results. If the opset is too old for an op, the
// Match has a Problem.
//
// A function is the meaning of an op that targets may call: standard ops, in the form of targets. Names in < > are its
// attributes: as an operand a FLOAT, as the value of an attribute that attribute. It must be defined before the pattern
// that calls it.
package notation
