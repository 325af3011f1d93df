// Package router finds the routers of mixtures of experts. All lists the choices of a graph that select among experts,
// by what depends on what; Read fits mojo.TopKRouter to what lies between the logits of one and its weights.
package router
