// Package layers contains the test that this module's packages import each other in one direction.
package layers
