package fused

import (
	"github.com/mojo-patch/mojo-patch/fused/attention"
	"github.com/mojo-patch/mojo-patch/fused/linear"
	"github.com/mojo-patch/mojo-patch/fused/moe"
	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/fused/qmoe"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// What package op declares ops with.
type (
	Op            = op.Op
	Site          = op.Site
	Param         = op.Param
	AttributeSpec = op.AttributeSpec
	Part          = op.Part
	Partial       = op.Partial
	Bounds        = op.Bounds
	Rule          = op.Rule
	Relation      = op.Relation
	Shape         = op.Shape
	Combination   = op.Combination
	Variable      = op.Variable
	Form          = op.Form
	Family        = op.Family
	Device        = op.Device
	Role          = op.Role
	Typed         = op.Typed
	ShapeTable    = op.ShapeTable
	ShapeEntry    = op.ShapeEntry
	DimEntry      = op.DimEntry
	SizeEntry     = op.SizeEntry
	RelationEntry = op.RelationEntry
	// Quantized is a matrix of quantized elements.
	Quantized = linear.Quantized
)

// The constants of package op.
const (
	Domain          = op.Domain
	Version         = op.Version
	MinOpset        = op.MinOpset
	FormOpset       = op.FormOpset
	LibraryVariable = op.LibraryVariable

	CPU  = op.CPU
	CUDA = op.CUDA
	NPU  = op.NPU

	NoRole         = op.NoRole
	RoleTokens     = op.RoleTokens
	RoleWeights    = op.RoleWeights
	RoleIDs        = op.RoleIDs
	RoleGates      = op.RoleGates
	RoleMatrix     = op.RoleMatrix
	RoleBias       = op.RoleBias
	RoleLogits     = op.RoleLogits
	RoleCorrection = op.RoleCorrection
	RoleBase       = op.RoleBase
	RoleQueries    = op.RoleQueries
	RoleKeys       = op.RoleKeys
	RoleValues     = op.RoleValues
	RoleKeyExists  = op.RoleKeyExists
	RoleKeyHidden  = op.RoleKeyHidden
	RoleKeyLengths = op.RoleKeyLengths
	RoleScoreBias  = op.RoleScoreBias
	RoleLinearKeys = op.RoleLinearKeys
	RoleDecay      = op.RoleDecay
	RoleDecayLog   = op.RoleDecayLog
	RoleShare      = op.RoleShare
	RoleShapeAlone = op.RoleShapeAlone
)

// The functions of package op, and of the packages of ops.
var (
	ErrNoLibrary   = op.ErrNoLibrary
	ErrNoBody      = op.ErrNoBody
	Devices        = op.Devices
	FindLibrary    = op.FindLibrary
	Holds          = op.Holds
	NewQuantized   = linear.NewQuantized
	Activations    = linear.Activations
	MoEUnit        = moe.MoEUnit
	QMoEAttributes = qmoe.QMoEAttributes
	QMoEGateUp     = qmoe.QMoEGateUp
	QMoEDown       = qmoe.QMoEDown
)

// Read returns the struct of an op's attributes, as op.Read does.
func Read[T any, P op.Readable[T]](attributes []*onnx.Attribute) T { return op.Read[T, P](attributes) }

// PagedNumbers is attention.PagedNumbers.
func PagedNumbers(s Site, input int) []int64 { return attention.PagedNumbers(s, input) }
