package reason

// Code is a kind of reason, in lower case with hyphens.
type Code string

// Hint returns what is generally known about reasons of this kind and what to do about them, "" where nothing is.
func (c Code) Hint() string { return hints[c] }

var hints = map[Code]string{}
