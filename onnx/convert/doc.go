// Package convert changes a model in memory without changing what it computes: Opset brings it to a newer opset of the
// standard.
//
// What an op's versions differ in is known for every op of the standard from opset 13 on. Most differ in the types that
// they take and in their text, and their nodes stay as they are. The others have a step each: an attribute that became an input,
// a name that changed, a default that did. Everything is checked before anything is changed, so that a model that cannot be
// converted stays as it was.
package convert
