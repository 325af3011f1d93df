// Package golden holds recorded inputs and outputs of a model, and measures how far other outputs are from them.
//
// Load reads cases from an .npz file or from a folder of ONNX test data, SaveNPZ and SaveDir write them, Compare
// measures one tensor against another, RandomInputs makes inputs for a model, and HardInputs makes inputs that commonly
// expose attention bugs.
//
// # The .npz convention
//
// One file holds any number of cases. The array n (int64, no dimensions) is their number; "0.in.NAME" is the input NAME
// of case 0 and "2.out.NAME" the output NAME of case 2. A file without such keys is one case whose arrays have the
// names of the model's inputs and outputs.
//
// numpy has no bfloat16: such an array is written as numpy writes one of ml_dtypes.bfloat16, as two-byte void ('<V2').
// In Python, np.load(path)["0.out.y"].view(ml_dtypes.bfloat16) reads it. Load takes any '<V2' for bfloat16 and, if the
// model says bfloat16, a uint16 array as its bits and a float32 array as its values. The 8-bit floats are written as
// '<V1', and the model must tell Load which type they are. Types of less than 8 bits cannot be written to .npz; SaveDir
// writes every type.
package golden
