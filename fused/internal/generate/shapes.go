package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
)

// fieldNames lists the fields of an op's C++ struct of sizes.
func fieldNames(o *fused.Op) string {
	table := o.ShapeTable()
	return joined(table.Sizes[:table.Fields], func(e fused.SizeEntry) string { return strings.TrimPrefix(e.Text, "#") })
}

// sizeDef returns the initializer of the C++ struct of a size.
func sizeDef(e fused.SizeEntry) string {
	return trimmed(fmt.Sprintf("{%q, %q, %d, %d, %d}", e.Text, rune(e.Kind), e.Number, e.Left, e.Right), ", 0}", ", 0}")
}

// trimmed removes trailing members of an initializer that have their default values.
func trimmed(text string, ends ...string) string {
	for _, end := range ends {
		if !strings.HasSuffix(text, end) {
			break
		}
		text = strings.TrimSuffix(text, end) + "}"
	}
	return text
}

// alternatives lists the distinct alternatives of all shapes, and the number of words before each.
func alternatives(t fused.ShapeTable) (list [][]fused.DimEntry, before []int) {
	n := 0
	for _, s := range slices.Concat(t.Inputs, t.Outputs) {
		for _, dims := range s.Alternatives {
			if !slices.ContainsFunc(list, func(other []fused.DimEntry) bool { return slices.Equal(other, dims) }) {
				list, before = append(list, dims), append(before, n)
				n += len(dims)
			}
		}
	}
	return list, before
}

// dimDefs returns the initializers of the C++ structs of words, a line for each alternative.
func dimDefs(t fused.ShapeTable) []string {
	list, _ := alternatives(t)
	return mapped(list, func(dims []fused.DimEntry) string {
		return joined(dims, func(d fused.DimEntry) string {
			text := fmt.Sprintf("{%d, %t, %t, %t, %d}", d.Size, d.Spread, d.Wide, d.Least, d.From)
			return trimmed(text, ", -1}", ", false}", ", false}", ", false}")
		})
	})
}

// shapeDefs returns the initializers of the C++ structs of shapes: inputs, then outputs.
func shapeDefs(op string, t fused.ShapeTable) (list []string) {
	known, before := alternatives(t)
	for _, s := range slices.Concat(t.Inputs, t.Outputs) {
		text := joined(s.Alternatives, func(dims []fused.DimEntry) string {
			at := slices.IndexFunc(known, func(other []fused.DimEntry) bool { return slices.Equal(other, dims) })
			spread := slices.IndexFunc(dims, func(d fused.DimEntry) bool { return d.Spread })
			return fmt.Sprintf("{k%sDims + %d, %d, %d}", op, before[at], len(dims), spread)
		})
		list = append(list, fmt.Sprintf("{%d, %d, {%s}}", s.Selector, len(s.Alternatives), text))
	}
	return list
}

// relationDef returns the initializer of the C++ struct of a relation.
func relationDef(r fused.RelationEntry) string {
	return fmt.Sprintf("{%q, %d, %d, %d, %d, %t, %s, %s}", rune(r.Kind), r.Left, r.Right, r.Selector, r.Value, r.Unless,
		strconv.Quote(r.Text), strconv.Quote(r.Doc))
}
