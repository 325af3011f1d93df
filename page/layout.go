package page

import (
	"cmp"
	"math"
	"slices"
)

// The distances of a drawing, in pixels.
const (
	rowGap    = 22 // between the rows
	columnGap = 18 // between boxes of a row
	margin    = 4
	sweeps    = 12 // of ordering, and of placing
)

// place sets the row, order and coordinates of every box, and the points of every edge, as layered layouts do: rows by
// the longest path from a source, then the order in each row by the mean position of neighbors, then coordinates close
// to the neighbors'. An edge across several rows has a point in each. Drawings that are too large to show stay without
// layout.
func (d *drawing) place() {
	if d == nil || d.Large() {
		return
	}
	rows := d.rows()
	order(rows)
	columns(rows)
	y := float64(margin)
	left := math.Inf(1)
	for _, row := range rows {
		height := 0.0
		for _, b := range row {
			height = max(height, b.Height)
			left = min(left, b.X-b.Width/2)
		}
		for _, b := range row {
			b.Y = y + height/2
		}
		y += height + rowGap
	}
	for _, row := range rows {
		for _, b := range row {
			b.X += margin - left
			d.Width = max(d.Width, b.X+b.Width/2+margin)
		}
	}
	d.Height = y - rowGap + margin
}

// rows assigns boxes to rows, and adds points where edges cross rows. Boxes are in the order of computation.
func (d *drawing) rows() [][]*box {
	last := 0
	for _, b := range d.Boxes {
		for _, e := range b.in {
			b.row = max(b.row, e.from.row+1)
		}
		last = max(last, b.row)
	}
	for _, b := range slices.Backward(d.Boxes) { // move sources to just above their first reader
		if len(b.in) == 0 && len(b.out) > 0 {
			b.row = slices.MinFunc(b.out, func(x, y *edge) int { return cmp.Compare(x.to.row, y.to.row) }).to.row - 1
		}
	}
	rows := make([][]*box, last+1)
	for _, b := range d.Boxes {
		rows[b.row] = append(rows[b.row], b)
	}
	for _, e := range d.Edges {
		e.way = append(e.way, e.from)
		for row := e.from.row + 1; row < e.to.row; row++ {
			p := &box{row: row, Width: 2}
			e.way = append(e.way, p)
			rows[row] = append(rows[row], p)
		}
		e.way = append(e.way, e.to)
		for i, b := range e.way[1:] {
			e.way[i].below, b.above = append(e.way[i].below, b), append(b.above, e.way[i])
		}
	}
	return rows
}

// order sorts the rows so that few edges cross.
func order(rows [][]*box) {
	number := func(row []*box) {
		for i, b := range row {
			b.at = i
		}
	}
	for _, row := range rows {
		number(row)
	}
	best, fewest := make([][]*box, len(rows)), math.MaxInt
	for i := range sweeps {
		for k := range rows {
			if i%2 == 1 {
				k = len(rows) - 1 - k
			}
			for _, b := range rows[k] {
				near := b.above
				if i%2 == 1 {
					near = b.below
				}
				b.X = float64(b.at)
				if len(near) > 0 {
					b.X = mean(near, func(n *box) float64 { return float64(n.at) })
				}
			}
			slices.SortStableFunc(rows[k], func(x, y *box) int { return cmp.Compare(x.X, y.X) })
			number(rows[k])
		}
		if n := crossings(rows); n < fewest {
			fewest = n
			for k, row := range rows {
				best[k] = slices.Clone(row)
			}
		}
	}
	for k, row := range best {
		copy(rows[k], row)
		number(row)
	}
}

func crossings(rows [][]*box) int {
	n := 0
	for _, row := range rows {
		for i, b := range row {
			for _, c := range row[i+1:] {
				for _, x := range b.below {
					for _, y := range c.below {
						if x.at > y.at {
							n++
						}
					}
				}
			}
		}
	}
	return n
}

// columns moves each box as close to the mean of its neighbors as the order and widths of its row allow.
func columns(rows [][]*box) {
	for _, row := range rows {
		x := 0.0
		for _, b := range row {
			b.X = x + b.Width/2
			x += b.Width + columnGap
		}
	}
	for i := range 4 * sweeps {
		for k := range rows {
			if i%2 == 1 {
				k = len(rows) - 1 - k
			}
			row := rows[k]
			want := make([]float64, len(row))
			for j, b := range row {
				near := b.above
				if i%2 == 1 {
					near = b.below
				}
				if want[j] = b.X; len(near) > 0 {
					want[j] = mean(near, func(n *box) float64 { return n.X })
				}
			}
			spread(row, want)
		}
	}
}

// spread sets the coordinates of a row closest to the wanted ones, in least squares, without overlaps. Boxes that touch
// form a run, which is at the mean of the positions that its boxes want.
func spread(row []*box, want []float64) {
	offset := make([]float64, len(row)) // of each box from the first of the row
	var blocks []run
	for i, b := range row {
		if i > 0 {
			offset[i] = offset[i-1] + (row[i-1].Width+b.Width)/2 + columnGap
		}
		blocks = append(blocks, run{i, 1, want[i] - offset[i]})
		for k := len(blocks) - 1; k > 0 && blocks[k-1].place() > blocks[k].place(); k-- {
			blocks[k-1].n += blocks[k].n
			blocks[k-1].sum += blocks[k].sum
			blocks = blocks[:k]
		}
	}
	for _, k := range blocks {
		for i := k.first; i < k.first+k.n; i++ {
			row[i].X = k.place() + offset[i]
		}
	}
}

// run is a group of boxes in a row that touch.
type run struct {
	first, n int
	sum      float64 // of the first box's coordinates that the boxes want
}

func (r run) place() float64 { return r.sum / float64(r.n) }

func mean(boxes []*box, of func(*box) float64) float64 {
	sum := 0.0
	for _, b := range boxes {
		sum += of(b)
	}
	return sum / float64(len(boxes))
}
