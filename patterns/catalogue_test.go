package patterns

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// Pattern files name only fused ops, attributes and activations of the catalogue, and set every attribute.
func TestCatalogueHasWhatPatternsName(t *testing.T) {
	ops := map[string]bool{}
	for _, p := range Builtin().Patterns {
		if Builtin().forms[p] != nil {
			if p.Target.Domain == fused.Domain && fused.Lookup(p.Target.Op) == nil {
				t.Errorf("%s: the catalogue has no op %s", p.Name, p.Target.Op)
			}
			continue
		}
		p.Target.Call.Walk(func(c *notation.TargetCall) {
			if c.Domain != fused.Domain {
				return
			}
			op := fused.Lookup(c.Op)
			if op == nil {
				t.Errorf("%s: the catalogue has no op %s", p.Pos, c.Op)
				return
			}
			ops[op.Name] = true
			if len(c.Args) > len(op.Inputs) {
				t.Errorf("%s: %d arguments, %s has %d inputs", p.Pos, len(c.Args), op.Name, len(op.Inputs))
			}
			given := map[string]notation.Cond{}
			for _, a := range c.Attrs {
				given[a.Name] = a.Expr
			}
			for _, a := range op.Attributes {
				x, isString := given[a.Name].(*notation.CondString)
				switch {
				case given[a.Name] == nil:
					t.Errorf("%s: %s without attribute %s", p.Pos, op.Name, a.Name)
				case isString && !slices.Contains(a.Values, x.Value):
					t.Errorf("%s: %s with %s=%q, which is none of %q", p.Pos, op.Name, a.Name, x.Value, a.Values)
				}
				delete(given, a.Name)
			}
			for name := range given {
				t.Errorf("%s: %s has no attribute %s", p.Pos, op.Name, name)
			}
		})
	}
	for _, name := range []string{"RMSNorm", "AddRMSNorm", "GLU", "RotaryEmbedding"} {
		if !ops[name] {
			t.Errorf("no pattern of text rewrites to %s", name)
		}
	}
}
