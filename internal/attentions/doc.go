// Package attentions writes blocks of attention for tests: the codes of published models, and blocks that look like
// attention and are something else under rare conditions.
package attentions
