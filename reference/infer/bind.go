package infer

import (
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// BindDim replaces the names in a symbolic dimension by their sizes. The result is a number if all names have a size,
// also in an expression ("past + 1"), else an expression of the remaining names.
func BindDim(name string, sizes map[string]int64) onnx.Dim {
	if n, ok := sizes[name]; ok {
		return onnx.Dim{Value: n}
	}
	if n, err := strconv.ParseInt(name, 10, 64); err == nil && n >= 0 { // a number written as a name
		return onnx.Dim{Value: n}
	}
	same := onnx.Dim{Value: -1, Param: name}
	bound, missing := false, false
	e := parseDim(name, func(n string) *symbol {
		size, ok := sizes[n]
		bound, missing = bound || ok, missing || !ok
		return &symbol{name: n, start: [Worlds]int64{size, size, size}}
	})
	switch {
	case e == nil:
		return same
	case !missing && e.at(0) >= 0:
		return onnx.Dim{Value: e.at(0)}
	case !missing || !bound:
		return same
	}
	words := strings.Fields(spaced(name))
	for i, w := range words {
		if n, ok := sizes[w]; ok {
			words[i] = strconv.FormatInt(n, 10)
		}
	}
	return onnx.Dim{Value: -1, Param: strings.Join(words, " ")}
}
