package spellings

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Spelling is one model with one block.
type Spelling struct {
	Kind  Kind
	Seed  uint64
	Model *onnx.Model
	// Change is the edit that changed the meaning; empty for none.
	Change string
	// Smaller says that the change left a smaller block of the kind inside.
	Smaller bool
	// Read says that an inner value has other readers.
	Read bool
	// Place says where the block stands.
	Place string
}

// String names the spelling so that it can be written again.
func (s *Spelling) String() string {
	text := fmt.Sprintf("%s, seed %d, opset %d, in %s", s.Kind.Name, s.Seed, s.Model.Opset(""), s.Place)
	if s.Change != "" {
		text += ", changed: " + s.Change
	}
	return text
}

// Text prints the model.
func (s *Spelling) Text() string {
	text := s.Model.Graph.Text()
	for _, f := range s.Model.Functions {
		text += f.Text()
	}
	return text
}

// Spell writes the block of the kind that belongs to the seed.
func Spell(k Kind, seed uint64) *Spelling {
	s, _ := spell(k, seed, "")
	return s
}

// spell writes the model with one edit of those offered, which it also returns.
func spell(k Kind, seed uint64, change string) (*Spelling, []string) {
	w := newWriter(k.Name, seed, k.minOpset)
	w.change = change
	w.leave(k.write(w))
	read := detours(w.m, newRand(k.Name, seed, "detours"), w)
	return &Spelling{Kind: k, Seed: seed, Model: w.m, Change: change, Smaller: w.smaller, Read: read,
		Place: w.place.String()}, w.offered
}

// maxTries bounds how often an edit is drawn that has no effect.
const maxTries = 20

// Change writes the spelling of the seed with one edit of its writer, and the unchanged one. The edit is drawn again
// until the results differ; an error says that none did. Both are nil where the writer knows of no edit.
func Change(k Kind, seed uint64) (changed, unchanged *Spelling, err error) {
	unchanged, offered := spell(k, seed, "")
	r := newRand(k.Name, seed, "change")
	for range maxTries {
		if len(offered) == 0 {
			return nil, nil, nil
		}
		changed, _ = spell(k, seed, offered[r.IntN(len(offered))])
		if differ(unchanged.Model, changed.Model) {
			return changed, unchanged, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: no edit changes the results", unchanged)
}

// Edit writes the spelling of the seed with one edit of any kind somewhere in the finished graph, drawn again until the
// results differ. What comes out may be a block of the kind still, with another constant for example.
func Edit(k Kind, seed uint64) (*Spelling, error) {
	unchanged := Spell(k, seed)
	r := newRand(k.Name, seed, "edit")
	for range maxTries {
		s := Spell(k, seed)
		if s.Change = edit(s.Model, r); s.Change == "" || !differ(unchanged.Model, s.Model) {
			continue
		}
		if _, err := evaluate(s.Model, 1, false); err == nil { // some ops take inputs of two types, and others do not
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s: no edit changes the results", unchanged)
}
