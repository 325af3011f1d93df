// Package onig runs patterns of the regular expression library Oniguruma in its Ruby syntax, which a tokenizer.json
// uses.
//
// The package parses a pattern and computes its character sets from Unicode 16.0, the version of Oniguruma 6.9.10.
// Characters in the same sets form a class, and each class maps to one letter. github.com/dlclark/regexp2 then searches
// a pattern of these letters in a text of these letters. So that library's syntax and tables do not matter, only its
// backtracking, which works like Oniguruma's.
//
// Unsupported syntax is an error that names it: back references, \G, \K, \X, \y, subexpression calls, conditions,
// absence operators, (?x), and letters that equal several others without case, such as ß.
package onig
