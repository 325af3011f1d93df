package learn

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/english"
)

// A File is the text of a pattern file.
type File struct {
	Model string // the path of the model that the patterns are learned from
	text  strings.Builder
}

// Add adds a pattern learned from the given number of blocks, the first of which ends in node.
func (f *File) Add(p *Pattern, node string, blocks int) {
	fmt.Fprintf(&f.text, "\n# %s, the first at node %q.", english.Counted(blocks, "block"), node)
	if list := p.Generalized(); len(list) > 0 {
		fmt.Fprintf(&f.text, " May be another number: %s.", strings.Join(list, ", "))
	}
	f.text.WriteString("\n" + p.String())
}

// String returns the text of the file.
func (f *File) String() string {
	if f.text.Len() == 0 {
		return fmt.Sprintf("# mojo-patch learned no pattern from %q.\n", filepath.Base(f.Model))
	}
	return fmt.Sprintf("# Patterns that mojo-patch learned from %q: they find its blocks without running them.\n",
		filepath.Base(f.Model)) + f.text.String()
}

// String returns the name of the number and its value at the match.
func (n Number) String() string { return fmt.Sprintf("%s (%v)", n.Name, short(n.Value)) }

// Generalized lists the numbers that may differ elsewhere, with their values at the match.
func (p *Pattern) Generalized() []string {
	var list []string
	for _, n := range p.Numbers {
		list = append(list, n.String())
	}
	return list
}

// common are ops and views that do not distinguish a spelling.
var common = map[string]bool{"Mul": true, "Add": true, "Sub": true, "Div": true, "Cast": true, "Reshape": true,
	"Unsqueeze": true, "Squeeze": true, "Expand": true, "Identity": true,
	"Row": true, "Filled": true, "HalfTurn": true, "Channels": true}

// maxNamed bounds the ops in a name.
const maxNamed = 4

// Called returns a name made from the pattern's ops.
func (p *Pattern) Called() string {
	name := p.Target.Call.Main().Op
	if name == "LayerNormalization" {
		name = "LayerNorm"
	}
	ops := telling(p.ops)
	if len(ops) == 0 {
		ops = telling(p.views)
	}
	return strings.Join(append([]string{name}, ops...), "_")
}

// telling lists the ops that are not common, each once.
func telling(ops []string) []string {
	var list []string
	for _, op := range ops {
		if !common[op] && !slices.Contains(list, op) && len(list) < maxNamed {
			list = append(list, op)
		}
	}
	return list
}
