package tensor

import "math"

// Size returns the number of elements of a shape.
func Size(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// ToInts converts dimensions to int.
func ToInts(v []int64) []int {
	r := make([]int, len(v))
	for i, x := range v {
		// A number that is not a valid dimension stays out of range on every platform.
		r[i] = int(min(max(x, math.MinInt32), math.MaxInt32))
	}
	return r
}

// ToInt64s converts dimensions to int64.
func ToInt64s(v []int) []int64 {
	r := make([]int64, len(v))
	for i, x := range v {
		r[i] = int64(x)
	}
	return r
}

// MapSlice applies f to each element.
func MapSlice[A, R any](v []A, f func(A) R) []R {
	r := make([]R, len(v))
	for i, x := range v {
		r[i] = f(x)
	}
	return r
}

// BoolInt returns 1 for true and 0 for false.
func BoolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Pick returns x if b holds, and y otherwise.
func Pick[T any](b bool, x, y T) T {
	if b {
		return x
	}
	return y
}

// UpTo lists the numbers from 0 to n-1.
func UpTo(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = i
	}
	return r
}

// Truncate converts to an integer as C does for values in range; others saturate, and NaN returns the smallest.
func Truncate(x float64) int64 {
	switch {
	case x != x, x <= math.MinInt64:
		return math.MinInt64
	case x >= math.MaxInt64:
		return math.MaxInt64
	}
	return int64(x)
}

// AlongAxis calls f for each line of n elements, inner apart, and writes back the changes of f.
func AlongAxis[T any](v []T, n, inner int, f func([]T)) {
	if len(v) == 0 {
		return
	}
	if inner == 1 {
		for o := 0; o < len(v); o += n {
			f(v[o : o+n])
		}
		return
	}
	line := make([]T, n)
	for o := 0; o < len(v); o += n * inner {
		for k := range inner {
			for j := range line {
				line[j] = v[o+k+j*inner]
			}
			f(line)
			for j := range line {
				v[o+k+j*inner] = line[j]
			}
		}
	}
}

func takeSlice[T any](x []T, index []int) []T {
	if x == nil {
		return nil
	}
	r := make([]T, len(index))
	for o, i := range index {
		r[o] = x[i]
	}
	return r
}
