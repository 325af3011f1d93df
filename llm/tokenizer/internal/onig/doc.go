// Package onig runs patterns of the regular expression library Oniguruma, in its Ruby syntax, which is what the
// patterns of a tokenizer.json are written in.
//
// A pattern is parsed here. Its sets of characters are computed from Unicode 16.0, the version of Oniguruma 6.9.10, and
// characters that lie in the same sets become one: what github.com/dlclark/regexp2 then searches is a pattern over as
// many characters as there are such classes, in a text that is written in them. So neither that library's syntax nor
// its tables matter, only how it backtracks, which is as Oniguruma does.
//
// Syntax that is not supported is an error which names it: back references, \G, \K, \X, \y, subexpression calls,
// conditions, absence operators, (?x), and letters that equal several others without case, such as ß.
package onig
