// Package attentions writes attention blocks for tests: the code of published models, and lookalikes that differ from
// attention under rare conditions.
package attentions
