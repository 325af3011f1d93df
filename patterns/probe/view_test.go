package probe

import (
	"fmt"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func TestWeightViews(t *testing.T) {
	w := onnx.New(10, 20).Graph.AddInitializer(onnx.NewFloat32s("w", []int64{2, 3, 4}, make([]float32, 24)))
	list := func(v *weightView) string {
		if v == nil {
			return "nil"
		}
		s := fmt.Sprint(v.dims())
		v.each(func(o origin) { s += fmt.Sprint(" ", o.Offset) })
		return s
	}
	v := viewOf(w)
	for i, test := range []struct {
		view *weightView
		want string
	}{
		{v.at(0, 1).at(0, 2), "[4] 20 21 22 23"},
		{v.at(0, 1).transpose([]int64{1, 0}).at(0, 3), "[3] 15 19 23"},
		{v.slice(2, 1, 2, 2).at(0, 0), "[3 2] 1 3 5 7 9 11"},
		{v.slice(1, 1, 3, 1), "nil"},
		{v.reshape([]int64{6, 4}).slice(0, 4, 2, 1).at(1, 0), "[2] 16 20"},
		{v.reshape([]int64{2, 3, 2, 2}).at(2, 1).at(0, 1), "[3 2] 14 15 18 19 22 23"},
		{v.transpose([]int64{1, 0, 2}).reshape([]int64{3, 8}), "nil"},
		{v.transpose([]int64{1, 0, 2}).reshape([]int64{3, 2, 1, 4}).at(0, 2), "[2 1 4] 8 9 10 11 20 21 22 23"},
		{v.pick(0, []int64{1, 1, 0}).at(1, 0).at(1, 3), "[3] 15 15 3"},
		{v.pick(0, []int64{1, 0}).reshape([]int64{2, 12}).at(1, 11), "[2] 23 11"},
		{v.pick(0, []int64{0, 1, 1, 0}).slice(0, 1, 2, 2).at(1, 0).at(1, 0), "[2] 12 0"},
		{v.pick(0, []int64{1}).reshape([]int64{3, 4}).at(1, 0), "[3] 12 16 20"},
		{joinViews([]*weightView{v.at(0, 1).slice(0, 2, 1, 1), v.at(0, 0)}, 0).at(1, 1), "[4] 21 1 5 9"},
		{v.slice(0, 1, 1, 1).expand([]int64{2, 2, 3, 4}).at(3, 0).at(2, 0), "[2 2] 12 12 12 12"},
	} {
		if got := list(test.view); got != test.want {
			t.Errorf("%d: %s, expected %s", i, got, test.want)
		}
	}
}
