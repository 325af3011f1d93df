// Package layers holds the test that imports between the packages of this module point one way.
package layers
