package weights

import (
	"fmt"
	"io"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/llm/weights"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// writeLoadReport prints the result of loading weights, in the form of Mojo Opset's report; -v lists every key.
func writeLoadReport(a *cli.App, m *onnx.Model, r *weights.Report, kernelsLib string) {
	w := a.Human()
	fmt.Fprintln(w, "Weight Loading Report")
	t := cli.NewTable("", ">")
	t.Add("Total Expected Keys", r.Expected)
	t.Add("Successfully Loaded", r.Loaded)
	t.Add("Missing Keys", len(r.Missing))
	t.Add("Unexpected Keys", len(r.Unexpected))
	t.Add("In the Graph Already", len(r.Present))
	t.Write(w)
	for _, k := range r.Missing {
		because := ""
		if k.Reason != "" {
			because = ": " + k.Reason
		}
		fmt.Fprintf(w, "missing %s %s%v%s\n", k.Name, k.DataType, k.Shape, because)
	}
	for _, k := range r.Unexpected {
		fmt.Fprintf(w, "unexpected %s %s%v\n", k.Name, k.Type, k.Shape)
	}
	writeTurned(w, r, a.Verbose)
	writeQuantized(a, m, r, kernelsLib)
	writeLoadWarnings(w, r)
}

// writeTurned reports the changes to tensors: one line for each kind, and under -v one for each key.
func writeTurned(w io.Writer, r *weights.Report, verbose bool) {
	if verbose {
		for _, k := range r.Keys {
			fmt.Fprintf(w, "%s %s%v from %s (by %s)%s\n", k.Name, k.DataType, k.Shape, cli.Shorter(k.Tensors), k.Rule,
				turns(k))
		}
	}
	var casts, kinds []string
	count := map[string]int{}
	note := func(list *[]string, what string) {
		if count[what]++; count[what] == 1 {
			*list = append(*list, what)
		}
	}
	for _, k := range r.Keys {
		if k.Cast {
			note(&casts, fmt.Sprintf("%s to %s", strings.Join(k.Types, ", "), k.DataType))
		}
		if k.Transposed {
			note(&kinds, "transposed")
		}
		if k.RopeHeads > 0 || k.QKVHeads > 0 {
			note(&kinds, "rows put back into PyTorch's order")
		}
		if k.Added != 0 {
			note(&kinds, fmt.Sprintf("%+g to each element (1 + weight)", k.Added))
		}
	}
	for _, k := range r.Keys {
		switch {
		case k.Rule == weights.ByTie:
			fmt.Fprintf(w, "tied: %s is %s, since the checkpoint has no separate tensor for it\n", k.Name, k.Tensors[0])
		case k.Tied != "" && !verbose:
			fmt.Fprintf(w, "tied: %s is %s, stored once\n", k.Name, k.Tied)
		}
	}
	for _, what := range casts {
		fmt.Fprintf(w, "cast %s: %s\n", what, cli.Counted(count[what], "key"))
	}
	for _, what := range kinds {
		fmt.Fprintf(w, "%s: %s\n", what, cli.Counted(count[what], "key"))
	}
}

func turns(k weights.LoadedKey) string {
	var list []string
	if k.Cast {
		list = append(list, "cast from "+strings.Join(k.Types, ", "))
	}
	if k.RopeHeads > 0 {
		list = append(list, fmt.Sprintf("rows of %d heads put back", k.RopeHeads))
	}
	if k.QKVHeads > 0 {
		list = append(list, fmt.Sprintf("q, k and v of %d heads put back", k.QKVHeads))
	}
	if k.Transposed {
		list = append(list, "transposed")
	}
	if k.Added != 0 {
		list = append(list, fmt.Sprintf("%+g", k.Added))
	}
	if k.Tied != "" {
		list = append(list, "tied to "+k.Tied)
	}
	if list == nil {
		return ""
	}
	return ": " + strings.Join(list, ", ")
}

func writeLoadWarnings(w io.Writer, r *weights.Report) {
	if r.Expected == 0 {
		fmt.Fprintln(w, "warning: the graph has all its weights, so nothing was loaded: use --replace to load them "+
			"again")
	}
	for _, k := range r.Mismatched() {
		fmt.Fprintf(w, "warning: %s needs the shape %v, but %s has %v: it counts as "+
			"missing\n", k.Name, k.Shape, k.Tensor,
			k.Found)
	}
	for _, k := range r.Keys {
		if k.Overflows > 0 {
			fmt.Fprintf(w, "warning: %s became infinite in %s, being too large for %s\n",
				cli.Counted(int(k.Overflows), "element"), k.Name, k.DataType)
		}
	}
	differ := 0
	first := ""
	for _, k := range r.Present {
		if k.Equal != nil && !*k.Equal {
			if differ++; differ == 1 {
				first = k.Name
			}
		}
	}
	if differ > 0 {
		fmt.Fprintf(w, "warning: the elements of the graph and the checkpoint differ in %s (%s): use --replace to "+
			"load these, "+
			"too\n", cli.Counted(differ, "initializer"), first)
	}
	for _, name := range r.UnusedMap {
		fmt.Fprintf(w, "warning: the map has an entry for %s, which is not an initializer of the graph\n", name)
	}
	if r.Written && len(r.Missing) > 0 {
		fmt.Fprintf(w, "warning: the model cannot run without the missing weights: it still refers to external data "+
			"for them\n")
	}
}
