// Package router finds the routers of mixtures of experts, by what depends on what: All lists the choices of a
// graph that select among experts, and Read reads one as mojo.TopKRouter computes it.
package router
