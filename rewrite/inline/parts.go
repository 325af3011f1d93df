package inline

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// A function may contain part of a block, with the rest next to the call or in other functions, or be the whole block.
// To find out, all functions are inlined into a copy of the model, which is then searched.

// metaFunction is the metadata key for the function that a node of that copy came from.
const metaFunction = "mojo_patch.function"

// withParts selects the functions with parts of blocks: functions whose nodes are in a match with nodes from elsewhere,
// functions that are a whole block, and functions whose bodies contain fewer blocks before inlining than afterwards.
func (a *Inliner) withParts() map[*onnx.Function]bool {
	chosen := map[*onnx.Function]bool{}
	if a.Mode != Auto {
		return chosen
	}
	m, byID := a.Model, functionsOf(a.Model)
	calls := map[*onnx.Function]int{}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if f := byID[idOf(n.Domain, n.OpType, n.Overload)]; f != nil && !a.stays(f) {
				calls[f]++
			}
		}
	}
	if len(calls) == 0 {
		return chosen
	}
	trial, err := a.tryInlined(calls)
	if err != nil {
		return chosen // functions that cannot be inlined stay
	}
	var facts *infer.Facts
	for f, n := range calls {
		t := trial[idOf(f.Domain, f.Name, f.Overload)]
		if t == nil {
			continue
		}
		holds := t.across || t.whole
		if !holds { // last, because it takes long with many functions
			if facts == nil {
				facts = infer.Analyze(m)
			}
			found, _ := a.Find(f.Body, facts)
			holds = t.inside > n*len(found)
		}
		if holds {
			chosen[f] = true
		}
	}
	return chosen
}

// shares describes the matches of a function's nodes.
type shares struct {
	across bool // in a match with nodes from elsewhere
	whole  bool // all nodes that compute anything are in one match
	inside int  // number of matches
}

// tryInlined inlines the functions into a copy of the model and looks for blocks there.
func (a *Inliner) tryInlined(functions map[*onnx.Function]int) (map[functionID]*shares, error) {
	m, err := a.Model.Clone()
	if err != nil {
		return nil, err
	}
	tried := map[string]*onnx.Function{} // by the text on nodes
	byID := functionsOf(m)
	inline := map[*onnx.Function]bool{}
	for f := range functions {
		id := idOf(f.Domain, f.Name, f.Overload)
		inline[byID[id]] = true
		tag := fmt.Sprint(len(tried))
		tried[tag] = f
		byID[id].Body.Walk(func(g *onnx.Graph) {
			for _, n := range g.Nodes {
				n.Metadata = append(n.Metadata, onnx.Entry{Key: metaFunction, Value: tag})
			}
		})
	}
	if _, err := new(edit.Change).InlineFunctions(m, func(f *onnx.Function) bool { return !inline[f] }); err != nil {
		return nil, err
	}
	facts, found := infer.Analyze(m), map[functionID]*shares{}
	for _, s := range pass.Scopes(m, a.Skips) {
		matches, _ := a.Find(s.Graph, facts)
		for _, match := range matches {
			tags := map[string]int{}
			for _, n := range match.Nodes {
				tags[tagOf(n)]++
			}
			for tag, count := range tags {
				f := tried[tag]
				if f == nil {
					continue
				}
				id := idOf(f.Domain, f.Name, f.Overload)
				if found[id] == nil {
					found[id] = &shares{}
				}
				p := found[id]
				p.across = p.across || len(tags) > 1
				p.whole = p.whole || count >= working(f.Body)
				p.inside++
			}
		}
	}
	return found, nil
}

// working counts the nodes of a body that compute anything.
func working(g *onnx.Graph) (count int) {
	for _, n := range g.Nodes {
		if !n.Is("Constant") && !n.Is("Identity") {
			count++
		}
	}
	return count
}

func tagOf(n *onnx.Node) string {
	i := slices.IndexFunc(n.Metadata, func(e onnx.Entry) bool { return e.Key == metaFunction })
	if i < 0 {
		return ""
	}
	return n.Metadata[i].Value
}
